"""The rising sequence that is nearest to measured values: isotonic regression."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ...records import Spread

FINEST = 0.001
"""No time is taken as known to less than this share of it: an interval can be narrow by chance."""


def rising(values: Sequence[float], weights: Sequence[float]) -> list[float]:
    """The values that never fall and whose weighted squared distance from these is the least.

    Pool adjacent violators: neighbours that fall become their weighted mean (Barlow, Bartholomew,
    Bremner and Brunk, Statistical Inference under Order Restrictions, 1972, section 1.2). Values
    that rise already come back as they are.

    Args:
        weights: of each value, above 0; one over its variance, or all the same.

    >>> rising([1, 4, 2, 5], [1, 1, 3, 1])
    [1, 2.5, 2.5, 5]
    """
    pools: list[tuple[float, float, int]] = []  # mean, weight, how many
    for value, weight in zip(values, weights, strict=True):
        mean, total, count = value, weight, 1
        while pools and pools[-1][0] > mean:
            before, its_weight, its_count = pools.pop()
            whole = total + its_weight
            mean += (before - mean) * (its_weight / whole)
            total, count = whole, count + its_count
        pools.append((mean, total, count))
    return [mean for mean, _, count in pools for _ in range(count)]


def precisions(
    times: Mapping[int, float], spreads: Mapping[int, Spread]
) -> dict[int, float] | None:
    """Weights of the times: one over the square of half the interval of each.

    Args:
        spreads: of the times, or of the rates that they come from: the relative width counts.

    Returns:
        `None`, all the same, where one was measured once only.
    """
    if not all(spread.is_interval for spread in spreads.values()):
        return None
    return {
        size: (times[size] * max(spread.relative_half_width, FINEST)) ** -2
        for size, spread in spreads.items()
    }
