"""Two runs side by side: what changed beyond what the intervals allow."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from math import exp
from statistics import median

import msgspec

from ..records import Advice, Change, Choice, Comparison, Difference, RunRecord, Spread, shared_size
from ..spread import ratio_of
from .measured.measurements import Measurements
from .measured.speeds import readings_of
from .measured.trials import undisturbed

MEMORY_NOISE = 0.02
"""Peaks that differ by less are not said to differ: they hold no interval of their own."""
LABELS = (
    "script", "device", "capacity", "torch", "CUDA", "driver", "Python", "batchadvisor",
    "own batch size", "data workers", "ranks", "goal",
)  # fmt: skip


def compare(
    before: RunRecord, after: RunRecord, advice_before: Advice, advice_after: Advice
) -> Comparison:
    """Throughput and memory of two runs, size by size and at what each recommends.

    The intervals are those within each run. What changes from run to run (clocks, neighbours on
    the machine) is not in them; how much that may be, the readings tell that each run took of one
    size at several moments.
    """
    if before.script.digest is not None and before.script.digest == after.script.digest:
        # The same text, wherever the file was.
        script = msgspec.structs.replace(before.script, path=after.script.path)
        before = msgspec.structs.replace(before, script=script)
    first, second = Measurements.of(before), Measurements.of(after)
    moved = max(
        (ratio for ratio in map(_moved, (first, second)) if ratio is not None), default=None
    )
    rates_before, rates_after = _rates(first, advice_before), _rates(second, advice_after)
    tokens_before, tokens_after = _real_tokens(advice_before), _real_tokens(advice_after)
    peaks_before = {size: memory.peak_bytes for size, memory in first.trusted_memory.items()}
    peaks_after = {size: memory.peak_bytes for size, memory in second.trusted_memory.items()}
    every_before = rates_before.keys() | peaks_before.keys()
    every_after = rates_after.keys() | peaks_after.keys()
    sizes = []
    for size in sorted(every_before & every_after):
        if size in rates_before and size in rates_after:
            sizes.append(_rate((size, size), rates_before[size], rates_after[size], moved))
        if size in tokens_before and size in tokens_after:
            sizes.append(_tokens((size, size), tokens_before[size], tokens_after[size], moved))
        if size in peaks_before and size in peaks_after:
            sizes.append(_peak(size, peaks_before[size], peaks_after[size]))
    recommended = _recommended(advice_before.recommended, advice_after.recommended, moved)
    return Comparison(
        recommended=recommended,
        like_for_like=_like_for_like(recommended, sizes, (rates_before, rates_after)),
        sizes=tuple(sizes),
        only_before=tuple(sorted(every_before - every_after)),
        only_after=tuple(sorted(every_after - every_before)),
        differs=differing(_told(before), _told(after), LABELS),
        same_device=_device(before) == _device(after),
        same_script=before.script.path == after.script.path,
        moved=moved,
        tokens=_recommended_tokens(recommended, tokens_before, tokens_after, moved),
    )


def _real_tokens(advice: Advice) -> dict[int, Spread]:
    """Real tokens per second by size, as the advice has them."""
    return {
        choice.batch_size: choice.real_tokens_per_s
        for choice in advice.sizes
        if choice.real_tokens_per_s is not None
    }


def _recommended_tokens(
    recommended: Difference | None,
    before: dict[int, Spread],
    after: dict[int, Spread],
    moved: float | None,
) -> Difference | None:
    if recommended is None:
        return None
    sizes = (recommended.batch_before, recommended.batch_after)
    if sizes[0] not in before or sizes[1] not in after:
        return None
    return _tokens(sizes, before[sizes[0]], after[sizes[1]], moved)


def _tokens(
    sizes: tuple[int, int], before: Spread, after: Spread, moved: float | None
) -> Difference:
    return msgspec.structs.replace(_rate(sizes, before, after, moved), quantity="real_tokens_per_s")


def _moved(measurements: Measurements) -> float | None:
    """The largest ratio of two readings of one size, each of a trial of its own or of turns."""
    trials = [
        *undisturbed(measurements.timed),
        *(trial for trial in measurements.ran if trial.turns is not None),
    ]
    by_trial: defaultdict[tuple[int, int], list[float]] = defaultdict(list)
    for reading in readings_of(trials):
        by_trial[reading.size, reading.trial].append(reading.rate)
    rates: defaultdict[int, list[float]] = defaultdict(list)
    for (size, _), values in by_trial.items():
        rates[size].append(median(values))
    pairs = [max(values) - min(values) for values in rates.values() if len(values) > 1]
    return exp(max(pairs)) if pairs else None


def _rates(measurements: Measurements, advice: Advice) -> dict[int, Spread]:
    """Throughput by size: what the advice says of its sizes, else the best trial."""
    rates = {size: trial.samples_per_s for size, trial in measurements.best_timed.items()}
    for choice in (advice.native, advice.largest, advice.fastest, advice.recommended):
        if choice is not None and choice.samples_per_s is not None:
            rates[choice.batch_size] = choice.samples_per_s
    return {size: rate for size, rate in rates.items() if rate is not None}


def _recommended(
    before: Choice | None, after: Choice | None, moved: float | None
) -> Difference | None:
    if before is None or after is None:
        return None
    if before.samples_per_s is None or after.samples_per_s is None:
        return None
    sizes = (before.batch_size, after.batch_size)
    return _rate(sizes, before.samples_per_s, after.samples_per_s, moved)


def _like_for_like(
    recommended: Difference | None,
    sizes: list[Difference],
    rates: tuple[dict[int, Spread], dict[int, Spread]],
) -> Difference | None:
    """Compares one size that both runs timed; `None` where they recommend the same size."""
    if recommended is None or recommended.batch_before == recommended.batch_after:
        return None
    size = shared_size((recommended.batch_before, recommended.batch_after), rates)
    own = (
        difference
        for difference in sizes
        if difference.quantity == "samples_per_s" and difference.batch_before == size
    )
    return next(own, None)


def _rate(sizes: tuple[int, int], before: Spread, after: Spread, moved: float | None) -> Difference:
    beyond = moved or 1.0
    change: Change = "cannot tell"
    ratio = low = high = None
    if before.low > 0 and before.median > 0:
        grown = ratio_of(after, before)
        ratio, low, high = grown.median, grown.low, grown.high
        if before.is_interval and after.is_interval:
            change = "more" if low > beyond else "less" if high * beyond < 1 else "cannot tell"
    return Difference(
        quantity="samples_per_s",
        batch_before=sizes[0],
        batch_after=sizes[1],
        before=before,
        after=after,
        ratio=ratio,
        ratio_low=low,
        ratio_high=high,
        change=change,
    )


def _peak(size: int, before: int, after: int) -> Difference:
    ratio = after / before if before > 0 else None
    change: Change = "not known"
    if ratio is not None:
        change = "cannot tell"
        if abs(ratio - 1) > MEMORY_NOISE:
            change = "more" if ratio > 1 else "less"
    return Difference(
        quantity="peak_bytes",
        batch_before=size,
        batch_after=size,
        before=float(before),
        after=float(after),
        ratio=ratio,
        change=change,
    )


def _device(record: RunRecord) -> tuple[str, str] | None:
    return None if record.device is None else (record.device.kind, record.device.name)


def differing(
    before: Mapping[str, str], after: Mapping[str, str], labels: Sequence[str]
) -> tuple[tuple[str, str, str], ...]:
    """The labels, in order, under which two runs tell another text, with both texts."""
    rows = ((label, before.get(label, ""), after.get(label, "")) for label in labels)
    return tuple(row for row in rows if row[1] != row[2])


def _told(record: RunRecord) -> dict[str, str]:
    device, discovery = record.device, record.discovery
    goal = record.goal
    texts = {
        "script": " ".join([record.script.path, *record.script.arguments]),
        "goal": f"{goal.kind}, tolerance {goal.tolerance:g}, margin {goal.margin:g}",
    }
    if device is not None:
        texts["device"] = f"{device.name} ({device.kind})"
        # In whole GiB: what is free on a machine is never the same twice.
        texts["capacity"] = f"{device.capacity_bytes / 2**30:.0f} GiB"
    texts |= software(record)
    if record.distribution is not None:
        texts["ranks"] = str(record.distribution.world_size)
    if discovery is not None:
        own = discovery.why_own_unknown and "unknown"
        texts["own batch size"] = own or str(discovery.native_batch_size)
        texts["data workers"] = str(discovery.primary.num_workers)
    return texts


def software(record: RunRecord) -> dict[str, str]:
    """The versions that a run was taken with, by what they are called; empty where unknown."""
    versions = record.versions
    if versions is None:
        return {}
    return {
        "torch": versions.torch,
        "CUDA": versions.cuda or "",
        "driver": versions.driver or "",
        "Python": versions.python,
        "batchadvisor": versions.batchadvisor,
    }
