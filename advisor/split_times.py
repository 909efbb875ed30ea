"""What a device of a split can do: its step time by batch size, and the most that it may get."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from ..records import Advice, CapSource, DeviceRun, RunRecord, Spread
from ..spread import inverse
from .facts import failed

FARTHEST = 2
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


def member_of(one: DeviceRun, answer: tuple[RunRecord, Advice] | None) -> Member | str:
    """The device as part of a split, or the reason why it is none.

    A twin takes its twin's law, its times divided by the measured ratio of their speeds; one that
    was found equal is taken as equal.
    """
    if answer is None or answer[1].recommended is None:
        return one.error.removeprefix("Error: ") or "it has no recommended size"
    record, advice = answer
    choice = advice.recommended
    assert choice is not None
    ratio, reason = _speed_ratio(one)
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
    step_s = _step_time(advice, {size: time.median for size, time in times.items()})
    if isinstance(step_s, str):
        return step_s
    largest, source = _largest(record, advice, times)
    if choice.batch_size > largest:
        return "its recommended size was not timed, and no law of step times holds"
    return Member(
        device=one.device,
        recommended=choice.batch_size,
        rate=choice.batch_size / step_s(choice.batch_size) * ratio,
        step_s=lambda size: step_s(size) / ratio,
        time_source="interpolated" if advice.time_law is None else "time law",
        measured=times if one.twin_of is None else _checked(one),
        largest=largest,
        largest_ran=max(size.batch_size for size in advice.sizes),
        largest_source="twin" if one.twin_of is not None and source == "ran" else source,
        twin_of=one.twin_of,
        speed_ratio=ratio,
        cuda=record.device is not None and record.device.kind == "cuda",
    )


def interpolated(times: Mapping[int, float]) -> Callable[[int], float]:
    """Seconds per step by size, straight lines between measured sizes, never falling.

    Below the smallest size its own time is taken, which is an upper bound; nothing is said above
    the largest, and its time is given there.
    """
    sizes = sorted(times)
    seconds: list[float] = []
    for size in sizes:
        seconds.append(max(times[size], seconds[-1] if seconds else 0.0))

    def at(size: int) -> float:
        place = bisect_right(sizes, size)
        if place == 0 or place == len(sizes):
            return seconds[max(0, place - 1)]
        part = (size - sizes[place - 1]) / (sizes[place] - sizes[place - 1])
        return seconds[place - 1] + part * (seconds[place] - seconds[place - 1])

    return at


def _step_time(advice: Advice, times: Mapping[int, float]) -> Callable[[int], float] | str:
    law = advice.time_law
    if law is not None:
        return law.step_s
    if len(times) < 2:
        return "how its step time follows the batch size is not known: fewer than two timed sizes"
    return interpolated(times)


def _speed_ratio(one: DeviceRun) -> tuple[float | None, str]:
    """Its speed over that of the device whose record it shares; the reason where not known."""
    if one.twin_of is None:
        return 1.0, ""
    check = one.check
    if check is None or check.ratio is None:
        reason = "" if check is None else check.unavailable.get("ratio", "")
        return None, f"it could not be compared with {one.twin_of}: {reason or 'not known'}"
    return (1.0 if check.verdict == "equal" else check.ratio.median), ""


def _checked(one: DeviceRun) -> dict[int, Spread]:
    """What a twin that was only checked measured itself."""
    check = one.check
    if check is None or check.samples_per_s is None:
        return {}
    return {check.batch_size: inverse(check.samples_per_s, check.batch_size)}


def _largest(
    record: RunRecord, advice: Advice, times: Mapping[int, Spread]
) -> tuple[int, CapSource]:
    """The largest size that ran; above it what the law of memory allows, if time has a law too.

    The estimate keeps below every size that failed, below the user's own bound, and within
    `FARTHEST` times what ran.
    """
    ran = max(one.batch_size for one in advice.sizes)
    if advice.time_law is None:
        return max(size for size in times), "ran"  # lines between points end at the last point
    law, goal = advice.memory_law, record.goal
    if law is None or goal.sizes:
        return ran, "ran"
    above = [one.batch_size - 1 for one in failed(record) if one.batch_size > ran]
    bounds = [law.largest_estimate, FARTHEST * ran, goal.max_batch or FARTHEST * ran, *above]
    estimate = min(bounds)
    return (estimate, "memory law") if estimate > ran else (ran, "ran")
