"""A size without a harmful short last batch, next to the best one of a goal.

Under the goal `knee` a clean size within the tolerance takes the place of the smallest such size
(knee.py chooses it). Under the others a clean size that costs little takes the place of the best:
of its throughput, of its samples per joule, or of the size itself where the largest is asked for.
Only sizes that ran are taken; the searches for speed try one for that, the search for the largest
has tried several near the limit.
"""

from __future__ import annotations

from collections.abc import Mapping

from ..records import RunRecord, Trial, TrialRequest
from .energy import samples_per_joule
from .facts import ruled_out, searched, throughput
from .knee import knee, plateau, sure
from .laws import fit_time, interpolated
from .requests import timed_request
from .sizes import allowed, largest_allowed, smallest_allowed, smallest_sound
from .tail import REACH, clean_from, harmful, last_batch

_REASON = "next to {}, whose epochs end in a harmful short batch"
SPEED_COST = 0.02
"""Who asks for speed gives up no more of it than this; else the tolerance of the goal holds."""


def preferred(record: RunRecord, best: int, worth: Mapping[int, float]) -> int:
    """The best size, or the clean one near it that costs less than the tolerance.

    Args:
        worth: what the goal compares by, for every size that ran and may be recommended.
    """
    if not harmful(record, best) or best not in worth:
        return best
    floor = (1 - cost_of(record)) * worth[best]
    near = [
        size
        for size, value in worth.items()
        if value >= floor and best / REACH <= size <= best * REACH and not harmful(record, size)
    ]
    return max(near, key=lambda size: (worth[size], -size), default=best)


def cost_of(record: RunRecord) -> float:
    """The share of what the goal compares by that a clean size may cost."""
    tolerance = record.goal.tolerance
    return tolerance if record.goal.kind == "memory" else min(SPEED_COST, tolerance)


def worth_of(record: RunRecord) -> dict[int, float]:
    """Samples per joule under the goal `energy`, else samples per second, by size."""
    sizes = searched(record)
    if record.goal.kind != "energy":
        return {size: throughput(one) for size, one in sizes.items()}
    found = {size: samples_per_joule(one) for size, one in sizes.items()}
    return {size: value for size, value in found.items() if value is not None}


def next_clean(record: RunRecord, best: int | None) -> TrialRequest | None:
    """A clean size near the best of a search for speed that is over, if none was tried yet.

    Args:
        best: the size of the goal, tail aside.
    """
    if record.goal.kind not in ("throughput", "energy") or record.goal.sizes or best is None:
        return None
    if not harmful(record, best):
        return None
    near = _candidates(record, best)
    tried = {one.batch_size for one in record.trials if one.purpose == "search"}
    if not near or any(size in tried or ruled_out(record, size) for size in near):
        return None
    return timed_request(record, near[0], _REASON.format(best))


def next_to_knee(record: RunRecord) -> TrialRequest | None:
    """A clean size beside the knee to try, where its epoch would end in a harmful short batch."""
    size = knee(record)
    if record.goal.kind != "knee" or size is None or not harmful(record, size):
        return None
    assert record.discovery is not None
    sizes = searched(record)
    top = int(min(max(sizes), size * REACH, largest_allowed(record)))
    # Round sizes only: one that kernels dislike would cost more than the tail.
    near = dict.fromkeys(allowed(record, one) for one in range(size + 1, top + 1))
    wanted = clean_from(record.discovery, (one for one in near if size < one <= top))
    if wanted is None:
        wanted = _clean_below(record, sizes, size)
    if wanted is None or wanted in sizes or ruled_out(record, wanted):
        return None
    return timed_request(record, wanted, _REASON.format(size))


def _clean_below(record: RunRecord, sizes: dict[int, Trial], size: int) -> int | None:
    """A smaller clean size that the sizes beside it put within the tolerance; the largest first.

    Taken where memory, the data or the largest size tried leave no larger one.
    """
    sizes = sure(sizes)
    if record.discovery is None or len(sizes) < 2:
        return None
    step_s = interpolated({one: one / throughput(trial) for one, trial in sizes.items()})
    floor = (1 - record.goal.tolerance) * plateau(sizes)
    least = max(smallest_allowed(record), smallest_sound(record), int(size / REACH))
    near = dict.fromkeys(allowed(record, one) for one in range(size - 1, least - 1, -1))
    fast = (one for one in near if least <= one < size and one / step_s(one) >= floor)
    return clean_from(record.discovery, fast)


def _candidates(record: RunRecord, best: int) -> list[int]:
    """Clean round sizes near the best, the most promising first; none larger than what ran."""
    cost = cost_of(record)
    least = max(smallest_allowed(record), smallest_sound(record), round(best / REACH))
    top = min(int(best * REACH), max(searched(record)), largest_allowed(record))
    near = {allowed(record, one) for one in range(least, top + 1)} - {best}
    clean = [one for one in near if least <= one <= top and not harmful(record, one)]
    rates = _predicted(record, {*clean, best})
    if rates:
        clean = [one for one in clean if rates[one] >= (1 - cost) * rates[best]]
        top_rate = max((rates[one] for one in clean), default=1.0)

    def order(size: int) -> tuple[float, ...]:
        # In steps of a hundredth of the best: no law tells finer.
        rate = round(rates[size] / top_rate, 2) if rates else 0.0
        left = record.discovery is not None and bool(last_batch(record.discovery, size))
        return (-rate, left, abs(size - best), size)

    return sorted(clean, key=order)


def _predicted(record: RunRecord, sizes: set[int]) -> dict[int, float]:
    """Samples per second by the law of the timed sizes; empty where there is none."""
    times = {
        size: one.step_s.median for size, one in searched(record).items() if one.step_s is not None
    }
    law = fit_time(times)
    if isinstance(law, str):
        return {}
    return {one: law.samples_per_s(one) for one in sizes}
