"""Decides: whether runs can be compared, and what their intervals say of conditions. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePath

from ...advisor.compare import differing, software
from ...records import Discovery, RunRecord, shared_size
from .evidence import Run, Values, known_sizes, taken, values_of
from .records import Condition, Gate, Measure, Outcome, Result, Verdict

ALWAYS: tuple[Measure, ...] = ("step_time", "peak_memory")
"""Measures that are compared where no condition names any."""
BROKEN, INCOMPARABLE = 1, 3
"""Exit codes beside 0."""
CIRCUMSTANCES = ("script", "arguments", "own batch size", "torch", "CUDA", "driver", "Python",
                 "batchadvisor", "data workers")  # fmt: skip
"""What may differ, and is said."""


def judge(
    before: Sequence[Run],
    after: Sequence[Run],
    conditions: Sequence[Condition] = (),
    size: int | None = None,
) -> Gate:
    """Compares the runs of two sides at one size.

    Args:
        size: that is compared; without one the script's own if all runs have it, else the largest
            that they have in common.
    """
    runs = taken(before, after)
    every = [*before, *after]
    reasons = _not_the_same(every)
    asked: list[tuple[Measure, Condition | None]] = [(each.measure, each) for each in conditions]
    asked = asked or [(measure, None) for measure in ALWAYS]
    timed = any(measure != "peak_memory" for measure, _ in asked)
    known = [known_sizes(run.record, timed=timed) for run in every]
    chosen = shared_size(_own(every), known) if size is None else size
    if chosen is None or any(chosen not in sizes for sizes in known):
        reasons += _sizes_differ(every, known, size, "timed" if timed else "ran")
    elif not reasons:
        reasons += _steps_differ(every, chosen)
    results: list[Result] = []
    if not reasons and chosen is not None:
        for measure, condition in asked:
            values = values_of(measure, runs, chosen)
            if isinstance(values, Values):
                results.append(_result(measure, condition, values))
            elif condition is not None:
                reasons.append(values)
    verdict, code = _verdict(results, reasons, conditions)
    device = every[0].record.device
    return Gate(
        verdict=verdict,
        exit_code=code,
        reasons=tuple(reasons),
        batch_size=chosen,
        device="" if device is None else device.name,
        runs_before=len(before),
        runs_after=len(after),
        rounds=len(runs.rounds),
        differs=differing(_told(before[0].record), _told(after[0].record), CIRCUMSTANCES),
        results=tuple(results),
    )


def outcome_of(condition: Condition, low: float, high: float) -> Outcome:
    """What an interval of ratios says of a condition.

    >>> slower = Condition(text="step_time>+5%", measure="step_time", above=True, limit=0.05)
    >>> [outcome_of(slower, *ends) for ends in ((1.06, 1.08), (1.01, 1.08), (0.99, 1.02))]
    ['exceeded', 'cannot tell', 'kept']
    """
    limit = 1 + condition.limit
    beyond, within = (
        (low > limit, high <= limit) if condition.above else (high < limit, low >= limit)
    )
    return "exceeded" if beyond else "kept" if within else "cannot tell"


def _result(measure: Measure, condition: Condition | None, values: Values) -> Result:
    ratio = values.ratio
    outcome: Outcome = "cannot tell"
    if values.has_interval and condition is not None:
        outcome = outcome_of(condition, ratio.low, ratio.high)
    elif values.has_interval:
        outcome = "more" if ratio.low > 1 else "less" if ratio.high < 1 else "cannot tell"
    limit = 1.0 if condition is None else 1 + condition.limit
    return Result(
        measure=measure,
        condition=condition,
        before=values.before,
        after=values.after,
        ratio=ratio,
        has_interval=values.has_interval,
        outcome=outcome,
        enough_rounds=_enough_rounds(measure, values, limit) if outcome == "cannot tell" else None,
    )


def _enough_rounds(measure: Measure, values: Values, limit: float) -> int | None:
    """No round narrows what peaks leave open: it holds all of them, and what is no difference."""
    return None if measure == "peak_memory" else values.enough_rounds(limit)


def _verdict(
    results: Sequence[Result], reasons: Sequence[str], conditions: Sequence[Condition]
) -> tuple[Verdict, int]:
    outcomes = {each.outcome for each in results}
    if "exceeded" in outcomes:
        return "fails", BROKEN
    if reasons:
        return "cannot be compared", INCOMPARABLE
    if not conditions:
        return "compared", 0
    return ("cannot tell" if "cannot tell" in outcomes else "passes"), 0


def _own(runs: Sequence[Run]) -> list[int]:
    """The script's own sizes, after the change first."""
    found = [run.record.discovery for run in reversed(runs)]
    return [each.native_batch_size for each in found if each is not None]


def _not_the_same(runs: Sequence[Run]) -> list[str]:
    """Says on what the runs were taken where that is not one machine and device."""
    reasons = []
    for what, told in (("device", _device), ("machine", _machine), ("ranks", _ranks)):
        said = {run.path: told(run.record) for run in runs}
        known = {path: text for path, text in said.items() if text}
        if len(set(known.values())) > 1:
            first = next(iter(known.items()))
            other = next(each for each in known.items() if each[1] != first[1])
            reasons.append(
                f"the {what} is not the same: {first[1]} in {first[0]}, {other[1]} in {other[0]}"
            )
    return reasons


def _device(record: RunRecord) -> str:
    device = record.device
    if device is None:
        return ""
    cores = f", {device.num_cores} cores" if device.kind == "cpu" and device.num_cores else ""
    return f"{device.name} ({device.kind}{cores}, {device.total_bytes / 2**30:.0f} GiB)"


def _machine(record: RunRecord) -> str:
    return record.machine or ""


def _ranks(record: RunRecord) -> str:
    return str(record.distribution.world_size if record.distribution is not None else 1)


def _sizes_differ(
    runs: Sequence[Run], known: Sequence[set[int]], size: int | None, verb: str
) -> list[str]:
    """Says which sizes there are, where no size, or not the one that was asked for, is in all.

    Args:
        verb: what the sizes did: `timed` or `ran`.
    """
    listed = [(run, _listed(sizes)) for run, sizes in zip(runs, known, strict=True)]
    empty = [run for run, sizes in listed if not sizes]
    if empty:
        return [
            f"{run.path} {verb} no batch size: {run.record.stop_reason or run.record.state}"
            for run in empty
        ]
    if size is not None:
        lacking = [
            str(run.path) for run, sizes in zip(runs, known, strict=True) if size not in sizes
        ]
        return [f"{', '.join(lacking)} {verb} no batch size {size}"]
    first, *others = listed
    other = next((each for each in reversed(others) if each[1] != first[1]), first)
    both = f"{first[0].path} {verb} {first[1]}, {other[0].path} {verb} {other[1]}"
    return [f"the batch sizes are not the same: {both}"]


def _listed(sizes: set[int]) -> str:
    return ", ".join(map(str, sorted(sizes)))


def _steps_differ(runs: Sequence[Run], size: int) -> list[str]:
    """Says how many batches an optimizer step takes where that changed: it is another step."""
    counts = {
        run.path: {
            trial.micro_batches or 1
            for trial in run.record.trials
            if trial.ran and trial.batch_size == size
        }
        for run in runs
    }
    first, *others = counts.items()
    other = next((each for each in others if each[1] != first[1]), None)
    if other is None:
        return []
    batches = f"{_listed(first[1])} batches in {first[0]}, {_listed(other[1])} in {other[0]}"
    return [f"an optimizer step is not the same at batch size {size}: {batches}"]


def _told(record: RunRecord) -> dict[str, str]:
    texts = {
        "script": PurePath(record.script.path).name,
        "arguments": " ".join(record.script.arguments),
    }
    texts |= software(record)
    if record.discovery is not None:
        texts |= _of_the_loop(record.discovery)
    return texts


def _of_the_loop(discovery: Discovery) -> dict[str, str]:
    return {
        "own batch size": discovery.why_own_unknown or str(discovery.native_batch_size),
        "data workers": str(discovery.primary.num_workers),
    }
