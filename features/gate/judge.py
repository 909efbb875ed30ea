"""Decides: whether runs can be compared, and what their intervals say of conditions. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePath

from ...records import Discovery, RunRecord, shared_size
from .evidence import Run, Taken, Values, taken, timed_sizes, values_of
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
        size: that is compared; without one the script's own if all runs timed it, else the largest
            that they did.
    """
    runs = taken(before, after)
    every = [*before, *after]
    reasons = _not_the_same(every)
    timed = [timed_sizes(run.record) for run in every]
    chosen = shared_size(_wanted(every, size), timed) if size is None else size
    if chosen is None or any(chosen not in sizes for sizes in timed):
        reasons += _sizes_differ(runs, timed, size)
    elif not reasons:
        reasons += _steps_differ(every, chosen)
    results: list[Result] = []
    if not reasons and chosen is not None:
        asked: list[tuple[Measure, Condition | None]] = [
            (each.measure, each) for each in conditions
        ]
        for measure, condition in asked or [(one, None) for one in ALWAYS]:
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
        rounds=runs.num_shared,
        in_turns=runs.in_turns,
        differs=_differs(before[0].record, after[0].record),
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
    if condition is None:
        outcome: Outcome = "more" if ratio.low > 1 else "less" if ratio.high < 1 else "cannot tell"
    else:
        outcome = outcome_of(condition, ratio.low, ratio.high)
    limit = 1.0 if condition is None else 1 + condition.limit
    return Result(
        measure=measure,
        condition=condition,
        before=values.spreads[0],
        after=values.spreads[1],
        ratio=ratio,
        outcome=outcome,
        enough_runs=values.enough_runs(limit) if outcome == "cannot tell" else None,
    )


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


def _wanted(runs: Sequence[Run], size: int | None) -> list[int]:
    """The sizes that are asked for: one, or the script's own after the change and before it."""
    if size is not None:
        return [size]
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


def _sizes_differ(runs: Taken, timed: Sequence[set[int]], size: int | None) -> list[str]:
    """Says which sizes were timed where no size, or not the one that was asked for, is in all."""
    paths = [run.path for run in (*runs.before, *runs.after)]
    if size is not None:
        lacking = [str(path) for path, sizes in zip(paths, timed, strict=True) if size not in sizes]
        return [f"batch size {size} was not timed in {', '.join(lacking)}"]
    empty = [
        run for run, sizes in zip((*runs.before, *runs.after), timed, strict=True) if not sizes
    ]
    if empty:
        return [
            f"{run.path} timed no batch size: {run.record.stop_reason or run.record.state}"
            for run in empty
        ]
    texts = {path: _listed(sizes) for path, sizes in zip(paths, timed, strict=True)}
    first = next(iter(texts.items()))
    other = next((each for each in reversed(texts.items()) if each[1] != first[1]), first)
    timed_both = f"{first[0]} timed {first[1]}, {other[0]} timed {other[1]}"
    return [f"the batch sizes are not the same: {timed_both}"]


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


def _differs(before: RunRecord, after: RunRecord) -> tuple[tuple[str, str, str], ...]:
    pairs = [(label, _said(before, label), _said(after, label)) for label in CIRCUMSTANCES]
    return tuple(row for row in pairs if row[1] != row[2])


def _said(record: RunRecord, label: str) -> str:
    texts = {
        "script": PurePath(record.script.path).name,
        "arguments": " ".join(record.script.arguments),
    }
    versions = record.versions
    if versions is not None:
        texts |= {
            "torch": versions.torch,
            "CUDA": versions.cuda or "",
            "driver": versions.driver or "",
            "Python": versions.python,
            "batchadvisor": versions.batchadvisor,
        }
    if record.discovery is not None:
        texts |= _of_the_loop(record.discovery)
    return texts.get(label, "")


def _of_the_loop(discovery: Discovery) -> dict[str, str]:
    return {
        "own batch size": discovery.why_own_unknown or str(discovery.native_batch_size),
        "data workers": str(discovery.primary.num_workers),
    }
