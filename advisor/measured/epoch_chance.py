"""The chance that one epoch brings a batch that needs more memory than there is.

Closed forms. Where a batch is padded to its longest sample, a full batch with one sample that is
too long for it is too large. An epoch that draws all N samples without replacement and drops the
last r meets one of k such samples with chance 1 - C(r, k) / C(N, k); one that draws n samples of a
stream with 1 - (1 - k/N)^n. Where a batch holds the sum of its samples (packed, nothing padded),
the distribution of the sum of b samples is computed by convolution, and an epoch of n / b batches
stays below the limit with the power of that of one. What the law of memory may be wrong by is
averaged over (law_error.py). Beyond the longest of some samples that were
looked at, the tail of the lengths is a generalised Pareto distribution, by probability-weighted
moments (Hosking and Wallis 1987).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from math import exp, expm1, lgamma, log1p
from typing import NamedTuple

from ...records import LengthCensus, LengthLaw
from .law_error import LawError, error_of
from .length_law import terms_of

LEAST_FACTOR = 0.5
"""The truth over the law is no less: errors below that are too rare to matter."""
SUM_REACH = 4.0
"""Standard errors up to which sums of samples are looked at beyond the capacity."""
CELLS = 400
"""Cells of the grid on which sums of samples are computed."""
TAIL_SHARE = 0.1
"""The longest samples, from which the tail beyond is told."""
MIN_TAIL = 20
FATTEST = 0.9
"""Shape of a tail above which its mean hardly exists; moments say no more then."""


class Epoch(NamedTuple):
    """How one epoch draws its samples.

    Attributes:
        num_samples: drawn in an epoch.
        drop_last: whether a short last batch is left out.
        replaced: samples are drawn with replacement, or from a stream.
        summed: batches are not padded: they hold the sum of their samples.
        by_budget: sizes are budgets, which bound samples x longest or the sum.
    """

    num_samples: int
    drop_last: bool = False
    replaced: bool = False
    summed: bool = False
    by_budget: bool = False


def chance(
    law: LengthLaw, census: LengthCensus, size: int, capacity_bytes: int, epoch: Epoch
) -> float:
    """The chance that some batch of an epoch takes more than the capacity, 0..1."""
    error_of_law = _error_at_limit(law, census, size, capacity_bytes, epoch)
    if epoch.summed and not epoch.by_budget:
        most_bytes = capacity_bytes / max(LEAST_FACTOR, 1 - SUM_REACH * error_of_law.standard)
        at = _summed(law, census, size, most_bytes, epoch)
    else:

        def at(limit_bytes: float) -> float:
            return _padded(law, census, size, limit_bytes, epoch)

    total = 0.0
    for error, weight in error_of_law.places():
        total += weight * at(capacity_bytes / max(LEAST_FACTOR, 1 + error))
    return min(1.0, max(0.0, total))


def worst_peak(law: LengthLaw, size: int, longest: int, *, by_budget: bool = False) -> float:
    """Bytes of a full batch whose samples are all as long as the longest."""
    return _peak(law, size, longest, by_budget=by_budget)


def _peak(law: LengthLaw, size: float, length: float, *, by_budget: bool) -> float:
    _, tokens, squares = terms_of(_num_samples(size, length, by_budget=by_budget), length)
    return law.fixed_bytes + law.per_token_bytes * tokens + law.per_square_bytes * squares


def _num_samples(size: float, length: float, *, by_budget: bool) -> float:
    return max(1.0, size / max(1.0, length)) if by_budget else size


def _error_at_limit(
    law: LengthLaw, census: LengthCensus, size: int, capacity_bytes: int, epoch: Epoch
) -> LawError:
    """The error of the law for the batch that just fits, or for the longest one where that does."""
    low, high = 0.0, float(census.lengths[-1])
    if _peak(law, size, high, by_budget=epoch.by_budget) > capacity_bytes:
        for _ in range(30):
            middle = (low + high) / 2
            fits = _peak(law, size, middle, by_budget=epoch.by_budget) <= capacity_bytes
            low, high = (middle, high) if fits else (low, middle)
    num = _num_samples(size, high, by_budget=epoch.by_budget)
    return error_of(law, num, high)


# padded ------------------------------------------------------------------------------------------


def _padded(
    law: LengthLaw, census: LengthCensus, size: int, limit_bytes: float, epoch: Epoch
) -> float:
    longest = census.lengths[-1]

    def fits(length: float, num: float = size) -> bool:
        return _peak(law, num, length, by_budget=epoch.by_budget) <= limit_bytes

    if census.complete and not epoch.replaced and epoch.num_samples >= census.num_samples:
        first = bisect_left(census.lengths, True, key=lambda length: not fits(length))
        too_long = sum(census.counts[first:])
        short = 0 if epoch.by_budget else census.num_samples % size
        # A short last batch may hold what a full one could not.
        left_out = short if short and (epoch.drop_last or fits(longest, short)) else 0
        return 1 - _all_among(too_long, left_out, census.num_samples)
    share = _beyond(census, fits)
    drawn = epoch.num_samples
    if not epoch.by_budget and epoch.drop_last:
        drawn -= drawn % size
    if census.complete and not epoch.replaced:
        too_long = round(share * census.num_samples)
        # None is drawn where all of them lie among those that are left.
        return 1 - _all_among(too_long, census.num_samples - drawn, census.num_samples)
    return 1.0 if share >= 1 else -expm1(drawn * log1p(-share))


def _all_among(num: int, places: int, total: int) -> float:
    """The chance that all of `num` samples lie in so many places of a random order of all."""
    if num == 0:
        return 1.0
    return exp(_log_choose(places, num) - _log_choose(total, num)) if num <= places else 0.0


def _log_choose(total: int, num: int) -> float:
    return lgamma(total + 1) - lgamma(num + 1) - lgamma(total - num + 1)


def _beyond(census: LengthCensus, fits: Callable[[float], bool]) -> float:
    """Share of the samples that are too long; beyond the longest one seen, by the tail's law."""
    longest = census.lengths[-1]
    if census.complete or not fits(longest):
        first = bisect_left(census.lengths, True, key=lambda length: not fits(length))
        return sum(census.counts[first:]) / census.num_samples
    low, high = float(longest), 2.0 * longest
    while fits(high):
        low, high = high, 2 * high
        if high > 1e9 * longest:
            return 0.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return tail_share(census, high)


def tail_share(census: LengthCensus, length: float) -> float:
    """Share of samples above a length beyond those that were seen, an estimate."""
    values: list[int] = []
    wanted = max(MIN_TAIL, int(TAIL_SHARE * census.num_samples))
    for value, count in zip(reversed(census.lengths), reversed(census.counts), strict=True):
        if len(values) >= wanted:
            break
        values += [value] * count
    threshold = values[-1]
    over = sorted(value - threshold for value in values if value > threshold)
    if len(over) < 2:
        return 1 / (census.num_samples + 1)
    mean = sum(over) / len(over)
    weighted = sum(
        value * (1 - (place + 0.65) / len(over)) for place, value in enumerate(over)
    ) / len(over)
    shape = min(FATTEST, 2 - mean / (mean - 2 * weighted)) if mean > 2 * weighted else FATTEST
    scale = max(1e-9, mean * (1 - shape))
    reached = (length - threshold) / scale
    share = len(over) / census.num_samples
    if abs(shape) < 1e-6:
        return share * exp(-reached)
    inside = 1 + shape * reached
    return share * inside ** (-1 / shape) if inside > 0 else 0.0


# summed ------------------------------------------------------------------------------------------


def _summed(
    law: LengthLaw, census: LengthCensus, size: int, most_bytes: float, epoch: Epoch
) -> Callable[[float], float]:
    """Returns the chance, by limit in bytes, that a batch of an epoch exceeds it; batches hold the
    sum of their samples."""
    most = most_bytes - law.fixed_bytes
    batches = max(
        1, epoch.num_samples // size if epoch.drop_last else -(-epoch.num_samples // size)
    )
    if most <= 0:
        return lambda _limit: 1.0
    step = most / CELLS
    each = [0.0] * (CELLS + 2)
    for length, count in zip(census.lengths, census.counts, strict=True):
        value = law.per_token_bytes * length + law.per_square_bytes * length * length
        _add(each, value / step, count / census.num_samples)
    whole = _power(each, size)
    above = [0.0] * (CELLS + 3)
    for place in range(CELLS + 1, -1, -1):
        above[place] = above[place + 1] + whole[place]

    def at(limit_bytes: float) -> float:
        limit = (min(limit_bytes, most_bytes) - law.fixed_bytes) / step
        if limit < 0:
            return 1.0
        # The mass of a cell is spread over it: half of it lies below its middle.
        cell = min(CELLS + 1, int(limit + 0.5))
        part = min(1.0, limit + 0.5 - cell)
        tail = above[cell] * (1 - part) + above[cell + 1] * part
        return 1.0 if tail >= 1 else -expm1(batches * log1p(-max(0.0, tail)))

    return at


def _add(cells: list[float], place: float, mass: float) -> None:
    """Mass at a place between two cells, so that its mean stays."""
    if place >= CELLS + 1:
        cells[CELLS + 1] += mass
        return
    low = int(place)
    cells[low] += mass * (1 - (place - low))
    cells[low + 1] += mass * (place - low)


def _power(each: Sequence[float], num: int) -> list[float]:
    """The distribution of the sum of so many; the last cell holds all that lies beyond."""
    total: list[float] | None = None
    square = list(each)
    while num:
        if num & 1:
            total = square if total is None else _convolved(total, square)
        num >>= 1
        if num:
            square = _convolved(square, square)
    assert total is not None
    return total


def _convolved(one: Sequence[float], other: Sequence[float]) -> list[float]:
    made = [0.0] * len(one)
    last = len(one) - 1
    filled = [(place, mass) for place, mass in enumerate(other[:last]) if mass > 1e-18]
    for place, mass in enumerate(one[:last]):
        if mass <= 1e-18:
            continue
        for far, weight in filled:
            if place + far >= last:
                break
            made[place + far] += mass * weight
    made[last] = max(0.0, 1.0 - sum(made[:last]))
    return made
