"""What the measured sizes say: which is the best, and which is the knee.

The knee is the smallest size whose throughput is within the goal's tolerance of the best. Among
sizes next to each other, one whose epoch ends without a harmful short batch comes first. Which
sizes are measured for that, search/knee_search.py says.
"""

from __future__ import annotations

from math import fsum

from ...records import TimeLaw, Trial
from ..measured.epoch_end import CLEAN_REACH
from ..measured.laws import fit_time, size_at
from ..measured.measurements import Measurements
from ..measured.once import once
from ..measured.scaling import input_share
from ..measured.sizes import smallest_sound
from ..measured.speeds import SURE
from ..measured.thresholds import INPUT_SHARE
from ..measured.trials import throughput
from ..measured.turn_sizes import field, have_met

AS_GOOD_WITHIN = 0.01
"""Sizes this close to the best are as good."""
LUCKY_GAP = 0.05
"""A size whose interval begins so much below that of another may have had luck; see `sure`."""
NARROWEST_INTERVAL = 0.005
"""Intervals narrower than this count as this wide: two windows differ by more."""
NEAR_RATIO = 1.15
"""A law's proposal this close to a measured size says nothing new; nor does a size that falls
short of the law's knee by less lie outside."""
LAW_FROM = 0.5
"""The time law is taken from sizes with this share of the best throughput: small batches leave
cores idle and follow another line."""


@once
def judged(measurements: Measurements) -> dict[int, Trial]:
    """The search's trials by size, without sizes that could not be compared with the others in
    turn.

    The time of such a one was taken while the machine had a speed that the others never met: it
    says something only of a size above all of them, where it is surely faster for all that, and
    did not only run beside others.
    """
    sizes, speeds, able = measurements.searched, measurements.searched_speeds, field(measurements)
    met = [size for size in sizes if speeds.took_turns(size)]
    if not met:
        return sizes
    best = max(met, key=lambda size: throughput(sizes[size]))

    def is_judged(size: int) -> bool:
        if size in met:
            return True
        if size <= max(met):
            return size not in able and speeds.tells(size, best)
        compared = speeds.compare(size, best, SURE)
        return compared is not None and compared.low > 1 and speeds.tells(size, best)

    return {size: trial for size, trial in sizes.items() if is_judged(size)}


@once
def knee(measurements: Measurements) -> int | None:
    """The size that ran and is the knee by what the search found."""
    sizes = judged(measurements)
    if not sizes:
        return None
    within = inside(measurements, sizes)
    smallest = min(within)
    own = measurements.own_size
    if own in within and input_share(sizes[own]) >= INPUT_SHARE:
        return own  # the loader sets the pace: no size gains anything over the script's own
    near = [size for size in within if size <= smallest * CLEAN_REACH]
    clean = [size for size in near if not measurements.harmful(size)]
    return min(clean, default=smallest)


def gains_little(measurements: Measurements) -> int | None:
    """The smallest size within the tolerance, where it gains too little over the script's own."""
    sizes = judged(measurements)
    if not sizes:
        return None
    smallest = min(_within(measurements, sizes))
    return smallest if smallest not in inside(measurements, sizes) else None


def tail_avoided(measurements: Measurements) -> int | None:
    """The smaller size that `knee` passed over for the end of its epoch, if it did."""
    sizes, chosen = judged(measurements), knee(measurements)
    if chosen is None:
        return None
    smallest = min(inside(measurements, sizes))
    return smallest if smallest < chosen and measurements.harmful(smallest) else None


@once
def fastest(measurements: Measurements) -> int | None:
    """The best size of what the search found, of those that are surely fast."""
    sizes = sure(judged(measurements))
    return best_size(sizes) if sizes else None


def uncompared(measurements: Measurements) -> list[int]:
    """The sizes that read faster than the fastest and were not judged, as nothing met them."""
    sizes, best = measurements.searched, fastest(measurements)
    if best is None:
        return []
    unmet = sizes.keys() - judged(measurements).keys()
    return sorted(size for size in unmet if throughput(sizes[size]) > throughput(sizes[best]))


def met_again(measurements: Measurements, size: int, other: int) -> bool:
    """Whether two sizes were measured beside each other once more, after the search."""
    both = {size, other}
    return both <= measurements.confirmed_sizes or have_met(measurements, both)


def never_met(measurements: Measurements, size: int) -> list[int]:
    """The sizes that read faster than the fastest, and met this one neither then nor later."""
    return [each for each in uncompared(measurements) if not met_again(measurements, size, each)]


def sure(sizes: dict[int, Trial]) -> dict[int, Trial]:
    """The sizes without those that only luck may have made the fastest.

    One that was timed once, by itself, may reach the highest median with an interval that begins
    far below others'. Slower sizes stay, however wide their intervals.
    """
    lows = {size: trial.samples_per_s.low for size, trial in sizes.items() if trial.samples_per_s}
    floor = (1 - LUCKY_GAP) * max(lows.values(), default=0.0)
    fast = {size for size, low in lows.items() if low >= floor}
    top = max((throughput(sizes[size]) for size in fast), default=0.0)
    return {
        size: trial for size, trial in sizes.items() if size in fast or throughput(trial) <= top
    }


def inside(measurements: Measurements, sizes: dict[int, Trial]) -> list[int]:
    """The sizes that are worth taking, BatchNorm's minimum kept; never empty.

    They are within the tolerance of the best. Where the script's own is not, a larger one gains as
    much over it: nobody changes a script for a hundredth.
    """
    within, own = _within(measurements, sizes), measurements.own_size
    sizes = _sound(measurements, sizes)
    if own is None or own not in sizes or own in within:
        return within
    worth = _reaching(sizes, floor_above(measurements, sizes))
    return [size for size in within if size < own or size in worth]


def _within(measurements: Measurements, sizes: dict[int, Trial]) -> list[int]:
    """The sizes within the tolerance of the best."""
    sizes = _sound(measurements, sizes)
    return _reaching(sizes, (1 - measurements.goal.tolerance) * plateau(sizes))


def floor_above(measurements: Measurements, sizes: dict[int, Trial]) -> float:
    """Throughput that a size above the script's own has to reach, samples per second."""
    share, best = 1 - measurements.goal.tolerance, plateau(sizes)
    own = sizes.get(measurements.own_size or 0)
    if own is None or throughput(own) >= share * best:
        return share * best
    return max(share * best, min(best, throughput(own) / share))


def _sound(measurements: Measurements, sizes: dict[int, Trial]) -> dict[int, Trial]:
    sound = smallest_sound(measurements)
    return sure({size: trial for size, trial in sizes.items() if size >= sound} or sizes)


def _reaching(sizes: dict[int, Trial], floor: float) -> list[int]:
    """The sizes that reach a throughput, the fastest among them.

    What was measured decides where its interval lies on one side of the floor. Elsewhere the time
    law does, which pools all sizes, and without a law the median.
    """
    by_law = knee_by_law(sizes, floor)

    def reaches(size: int, trial: Trial) -> bool:
        rate = trial.samples_per_s
        assert rate is not None
        if by_law is None or not rate.low < floor <= rate.high:
            return rate.median >= floor
        return size >= by_law / NEAR_RATIO

    best = max(sizes, key=lambda size: throughput(sizes[size]))
    return [size for size, trial in sizes.items() if size == best or reaches(size, trial)]


def best_size(sizes: dict[int, Trial]) -> int:
    """The size with the highest median; of those that the noise cannot tell from it the smallest.

    Args:
        sizes: by batch size, at least one.
    """
    best = max(sizes.values(), key=throughput)
    assert best.samples_per_s is not None
    same = min(AS_GOOD_WITHIN, max(AS_GOOD_WITHIN / 2, best.samples_per_s.relative_half_width))
    floor = (1 - same) * throughput(best)
    return min(size for size, trial in sizes.items() if throughput(trial) >= floor)


def best_throughput(sizes: dict[int, Trial]) -> float:
    """The highest median, samples per second."""
    return max(map(throughput, sizes.values()))


def plateau(sizes: dict[int, Trial]) -> float:
    """The best throughput, samples per second: mean of those that may be it, the surer the more.

    The highest median alone would be too high by luck, the more so the more sizes are as good.
    Weights are the inverse squares of the intervals' half-widths.
    """
    top = best_throughput(sizes)
    rates = [
        trial.samples_per_s
        for trial in sizes.values()
        if trial.samples_per_s is not None and may_be_best(trial, top)
    ]
    weights = [max(NARROWEST_INTERVAL, rate.relative_half_width) ** -2 for rate in rates]
    pairs = zip(rates, weights, strict=True)
    return fsum(rate.median * weight for rate, weight in pairs) / fsum(weights)


def knee_by_law(sizes: dict[int, Trial], floor: float) -> float | None:
    """The size at which the time law reaches a throughput, if there is one."""
    law = law_of(sure(sizes))
    return None if isinstance(law, str) else size_at(law, floor)


def may_be_best(trial: Trial, top: float) -> bool:
    """Whether the noise leaves it open that a size is the fastest."""
    return trial.samples_per_s is not None and trial.samples_per_s.high >= top


def law_of(sizes: dict[int, Trial]) -> TimeLaw | str:
    """The time law up to the best size: beyond it paging or caches take over."""
    end = best_size(sizes)
    floor = LAW_FROM * best_throughput(sizes)
    return fit_time(
        {
            size: trial.step_s.median
            for size, trial in sizes.items()
            if trial.step_s is not None and size <= end and throughput(trial) >= floor
        }
    )
