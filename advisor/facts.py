"""Plain facts of a record that every decision starts from."""

from __future__ import annotations

from math import exp, log
from statistics import fmean

import msgspec

from ..records import Memory, Purpose, RunRecord, Spread, Trial, Turns
from ..spread import inverse, scaled
from .graph_pools import captures_graphs, overruled
from .rounds import speeds

WANDERING = 0.15
"""Logs of the speed of a whole machine wander by about so much within a run; see `_compared`."""


def own_size(record: RunRecord) -> int | None:
    """The script's own batch size."""
    return record.discovery.native_batch_size if record.discovery is not None else None


def ran(record: RunRecord) -> list[Trial]:
    """Trials in which the asked size arrived and the optimizer stepped; tails left out."""
    return [one for one in record.trials if one.ran and one.purpose != "tail"]


def timed(record: RunRecord) -> list[Trial]:
    """Those of `ran` that measured time."""
    return [one for one in ran(record) if one.kind == "timed" and one.samples_per_s is not None]


def failed(record: RunRecord) -> list[Trial]:
    """Trials that did not run; Ctrl-C, tails and comparisons that the script cut short left out.

    So are refusals beside the graphs of other sizes, where the size ran without them afterwards.
    """
    graphs = captures_graphs(record)
    return [
        one
        for one in record.trials
        if not one.ran
        and one.purpose != "tail"
        and one.outcome != "interrupted"
        and not one.cut_short
        and not (graphs and overruled(record, one))
    ]


def too_short_for_turns(record: RunRecord) -> bool:
    """Whether the script ended before a comparison of its sizes did."""
    return any(one.cut_short for one in record.trials)


def smallest_bad(record: RunRecord) -> int | None:
    """The size at and above which nothing is tried, `None` when nothing failed.

    Memory that was refused bounds all larger sizes. Any other failure bounds them only when
    nothing larger ran: a script may need a certain size and fail below it.
    """
    largest = max((one.batch_size for one in ran(record)), default=0)
    return min(
        (
            one.batch_size
            for one in failed(record)
            if one.outcome == "out_of_memory" or one.batch_size > largest
        ),
        default=None,
    )


def known_bad(record: RunRecord, size: int) -> bool:
    """Whether a size failed, or memory was refused to a smaller one; it may have run before.

    A script that ended says nothing about the size at which it did.
    """
    bad = smallest_bad(record)
    return (bad is not None and size >= bad) or any(
        one.batch_size == size and one.outcome != "script_ended" for one in failed(record)
    )


def over_target(record: RunRecord, size: int) -> bool:
    """Whether a size is known to take more memory than a recommended one may."""
    target, memory = target_bytes(record), trusted_memory(record).get(size)
    return target is not None and memory is not None and memory.peak_bytes > target


def ruled_out(record: RunRecord, size: int) -> bool:
    """Whether a size can be neither recommended nor tried again."""
    return known_bad(record, size) or over_target(record, size)


def usable(record: RunRecord, size: int) -> bool:
    """Whether a size that ran may be recommended."""
    return not ruled_out(record, size) and can_be_delivered(record, size)


def undisturbed(trials: list[Trial]) -> list[Trial]:
    """Those without doubts, or all where each has one."""
    return [one for one in trials if not one.doubts] or trials


def fastest_of(trials: list[Trial]) -> dict[int, Trial]:
    """For each size its fastest undisturbed trial, in order of size.

    What disturbs a measurement only ever slows it down, so of two the faster is nearer the truth.
    """
    by_size: dict[int, list[Trial]] = {}
    for trial in trials:
        by_size.setdefault(trial.batch_size, []).append(trial)
    return {size: max(undisturbed(by_size[size]), key=throughput) for size in sorted(by_size)}


def throughput(trial: Trial) -> float:
    """Samples per second, 0 where no time was measured."""
    return trial.samples_per_s.median if trial.samples_per_s is not None else 0.0


def best_timed(record: RunRecord) -> dict[int, Trial]:
    """The trial that speaks for each size, of search and confirmation, in order of size."""
    return _compared(timed(record), turns_of(record))


def was_compared(record: RunRecord, size: int) -> bool:
    """Whether a size took turns with others."""
    return any(size in one.sizes for one in turns_of(record))


def searched(record: RunRecord) -> dict[int, Trial]:
    """The same of the search alone, without sizes that may not be recommended.

    What the search found does not change while it is being confirmed, except for sizes that are
    refused by then or turn out to take too much memory.
    """
    found = _compared(searched_trials(record), turns_of(record, "search"))
    return {size: one for size, one in found.items() if usable(record, size)}


def searched_trials(record: RunRecord) -> list[Trial]:
    """The trials of the search that measured one size's time."""
    return [one for one in timed(record) if one.purpose == "search"]


def turns_of(record: RunRecord, purpose: Purpose | None = None) -> list[Turns]:
    """What sizes measured that took turns, of one purpose or of all."""
    return [
        one.turns for one in ran(record) if one.turns is not None and purpose in (None, one.purpose)
    ]


def _compared(trials: list[Trial], turns: list[Turns]) -> dict[int, Trial]:
    """`fastest_of` the trials of one size; where sizes took turns, with the times of these.

    By then the machine may be faster or slower for good. Then their common level is that of their
    own trials, so that they can stand beside sizes that took no turns.
    """
    found = fastest_of(trials)
    # A script that accumulates up to a number of samples takes fewer batches of a larger size.
    met = {size for one in turns for size in one.sizes}
    micro_batches = next(
        (one.micro_batches or 1 for one in found.values() if one.batch_size in met), 1
    )
    rates = {
        size: scaled(one, found[size].arrived_share)
        for size, one in speeds(turns, micro_batches).items()
        if size in found
    }
    if not rates:
        return found
    level = fmean(
        log(throughput(one) / rates[one.batch_size].median)
        for one in undisturbed([one for one in trials if one.batch_size in rates])
    )
    for size, rate in rates.items():
        samples_per_s = scaled(rate, exp(level)) if abs(level) > WANDERING else rate
        per_step = size * (found[size].micro_batches or 1) * found[size].arrived_share
        step_s = inverse(samples_per_s, per_step)
        found[size] = msgspec.structs.replace(
            found[size], samples_per_s=samples_per_s, step_s=step_s
        )
    return found


def can_be_delivered(record: RunRecord, size: int) -> bool:
    """Whether the script's own loader would ever yield a batch of this size."""
    num_samples = record.discovery.primary.num_samples if record.discovery is not None else None
    return num_samples is None or size <= num_samples


def trusted_memory(record: RunRecord) -> dict[int, Memory]:
    """Peak memory by size, in order of size.

    In one process a size that comes after a larger one sees what that one left behind (heap,
    cached blocks), so readings without such a predecessor are preferred, and of these the ones with
    the least in graphs of sizes before. A backend without counters reads 0; that is no reading.
    """
    clean: dict[int, Memory] = {}
    other: dict[int, Memory] = {}
    largest: dict[int, int] = {}

    def rank(memory: Memory) -> tuple[int, int]:
        return -(memory.earlier_pools_bytes or 0), memory.peak_bytes

    for trial in record.trials:
        before = largest.get(trial.worker, 0)
        largest[trial.worker] = max(before, trial.batch_size)
        if not trial.ran or trial.memory is None or trial.purpose == "tail":
            continue
        if trial.memory.peak_bytes <= 0:
            continue
        if trial.batch_size < before:
            other[trial.batch_size] = trial.memory
        elif trial.batch_size not in clean or rank(clean[trial.batch_size]) < rank(trial.memory):
            clean[trial.batch_size] = trial.memory
    return dict(sorted({**other, **clean}.items()))


MAX_WIDENING = 1.5
"""Beyond this, room for longer batches is not guessed but looked for, with `--worst-case`."""


def target_bytes(record: RunRecord) -> int | None:
    """What a recommended size may take: the capacity less the margin, and less what a batch as
    long as the longest one seen would need more.
    """
    if record.device is None:
        return None
    room = record.device.capacity_bytes * (1 - record.goal.margin)
    return int(room / input_widening(record))


def why_unordered(record: RunRecord) -> str:
    """Why trials did not begin with the longest samples, as `--worst-case` asked; empty if so."""
    found = record.discovery
    if not record.goal.worst_case or found is None:
        return ""
    if found.door != "loader":
        return "only a DataLoader's samples can be ordered, and sizes went in another way"
    return found.unavailable.get("worst_case", "")


def input_widening(record: RunRecord) -> float:
    """The longest batch that was seen over the longest of a usual trial, at least 1.

    A peak is that of the longest batch of its own trial; the longest of all trials may come to
    any of them. Where `--worst-case` could be kept, every trial began with the longest samples.
    """
    if record.goal.worst_case and not why_unordered(record):
        return 1.0
    seen = sorted(one.inputs.largest for one in ran(record) if one.inputs is not None)
    if not seen:
        return 1.0
    return min(MAX_WIDENING, seen[-1] / seen[(len(seen) - 1) // 2])


def pooled(trials: list[Trial], field: str) -> Spread | None:
    """One spread for several trials of one size: mean of the medians, envelope of intervals."""
    spreads = [one for one in (getattr(trial, field) for trial in trials) if one is not None]
    if not spreads:
        return None
    return Spread(
        median=sum(one.median for one in spreads) / len(spreads),
        low=min(one.low for one in spreads),
        high=max(one.high for one in spreads),
        num_samples=sum(one.num_samples for one in spreads),
        confidence=min(one.confidence for one in spreads),
    )


def confirmations(record: RunRecord) -> list[Trial]:
    """The latest series of confirm trials that ran in one process, in order.

    Behind the template door each size has a process of its own, and all of them are the series; so
    it is where captured graphs of two sizes do not fit into one.
    """
    apart = record.discovery is not None and record.discovery.door == "template"
    apart = apart or captures_graphs(record)
    series: list[Trial] = []
    for trial in record.trials:
        if trial.purpose != "confirm" or not trial.ran or trial.kind == "turns":
            continue
        if series and series[-1].worker != trial.worker and not apart:
            series = []
        series.append(trial)
    return series
