"""What a device of a split can do: its step time by batch size, and the most that it may get."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from ...records import Advice, CapSource, DeviceRun, RunRecord, Spread
from ...spread import inverse
from ..measured.isotonic import precisions
from ..measured.laws import interpolated
from ..measured.measurements import Measurements

FARTHEST_BY_LAW = 2
"""A size that never ran may be at most so many times the largest that did."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """A device that can take part.

    Attributes:
        step_s: predicted seconds per step by batch size; never falls.
        measured: step times of the sizes that ran on it.
        rate: samples per second at its recommended size.
    """

    device: str
    recommended: int
    rate: float
    step_s: Callable[[int], float]
    time_source: Literal["time law", "interpolated"]
    measured: Mapping[int, Spread]
    largest: int
    largest_ran: int
    largest_source: CapSource
    twin_of: str | None
    speed_ratio: float
    cuda: bool


def member_of(run: DeviceRun, answer: tuple[RunRecord, Advice] | None) -> Member | str:
    """The device as part of a split, or the reason why it is none.

    A twin takes its twin's law, its times divided by the measured ratio of their speeds. One that
    was found equal is taken as equal, and one that could not be told apart, too: noise is no reason
    to give two devices of one model different shares.
    """
    if answer is None or answer[1].recommended is None:
        return run.error.removeprefix("Error: ") or "it has no recommended size"
    record, advice = answer
    choice = advice.recommended
    assert choice is not None
    ratio, reason = _speed_ratio(run)
    if ratio is None:
        return reason
    if any(
        trial.micro_batches not in (1, None) for trial in record.trials if trial.outcome == "ok"
    ):
        return "its steps accumulate several micro-batches; a split is for steps of one"
    times = {
        size.batch_size: size.step_s
        for size in advice.sizes
        if size.step_s is not None and size.step_s.median > 0
    }
    step_s = _step_time(advice, times)
    if isinstance(step_s, str):
        return step_s
    largest, source = _largest(record, advice, times)
    if choice.batch_size > largest:
        return "its recommended size was not timed, and no law of step times holds"
    return Member(
        device=run.device,
        recommended=choice.batch_size,
        rate=choice.batch_size / step_s(choice.batch_size) * ratio,
        step_s=lambda size: step_s(size) / ratio,
        time_source="interpolated" if advice.time_law is None else "time law",
        measured=times if run.twin_of is None else _checked(run),
        largest=largest,
        largest_ran=max(size.batch_size for size in advice.sizes),
        largest_source="twin" if run.twin_of is not None and source == "ran" else source,
        twin_of=run.twin_of,
        speed_ratio=ratio,
        cuda=record.device is not None and record.device.kind == "cuda",
    )


def _step_time(advice: Advice, times: Mapping[int, Spread]) -> Callable[[int], float] | str:
    law = advice.time_law
    if law is not None:
        return law.step_s
    if len(times) < 2:
        return "how its step time follows the batch size is not known: fewer than two timed sizes"
    medians = {size: time.median for size, time in times.items()}
    return interpolated(medians, precisions(medians, times))


def _speed_ratio(run: DeviceRun) -> tuple[float | None, str]:
    """Its speed over that of the device whose record it shares; the reason where not known."""
    if run.twin_of is None:
        return 1.0, ""
    check = run.check
    if check is None or check.ratio is None:
        reason = "" if check is None else check.unavailable.get("ratio", "")
        return None, f"it could not be compared with {run.twin_of}: {reason or 'not known'}"
    is_alike = check.verdict == "equal" or check.ratio.low <= 1 <= check.ratio.high
    return (1.0 if is_alike else check.ratio.median), ""


def _checked(run: DeviceRun) -> dict[int, Spread]:
    """Step time, by size, that a twin measured itself where it was only checked."""
    check = run.check
    if check is None or check.samples_per_s is None:
        return {}
    return {check.batch_size: inverse(check.samples_per_s, check.batch_size)}


def _largest(
    record: RunRecord, advice: Advice, times: Mapping[int, Spread]
) -> tuple[int, CapSource]:
    """The largest size that ran and may be advised; above it what the law of memory allows, if
    time has a law too.

    The estimate keeps below every size that failed or took too much, below the user's own bound,
    and within `FARTHEST_BY_LAW` times what ran.
    """
    usable = _usable(record, advice)
    if advice.time_law is None:  # lines between points end at the last point
        return max((size for size in usable if size in times), default=0), "ran"
    ran = max(usable, default=0)
    law, goal = advice.memory_law, advice.goal
    if law is None or goal.sizes:
        return ran, "ran"
    failed = {failure.batch_size for failure in Measurements.of(record).failed}
    tried = failed | {choice.batch_size for choice in advice.sizes}
    above = [size - 1 for size in tried if size > ran]
    bounds = [
        law.largest_estimate,
        FARTHEST_BY_LAW * ran,
        goal.max_batch or FARTHEST_BY_LAW * ran,
        *above,
    ]
    estimate = min(bounds)
    return (estimate, "memory law") if estimate > ran else (ran, "ran")


def _usable(record: RunRecord, advice: Advice) -> list[int]:
    """Sizes that ran and that the advice does not refuse: none failed, none takes too much."""
    measurements = Measurements.of(record, advice.goal)
    target = measurements.target_bytes
    return [
        choice.batch_size
        for choice in advice.sizes
        if not measurements.known_bad(choice.batch_size)
        and (target is None or choice.peak_bytes is None or choice.peak_bytes <= target)
    ]
