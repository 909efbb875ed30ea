"""The memory search: the largest size that fits, with as few trials and failures as can be.

Where it goes next is said by plain numbers: readings, refusals and a target.

    readings show a slope      secant on the upper bound of the slope, towards the target
    readings do not (yet)      in proportion to the peak, which no fixed part makes too far
    one reading and a law      as far as the law of steps on fake tensors allows; see `Prior`
    readings say nothing       with n trials and k refusals left, sum over i <= k of C(n, i) cells
                               can be told apart; the next size is put so that either answer leaves
                               a part that the rest can tell apart

The last is the problem of k eggs and n drops. A cell is as wide as the answer may be inexact.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import comb, log, sqrt

import msgspec

from ...records import TrialRequest
from ..measured.laws import FLOOR_GROWTH, SLOPE_AGREEMENT
from ..measured.measurements import Measurements
from ..measured.memory_prior import Prior, prior_of
from ..measured.sizes import divisors_of, largest_allowed
from ..measured.thresholds import BUDGET_SPENT
from .cost import Budget
from .requests import fit_request

CPU_UNCERTAINTY = 0.02
"""Peaks of resident memory differ by about so much from run to run, as a share."""
SEGMENT_BYTES = 20 * 1024**2
"""torch's caching allocator reserves memory in segments of up to this size."""

# Chosen with the limits of docs/benchmarks.md (the largest batch that fits) in view;
# tests/advisor/test_search_goals.py sweeps the search over limits from 1 to 20,000.
FIT_BRACKET = 1.085
"""A size that ran and one that did not, no further apart than this, end the search."""
CELL = 1.08
"""How close they are meant to come; sizes are rounded."""
FULL = 0.95
"""A size of this share of what the last slope says fits ends the search as well."""
FULL_BY_LAW = 0.93
"""The share that ends it where the law of steps on fake tensors expects nothing larger to fit."""
HALFWAY = 0.6
"""After two readings above the target the next size goes no closer to the lower one of them."""
AIM = 0.97
"""The share of what is expected to fit that is tried: a little less is no loss, more is one."""
BEND = 1.15
"""Until two slopes agree, memory is taken to grow like the size to this power."""
NEAR_THE_END = 1.3
"""Growth that is left up to the end below which a bend of the memory no longer matters."""
MAX_GROWTH = 8.0
"""Growth over one size, as long as no slope is seen."""
LEAST_GROWTH = 1.25
"""Growth over the largest of several sizes whose readings hardly differ."""
MAX_JUMP = 32.0
"""Growth over the largest size that ran, whatever the slope says."""
CLEAR = 3.0
"""A difference of two readings counts as a slope from so many times its uncertainty on."""
PLAN_TRIALS = 6
PLAN_REFUSALS = 3
MANY_TRIALS = 4
"""Rather one more refusal than more trials than this for what is left."""
"""What a search without readings sets out with, after its first size."""


def next_size(measurements: Measurements, budget: Budget) -> TrialRequest | str:
    """The next fit trial, or why the search is over."""
    seen = seen_so_far(measurements)
    if seen is None:
        return "nothing ran"
    sizes = measurements.sizes_that_ran
    top = largest_allowed(measurements)
    target = seen.target_bytes
    fitting = [size for size in sizes if seen.peaks.get(size, 0) <= target]
    last = max((size for size in fitting if size <= top), default=0)
    if last >= top:
        return "the largest allowed size fits"
    wanted = next_fit(seen) if last == max(fitting, default=0) else top
    if isinstance(wanted, str):
        return wanted
    size = min(wanted, top)
    if measurements.goal.keep_effective_batch and measurements.own_size is not None:
        size = _divisor(measurements, size, last, top)
    else:
        size = measurements.multiples.nearest(size, size) if size > last else size
        if size <= last:
            size = measurements.multiples.nearest(last + 1, top, up=True)
        if size % measurements.goal.multiple_of:
            return "no smaller size is a multiple of what --multiple-of asks for"
    known = sizes | {failure.batch_size for failure in measurements.failed}
    if size in known or 0 < size <= last or (seen.refused is not None and size >= seen.refused):
        return "the largest size is bracketed"
    request = fit_request(size, "does it fit?")
    # Fits are not timed, so what the next one will take is a guess; what was spent is not.
    spent = measurements.record.search_s >= measurements.goal.budget_s or not budget.allows(request)
    return BUDGET_SPENT if spent else request


def seen_so_far(measurements: Measurements) -> Seen | None:
    """What the record says about memory, `None` before anything ran."""
    target = measurements.target_bytes
    sizes = measurements.sizes_that_ran
    device = measurements.record.device
    if not sizes or target is None or device is None:
        return None
    memory = measurements.trusted_memory
    searches = [trial for trial in measurements.failed if trial.purpose == "search"]
    refused = measurements.smallest_bad
    cpu = device.kind == "cpu"
    return Seen(
        peaks={size: reading.peak_bytes for size, reading in memory.items()},
        unread=frozenset(sizes - memory.keys()),
        refused=refused,
        target_bytes=target,
        uncertainty=(CPU_UNCERTAINTY, 0) if cpu else (0.0, SEGMENT_BYTES),
        num_refusals=sum(refused is not None and t.batch_size >= refused for t in searches),
        prior=prior_of(measurements),
    )


def _divisor(measurements: Measurements, size: int, last: int, top: int) -> int:
    """The divisor of the kept batch below a size, or the next one above what ran, within bounds."""
    divisors = divisors_of(measurements, top)
    below = [divisor for divisor in divisors if last < divisor <= size]
    return below[-1] if below else next((divisor for divisor in divisors if divisor > last), last)


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """What a search has found so far.

    Attributes:
        peaks: size that ran to its peak, in bytes; sizes whose peak is unknown are in `unread`.
        refused: the smallest size that failed.
        target_bytes: what a size may take.
        uncertainty: of one reading: a share of it, and bytes on top.
        num_refusals: so far.
        prior: the law of steps on fake tensors, where there is one.
    """

    peaks: Mapping[int, int]
    unread: frozenset[int] = frozenset()
    refused: int | None = None
    target_bytes: int
    uncertainty: tuple[float, int] = (0.0, 0)
    num_refusals: int = 0
    prior: Prior | None = None


def next_fit(seen: Seen) -> int | str:
    """The size to try next, or why the search is over."""
    fits = {size for size, peak in seen.peaks.items() if peak <= seen.target_bytes} | seen.unread
    last = max(fits, default=0)
    over = [size for size, peak in seen.peaks.items() if peak > seen.target_bytes]
    ceiling = min([*over, *([seen.refused] if seen.refused else [])], default=None)
    if last == 0:
        return "nothing fits" if ceiling in (None, 1) else _below(ceiling or 2)
    points = _points(seen, last)
    slope = _slope(seen, points)
    if seen.prior is not None and not _stands(seen, seen.prior, last, slope):
        seen = msgspec.structs.replace(seen, prior=None)
        slope = _slope(seen, points)
    if slope is not None and slope.clear:
        fitting = last + (seen.target_bytes - seen.peaks[last]) / slope.middle
        full = FULL if seen.prior is None else FULL_BY_LAW
        if last >= full * fitting or fitting - last < 1:
            return "the memory is used up to the margin"
    share = seen.uncertainty[0]
    if last in seen.peaks and seen.target_bytes - seen.peaks[last] < share * seen.peaks[last]:
        return "the memory is used up to the margin, as closely as it can be read"
    if ceiling is not None and (ceiling - last <= 1 or ceiling <= last * FIT_BRACKET):
        return "the largest size is bracketed"
    if _cannot_be_told(seen, last, ceiling):
        return "the largest size is bracketed as closely as the readings allow"
    wanted = _wanted(seen, last, ceiling, points, slope)
    if seen.prior is not None and last in seen.peaks:
        most = seen.prior.most(last, seen.peaks[last], seen.target_bytes)
        wanted = min(wanted, max(most, last * LEAST_GROWTH))
    size = max(last + 1, _gently(wanted))
    return size if ceiling is None else min(size, ceiling - 1)


def _stands(seen: Seen, prior: Prior, last: int, slope: _Slope | None) -> bool:
    """Whether the readings leave room for the law."""
    if slope is not None and slope.clear and not prior.agrees(slope.middle):
        return False
    return last not in seen.peaks or prior.stands(last, seen.peaks[last], seen.target_bytes)


def _below(ceiling: int) -> int:
    return max(1, ceiling // 4)


def _cannot_be_told(seen: Seen, last: int, ceiling: int | None) -> bool:
    """Whether the readings on both sides of the target differ by no more than they may be off."""
    if ceiling is None or ceiling not in seen.peaks or last not in seen.peaks:
        return False
    between = seen.peaks[ceiling] - seen.peaks[last]
    return 0 < between < _doubt(seen, seen.peaks[last]) and ceiling <= last * 2


def _wanted(
    seen: Seen,
    last: int,
    ceiling: int | None,
    points: list[tuple[int, int]],
    slope: _Slope | None,
) -> float:
    """The size to try, not yet rounded."""
    read = seen.peaks.get(ceiling) if ceiling is not None else None
    if ceiling is not None and read is not None and last in seen.peaks:
        between = AIM * (seen.target_bytes - seen.peaks[last]) / (read - seen.peaks[last])
        over = sum(peak > seen.target_bytes for peak in seen.peaks.values())
        most = HALFWAY if seen.prior is not None and over > 1 else 0.9
        return last + (ceiling - last) * min(max(between, 0.1), most)
    if slope is not None and slope.informative:
        safe = _jump(seen, points, slope)
        # Where the slope has failed once it would go on failing, one step below the ceiling.
        if ceiling is None or safe < ceiling / FIT_BRACKET:
            return safe
    if len(points) == 1 and slope is None:
        by_law = _by_law(seen, last)
        if by_law is not None:
            return by_law
        if ceiling is None:
            return last * min(MAX_GROWTH, _in_proportion(seen, points[-1][1]))
    return _told_apart(seen, last, ceiling)


class _Slope(msgspec.Struct, frozen=True):
    """Bytes a sample between two readings: what they say, and the most that they allow.

    Attributes:
        clear: the difference stands out of the uncertainty, and is no floor.
        informative: the sizes differ enough for a difference to be seen at all.
    """

    middle: float
    upper: float
    clear: bool
    informative: bool
    agrees: bool


def _points(seen: Seen, last: int) -> list[tuple[int, int]]:
    known = {size: peak for size, peak in seen.peaks.items() if size <= last}
    return sorted(known.items()) if last in known else []


def _doubt(seen: Seen, peak: int) -> float:
    """How far the difference of two readings around this one may be off, in bytes."""
    share, fixed = seen.uncertainty
    return 2 * sqrt(2) * share * peak + fixed


def _slope(seen: Seen, points: list[tuple[int, int]]) -> _Slope | None:
    """The slope from the nearest earlier reading that differs clearly, else from the farthest."""
    if len(points) < 2:
        return None
    size, peak = points[-1]
    doubt = _doubt(seen, peak)
    earlier = points[-2::-1]
    visible = [point for point in earlier if peak - point[1] >= CLEAR * doubt]
    clear = [point for point in visible if peak > point[1] * (1 + FLOOR_GROWTH)]
    base = (clear or visible or earlier[-1:])[0]
    steps = size - base[0]
    middle = (peak - base[1]) / steps
    upper = (max(peak - base[1], 0) + doubt) / steps
    straight = bool(clear) and seen.prior is not None and seen.prior.agrees(middle)
    agrees = straight or any(
        abs((base[1] - point[1]) / (base[0] - point[0]) - middle) <= SLOPE_AGREEMENT * middle
        for point in [point for point in earlier if point[0] < base[0]][:1]
        if base[1] - point[1] >= CLEAR * doubt
    )
    flat = middle <= 0 or (size >= 2 * base[0] and peak - base[1] < doubt)
    return _Slope(middle, upper, bool(clear), not flat, bool(clear) and agrees)


def _jump(seen: Seen, points: list[tuple[int, int]], slope: _Slope) -> float:
    """The next size, as far as the slope's upper bound says that the target allows."""
    size, peak = points[-1]
    least = _in_proportion(seen, peak)
    growing = slope.upper * size
    fixed = peak - growing
    room = (seen.target_bytes - fixed) / growing if fixed > 0 else seen.target_bytes / peak
    growth = room if slope.agrees or room < NEAR_THE_END else room ** (1 / BEND)
    if not slope.clear:
        # Between what is safe under any fixed part and what so small a difference promises.
        growth = max(sqrt(max(growth, 1.0) * least), min(room, LEAST_GROWTH))
    return float(size * max(1.0, min(growth, MAX_JUMP)) * (AIM if slope.clear else 1.0))


def _by_law(seen: Seen, last: int) -> float | None:
    """The size after a single reading by the law of steps on fake tensors."""
    prior, peak = seen.prior, seen.peaks.get(last)
    if prior is None or peak is None or seen.num_refusals > 1:
        return None
    wanted = prior.next_size(last, peak, seen.target_bytes, seen.refused)
    if prior.explains(last, peak):
        return wanted
    return min(wanted, last * min(MAX_GROWTH, _in_proportion(seen, peak)))


def _in_proportion(seen: Seen, peak: int) -> float:
    """Growth that fits even where nothing of the peak is fixed and it grows a bit faster."""
    return float(max(1.0, seen.target_bytes / peak) ** (1 / BEND))


def _told_apart(seen: Seen, last: int, ceiling: int | None) -> float:
    """The next size where only running it tells whether it fits."""
    refusals = PLAN_REFUSALS - seen.num_refusals
    if ceiling is None:
        return float(last * CELL ** (_cells(PLAN_TRIALS - 1, PLAN_REFUSALS - 1) + 1))
    width = log(ceiling / last) / log(FIT_BRACKET)
    refusals = max(refusals, 1 if width <= MANY_TRIALS + 1 else 2)
    trials = next(count for count in range(1, 64) if width <= _cells(count, refusals) + 1)
    share = (_cells(trials - 1, refusals - 1) + 1) / (_cells(trials, refusals) + 1)
    return float(last * (ceiling / last) ** share)


def _cells(trials: int, refusals: int) -> int:
    """Sizes that can be told apart: sum of C(trials, i) over 1 <= i <= refusals."""
    return sum(comb(trials, count) for count in range(1, refusals + 1))


def _gently(size: float) -> int:
    """Rounded down to a multiple of 8, 4 or 2 where that costs less than 1.5 %."""
    for step in (8, 4, 2):
        rounded = int(size) // step * step
        if rounded >= 0.985 * size:
            return rounded
    return int(size)
