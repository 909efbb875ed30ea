"""The median of repeated measurements and how sure it is, without assuming a distribution."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, exp, fsum, lgamma, log, log1p, pi, sqrt, tan
from statistics import NormalDist

import msgspec

from .records import Spread

CONFIDENCE = 0.90
"""Nominal coverage of the intervals."""
MEAN_APART = 0.005
"""A mean this near the median, as a share, is the same."""


def order_statistic_ranks(num_samples: int, confidence: float = CONFIDENCE) -> tuple[int, float]:
    """How many values to leave out on each side, and the coverage that then holds.

    The interval from the (k+1)-th smallest to the (k+1)-th largest of n independent values covers
    the median with probability 1 - 2 * P(Binomial(n, 1/2) <= k) (David and Nagaraja, Order
    Statistics, 3rd ed., section 7.1). The largest k that keeps `confidence` is taken.

    >>> order_statistic_ranks(6), order_statistic_ranks(30)
    ((0, 0.96875), (10, 0.90126...))
    """
    total = 1 << num_samples  # whole numbers: thousands of steps are beyond a float's range
    ways, tail = 1, 0
    best = 0
    coverage = 1 - 2 / total
    for k in range(num_samples // 2):
        tail += ways
        ways = ways * (num_samples - k) // (k + 1)
        if 1 - 2 * tail / total < confidence:
            break
        best, coverage = k, 1 - 2 * tail / total
    return best, coverage


def spread_of(values: Sequence[float], confidence: float = CONFIDENCE) -> Spread | None:
    """Median and interval of `values`, `None` when there are none.

    With fewer than five values no interval reaches 90 %; the smallest and largest value are given
    with the coverage that they have.
    """
    if not values:
        return None
    ordered = sorted(values)
    num = len(ordered)
    middle = (ordered[(num - 1) // 2] + ordered[num // 2]) / 2
    leave, coverage = order_statistic_ranks(num, confidence)
    return Spread(
        median=middle,
        low=ordered[leave],
        high=ordered[num - 1 - leave],
        num_samples=num,
        confidence=max(0.0, coverage),
    )


def paired_spread(differences: Sequence[float], confidence: float = CONFIDENCE) -> Spread | None:
    """Middle of differences between the two of each pair, `None` when there are none.

    The interval is that of Wilcoxon's signed-rank test, from the means of two differences each
    (Hodges and Lehmann, Ann. Math. Stat. 34, 1963; Hollander, Wolfe and Chicken, Nonparametric
    Statistical Methods, 3rd ed., section 3.3). It assumes no more than that a difference from the
    middle is as likely upwards as downwards, which is so where chance alone decides which of the
    pair is which. With too few pairs for `confidence` it has the coverage that they allow.

    >>> spread = paired_spread([0.01, 0.03, 0.02, 0.05, 0.02, 0.04, 0.03], 0.98)
    >>> spread.low, round(spread.median, 3), spread.high, spread.confidence
    (0.01, 0.03, 0.05, 0.984375)
    """
    num = len(differences)
    means = sorted(
        (one + other) / 2
        for place, one in enumerate(differences)
        for other in differences[: place + 1]
    )
    if not means:
        return None
    total = 1 << num
    ways = [1] + [0] * len(means)  # of sets of ranks, by their sum
    for rank in range(1, num + 1):
        for rank_sum in range(len(means), rank - 1, -1):
            ways[rank_sum] += ways[rank_sum - rank]
    leave, tail, coverage = 0, ways[0], 1 - 2 * ways[0] / total
    while 1 - 2 * (tail + ways[leave + 1]) / total >= confidence:
        leave += 1
        tail += ways[leave]
        coverage = 1 - 2 * tail / total
    return Spread(
        median=(means[(len(means) - 1) // 2] + means[len(means) // 2]) / 2,
        low=means[leave],
        high=means[len(means) - 1 - leave],
        num_samples=num,
        confidence=max(0.0, coverage),
    )


def around_mean(spread: Spread, mean: float) -> Spread:
    """The spread with the mean in the middle where the median is apart from it.

    Of values of two kinds, such as steps of which every fourth waits, the median is one or the
    other; what many take together is the mean.
    """
    if abs(mean - spread.median) <= MEAN_APART * spread.median:
        return spread
    low, high = min(spread.low, mean), max(spread.high, mean)
    return msgspec.structs.replace(spread, median=mean, low=low, high=high)


def mean_of_all(values: Sequence[float | None]) -> float | None:
    """The mean; `None` where one of them is unknown, or there is none."""
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known and len(known) == len(values) else None


def quantile_spread(
    values: Sequence[float], share: float, confidence: float = CONFIDENCE
) -> Spread | None:
    """The quantile at `share` with its order-statistic interval, `None` when there is no value.

    The interval from the i-th to the j-th smallest of n independent values covers the quantile
    with probability P(i <= Binomial(n, share) < j) (David and Nagaraja, Order Statistics, 3rd ed.,
    section 7.1). Ranks are widened from the middle, the side that adds more first, until that
    reaches `confidence`; with few values it is the coverage of smallest to largest.

    >>> spread = quantile_spread(range(1, 41), 0.25)
    >>> [spread.low, spread.median, spread.high]
    [6, 10, 15]
    """
    if not values:
        return None
    ordered = sorted(values)
    num = len(ordered)
    chance = [_binomial(num, k, share) for k in range(num + 1)]
    middle = min(num, max(1, ceil(share * num)))
    low, high = middle, middle  # ranks from 1; covered: Binomial in [low, high - 1]
    covered = 0.0
    while covered < confidence and (low > 1 or high < num):
        below = chance[low - 1] if low > 1 else -1.0
        above = chance[high] if high < num else -1.0
        if below >= above:
            low -= 1
        else:
            high += 1
        covered = fsum(chance[low:high])
    return Spread(
        median=ordered[middle - 1],
        low=ordered[low - 1],
        high=ordered[high - 1],
        num_samples=num,
        confidence=min(1.0, covered),
    )


def _binomial(num: int, k: int, share: float) -> float:
    """Probability of k successes in `num`; by logarithms, since thousands of steps overflow."""
    ways = lgamma(num + 1) - lgamma(k + 1) - lgamma(num - k + 1)
    return exp(ways + k * log(share) + (num - k) * log1p(-share))


def rate_of_sums(
    amounts: Sequence[float], seconds: Sequence[float], confidence: float = CONFIDENCE
) -> Spread | None:
    """Amount per second over several steps that differ in both, `None` where nothing took time.

    The ratio of the sums with the interval of its linearised error (Cochran, Sampling Techniques,
    3rd ed., section 6.4): what steps differ by at one and the same rate does not widen it.

    >>> rate = rate_of_sums([100, 200, 300], [1.0, 2.0, 3.0])
    >>> (rate.low, rate.median, rate.high)
    (100.0, 100.0, 100.0)
    """
    num, total_s = len(amounts), fsum(seconds)
    if not num or total_s <= 0:
        return None
    rate = fsum(amounts) / total_s
    half = 0.0
    if num > 1:
        squares = fsum(
            (amount - rate * second) ** 2 for amount, second in zip(amounts, seconds, strict=True)
        )
        error = sqrt(squares / (num - 1) / num) / (total_s / num)
        half = student(num - 1, confidence) * error
    return Spread(
        median=rate,
        low=max(0.0, rate - half),
        high=rate + half,
        num_samples=num,
        confidence=confidence if num > 1 else 0.0,
    )


def student(num_free: int, confidence: float = CONFIDENCE) -> float:
    """Quantile of Student's t for a two-sided interval.

    Of many degrees of freedom by the expansion of Cornish and Fisher (Abramowitz and Stegun
    26.7.5), of one and two exactly.

    >>> [round(student(n), 2) for n in (1, 2, 5, 30)]
    [6.31, 2.92, 2.01, 1.7]
    """
    share = (1 + confidence) / 2
    if num_free == 1:
        return tan(pi * (share - 0.5))
    if num_free == 2:
        return (2 * share - 1) / sqrt(2 * share * (1 - share))
    z = NormalDist().inv_cdf(share)
    terms = (
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
    )
    return z + fsum(term / num_free**power for power, term in enumerate(terms, 1))


def inverse(spread: Spread, numerator: float) -> Spread:
    """The spread of `numerator / x`: samples per second from seconds per step."""
    return Spread(
        median=numerator / spread.median,
        low=numerator / spread.high,
        high=numerator / spread.low,
        num_samples=spread.num_samples,
        confidence=spread.confidence,
    )


def ratio_of(spread: Spread, other: Spread) -> Spread:
    """The spread of `x / y` with the widest interval that both allow.

    >>> rate = Spread(median=4.0, low=3.0, high=5.0, num_samples=9, confidence=0.9)
    >>> halved = ratio_of(rate, scaled(rate, 2.0))
    >>> (halved.low, halved.median, halved.high)
    (0.3, 0.5, 0.8333333333333334)
    """
    return Spread(
        median=spread.median / other.median,
        low=spread.low / other.high,
        high=spread.high / other.low,
        num_samples=min(spread.num_samples, other.num_samples),
        confidence=min(spread.confidence, other.confidence),
    )


def scaled(spread: Spread, factor: float) -> Spread:
    """The spread of `factor * x`."""
    return Spread(
        median=spread.median * factor,
        low=spread.low * factor,
        high=spread.high * factor,
        num_samples=spread.num_samples,
        confidence=spread.confidence,
    )
