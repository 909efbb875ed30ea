"""The last word: finalists measured again in a fresh process, interleaved, then the tail."""

from __future__ import annotations

from collections import defaultdict
from math import prod
from statistics import median

import msgspec

from ..records import RunRecord, Trial, TrialRequest, Turns
from . import clean_size
from .cost import Budget
from .energy import samples_per_joule, thriftiest
from .facts import (
    best_timed,
    confirmations,
    own_size,
    pooled,
    ran,
    ruled_out,
    searched,
    target_bytes,
    throughput,
    trusted_memory,
    turns_of,
    undisturbed,
    usable,
)
from .graph_pools import captures_graphs
from .knee import fastest, knee
from .requests import fit_request, timed_request
from .rounds import ratio
from .sizes import allowed, has_batch_norm
from .tail import last_batch
from .turns import comparison, field

ROUNDS = 2
"""Each finalist is measured this often, in turn."""
MAX_DISTURBED = 2
"""So many disturbed trials of a size are measured again."""
MAX_CONFIRMATIONS = 12
DRIFT = 0.03
"""What drift still moves a ratio of a few readings in turn by on a CPU."""
DISAGREEMENT = 0.15
"""Search and confirmation that differ by more, beyond their intervals, are a finding."""
_AGAIN = "finalists again, interleaved, in a fresh process"
STEP_UP = 1.3
"""How much larger the next candidate is when a size is turned down."""


def finalists(record: RunRecord) -> tuple[int, ...]:
    """The recommended size first, then what it is compared with. Empty when nothing ran.

    A size that turned out too slow in the confirmation makes way for the next larger one, and one
    that was taken for the clean end of its epochs for the best.
    """
    if record.goal.kind == "knee":
        return _knee_finalists(record)
    best = best_of(record)
    if best is None:
        return ()
    size = _clean_instead(record, best)
    if record.goal.kind == "memory":
        return (size,)
    if size != best:
        return (size, best)
    other = fastest(record) if record.goal.kind == "energy" else _runner_up(record, best)
    if other is None or other == best:
        return (best,)
    return (other, best) if _was_slower(record, best, other) else (best, other)


def _was_slower(record: RunRecord, best: int, other: int) -> bool:
    """Whether the fresh process clearly found the runner-up faster than the best of the search."""
    if record.goal.kind != "throughput" or not _measured_enough(record, best, other):
        return False
    # Less is not worth a change of mind.
    return _clearly_below(record, best, other, 1 - clean_size.SPEED_COST)


def best_of(record: RunRecord) -> int | None:
    """The best size of a goal other than `knee`, however its epochs end."""
    if record.goal.kind == "memory":
        return max(_fitting(record), default=None)
    return thriftiest(record) if record.goal.kind == "energy" else fastest(record)


def passed_over(record: RunRecord) -> int | None:
    """The best size where a clean one near it was taken instead; see clean_size.py."""
    if record.goal.kind == "knee":
        return None
    best = best_of(record)
    return best if best is not None and _clean_instead(record, best) != best else None


def next_clean_size(record: RunRecord) -> TrialRequest | None:
    """A clean size near the best to try when a search for speed is over."""
    return clean_size.next_clean(record, best_of(record))


def _clean_instead(record: RunRecord, best: int) -> int:
    if record.goal.kind == "memory":
        worth = {size: float(size) for size in _fitting(record)}
    else:
        worth = clean_size.worth_of(record)
    size = clean_size.preferred(record, best, worth)
    return best if size != best and _costs_too_much(record, size, best) else size


def _costs_too_much(record: RunRecord, size: int, best: int) -> bool:
    """Whether the confirmation says that a size costs more than the tolerance."""
    if record.goal.kind == "memory" or not _measured_enough(record, size, best):
        return False
    floor = 1 - clean_size.cost_of(record)
    if record.goal.kind == "energy":
        mine, theirs = (
            [
                value
                for one in _of(confirmations(record), which)
                if (value := samples_per_joule(one)) is not None
            ]
            for which in (size, best)
        )
        return bool(mine and theirs) and median(mine) < floor * median(theirs)
    return _clearly_below(record, size, best, floor)


def _knee_finalists(record: RunRecord) -> tuple[int, ...]:
    best = fastest(record)
    if best is None:
        return ()
    size = knee(record)
    assert size is not None
    rival = best if size < best else _fastest_above(record, size)
    if rival is None:
        return (size,)
    size = _after_rejections(record, size, rival)
    return (size,) if size >= rival else (size, rival)


def ratio_to(record: RunRecord, size: int, other: int) -> tuple[float, float, float] | None:
    """Throughput of `size` over that of `other` in the confirmation: middle, low, high.

    They were measured in turn in one process: a step each where they could take turns; else
    neighbouring trials are paired, so that slow drift of the machine cancels out. Disturbed
    trials count only where there are no others.
    """
    compared = ratio(_turns(record), size, other)
    if compared is not None:
        return compared.median, compared.low, compared.high
    orders = _neighbours(record, size, other)
    if not orders:
        return None
    middle = prod(median(one) for one in orders) ** (1 / len(orders))
    every = [ratio for one in orders for ratio in one]
    return middle, min(every), max(every)


def _neighbours(record: RunRecord, size: int, other: int) -> list[list[float]]:
    """Ratios of neighbouring trials, size first and other first apart.

    In equal parts, what drift adds to one order it takes from the other.
    """
    series = confirmations(record)
    mine, theirs = undisturbed(_of(series, size)), undisturbed(_of(series, other))
    if not mine or not theirs or min(map(throughput, theirs)) <= 0:
        return []
    ratios: defaultdict[int, list[float]] = defaultdict(list)
    for one in mine:
        for two in theirs:
            ratios[one.ordinal - two.ordinal].append(throughput(one) / throughput(two))
    return [ratios[one] for one in (-1, 1) if one in ratios] or list(ratios.values())


def num_comparisons(record: RunRecord, size: int, other: int) -> int:
    """How many readings of each `ratio_to` rests on."""
    compared = ratio(_turns(record), size, other)
    if compared is not None:
        return compared.num_samples
    series = confirmations(record)
    readings = (len(undisturbed(_of(series, one))) for one in (size, other))
    return min(*readings, sum(map(len, _neighbours(record, size, other))))


def _of(series: list[Trial], size: int) -> list[Trial]:
    return [one for one in series if one.batch_size == size]


def next_confirmation(record: RunRecord, budget: Budget) -> TrialRequest | None:
    """The next trial of the confirmation, `None` when it is complete."""
    sizes = finalists(record)
    if not sizes or _nothing_to_confirm(record, sizes):
        return None
    sizes = _with_own(record, sizes)
    series = confirmations(record)
    counts = {size: _rounds(series, size) for size in sizes}
    turns = _in_turn(record, sizes) if all(counts.values()) else None
    if turns is not None and turns.turns is not None and budget.trial_s(turns) <= budget.left_s:
        return turns
    met = any(set(sizes) <= set(one.sizes) for one in _turns(record))
    rounds = ROUNDS if len(sizes) > 1 and not met else 1
    if len([one for one in record.trials if one.purpose == "confirm"]) >= MAX_CONFIRMATIONS:
        return None
    apart = not _graphs_fit_together(record, sizes)
    # Two steps show whether it fits; only where sizes were timed is there a time to confirm.
    only_fits = record.goal.kind == "memory" and not record.goal.sizes
    wanting = [
        _confirming(
            fit_request(size, _AGAIN)
            if only_fits
            else msgspec.structs.replace(timed_request(record, size, _AGAIN), profile=False),
            fresh=not series or apart or record.trials[-1].worker != series[-1].worker,
        )
        for size in sizes
        if counts[size] < rounds
    ]
    # Once each within all the time there is; further rounds are worth what the budget has left.
    wanting = [
        one
        for one in wanting
        if budget.trial_s(one) <= (budget.left_s if counts[one.batch_size] else budget.last_s)
    ]
    # In turn also where trials are disturbed: neighbours are compared.
    return min(wanting, key=lambda one: len(_of(series, one.batch_size)), default=None)


def _graphs_fit_together(record: RunRecord, sizes: tuple[int, ...]) -> bool:
    """Whether the pools of captured graphs leave room for all of them in one process."""
    target, memory = target_bytes(record), trusted_memory(record)
    if target is None or not captures_graphs(record):
        return True
    return sum(memory[size].peak_bytes for size in sizes if size in memory) <= target


def _with_own(record: RunRecord, sizes: tuple[int, ...]) -> tuple[int, ...]:
    """The finalists, with the script's own size for a rival where it has met the first nowhere.

    On a CPU sizes that were timed apart differ by what the machine wanders. What steps are too long
    to take turns would find out in the fresh process about the rival, it must about the own size:
    without that none is recommended.
    """
    own, able = own_size(record), field(record)
    if own is None or own in sizes or record.device is None or record.device.kind != "cpu":
        return sizes
    met = any({sizes[0], own} <= set(one.sizes) for one in turns_of(record))
    can_meet = {sizes[0], own} <= set(able)
    timed = best_timed(record)
    if met or can_meet or not {sizes[0], own} <= set(timed) or not usable(record, own):
        return sizes
    return sizes[0], own


def _nothing_to_confirm(record: RunRecord, sizes: tuple[int, ...]) -> bool:
    """Whether the script's own size is all that was timed: then nothing is going to change."""
    return sizes == (own_size(record),) and set(best_timed(record)) == set(sizes)


def _confirming(request: TrialRequest, *, fresh: bool) -> TrialRequest:
    return msgspec.structs.replace(request, purpose="confirm", fresh_process=fresh)


def _turns(record: RunRecord) -> list[Turns]:
    """What the finalists measured in turn in the process of the confirmation."""
    series = confirmations(record)
    return [
        one.turns
        for one in record.trials
        if one.ran
        and one.turns is not None
        and one.purpose == "confirm"
        and series
        and one.worker == series[-1].worker
    ]


def _in_turn(record: RunRecord, sizes: tuple[int, ...]) -> TrialRequest | None:
    """The finalists in turn, where they may and have not yet."""
    own = own_size(record)
    able = field(record)
    wanted = sizes if own is None else (*sizes, own)
    sizes = tuple(dict.fromkeys(size for size in wanted if size in able))
    if any(set(sizes) <= set(one.sizes) for one in _turns(record)):
        return None
    return comparison(record, sizes, "finalists in turn", purpose="confirm")


def _measured_enough(record: RunRecord, size: int, best: int) -> bool:
    compared = ratio(_turns(record), size, best)
    if compared is not None:
        return compared.num_samples >= ROUNDS
    series = confirmations(record)
    return min(_rounds(series, one) for one in (size, best)) >= ROUNDS


def _rounds(series: list[Trial], size: int) -> int:
    """Rounds that a size has behind it; a disturbed trial does not count, within limits."""
    trials = _of(series, size)
    disturbed = sum(1 for one in trials if one.doubts)
    return len(trials) - min(disturbed, MAX_DISTURBED)


def next_tail(record: RunRecord, budget: Budget) -> TrialRequest | None:
    """A step of the real length of the epoch's last batch, if it has one and none ran yet.

    Where that is unknown and BatchNorm could meet a single sample, a step of one. Beside captured
    graphs of the recommended size it must fit, and of no other: that size then runs first.
    """
    sizes = finalists(record)
    if not sizes or record.discovery is None:
        return None
    left = last_batch(record.discovery, sizes[0])
    if left is None and has_batch_norm(record):
        left = 1  # how the epoch ends is unknown: with one sample, at worst
    if left is None or left in (0, sizes[0]):
        return None
    if any(one.purpose == "tail" and one.batch_size == left for one in record.trials):
        return None
    if captures_graphs(record) and not _ran_by_itself(record, sizes[0]):
        first = fit_request(sizes[0], "its graphs, then a step of the last batch's length")
        first = msgspec.structs.replace(first, fresh_process=True)
        return first if budget.trial_s(first) <= budget.left_s else None
    series = confirmations(record)
    fresh = not captures_graphs(record) and (
        not series or record.trials[-1].worker != series[-1].worker
    )
    request = TrialRequest(
        batch_size=left,
        kind="fit",
        purpose="tail",
        fresh_process=fresh,
        reason="a step of the last batch's length",
    )
    return request if budget.trial_s(request) <= budget.last_s else None


def _ran_by_itself(record: RunRecord, size: int) -> bool:
    """Whether the process of the last trial lives and has run no other size."""
    last = record.trials[-1]
    return last.ran and {
        trial.batch_size for trial in record.trials if trial.worker == last.worker
    } == {size}


def _after_rejections(record: RunRecord, size: int, best: int) -> int:
    """Moves from the knee towards the fastest size while the confirmation rejects it."""
    known = sorted({best, *(one for one in best_timed(record) if usable(record, one))})
    while size < best:
        if not _measured_enough(record, size, best):
            return size  # not yet often enough to be turned down
        if not _clearly_below(record, size, best, 1 - record.goal.tolerance):
            return size
        larger = [one for one in known if size < one <= best]
        step = allowed(record, size * STEP_UP, up=True)
        # A near neighbour that ran, else one between that will now be run.
        between = size < step < best and not ruled_out(record, step)
        size = step if between and larger[0] > size * 1.5 else larger[0]
    return size


def agrees(record: RunRecord, size: int) -> bool:
    """Whether the fresh process bears out what the search found of a size.

    It does not where it read another throughput, nor where its steps were disturbed so often that
    its own reading says little.
    """
    if record.goal.kind == "memory":
        return True  # that it fitted again is all that is asked
    series = _of(confirmations(record), size)
    if series and all(trial.contended for trial in series):
        return False
    return disagreement(record, size) is None


def disagreement(record: RunRecord, size: int) -> float | None:
    """Throughput in the fresh process over that of the search, where both intervals exclude 1.

    Where the script's own size was measured in both, what it gained or lost between them was the
    machine's doing, and is taken out.
    """
    again, own = _fresh_over_search(record, size), own_size(record)
    if again is None:
        return None
    ratio, apart = again
    machine = None if own is None or own == size else _fresh_over_search(record, own)
    if machine is not None:
        ratio /= machine[0]
    return ratio if apart and abs(ratio - 1) >= DISAGREEMENT else None


def _fresh_over_search(record: RunRecord, size: int) -> tuple[float, bool] | None:
    """Throughput in the fresh process over that of the search; whether the intervals are apart."""
    before = searched(record).get(size)
    again = pooled(undisturbed(_of(confirmations(record), size)), "samples_per_s")
    if before is None or before.samples_per_s is None or again is None:
        return None
    apart = again.low > before.samples_per_s.high or again.high < before.samples_per_s.low
    return again.median / before.samples_per_s.median, apart


def _clearly_below(record: RunRecord, size: int, other: int, floor: float) -> bool:
    """Whether every comparison puts a size below this share of another, by more than drift does."""
    found = ratio_to(record, size, other)
    drift = DRIFT if record.device is not None and record.device.kind == "cpu" else 0.0
    return found is not None and found[2] < floor and found[0] + drift < floor


def _fastest_above(record: RunRecord, size: int) -> int | None:
    """The larger size with the highest throughput, which a knee has to be compared with."""
    larger = {other: one for other, one in searched(record).items() if other > size}
    return max(larger, key=lambda other: throughput(larger[other]), default=None)


def _runner_up(record: RunRecord, best: int) -> int | None:
    others = {size: one for size, one in searched(record).items() if size != best}
    if not others:
        return None
    return max(others, key=lambda size: throughput(others[size]))


def _fitting(record: RunRecord) -> set[int]:
    """The sizes that ran, stayed below the target, and did not fail a confirmation."""
    return {one.batch_size for one in ran(record) if usable(record, one.batch_size)}
