"""The gradient noise scale from pairs of small and large gradients: an interval, never a point."""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt

from ...spread import student

MIN_NOISE_STEPS = 8
"""Fewer measured steps give no interval that could be believed."""
NOISE_CONFIDENCE = 0.95


def noise_interval(
    pairs: Sequence[tuple[float, float]], small: int, large: int
) -> tuple[float | None, float | None] | str:
    """The interval of tr(Sigma)/|G|^2 in samples, or why there is none.

    From |g|^2 of gradients over `small` and over `large` samples each step gives unbiased
    estimates (McCandlish et al. 2018, arXiv 1812.06162, appendix A.1)

        G2 = (large |g_large|^2 - small |g_small|^2) / (large - small)
        S  = (|g_small|^2 - |g_large|^2) / (1/small - 1/large)

    Both are averaged over the steps before they are divided. The interval is that of the inverse
    ratio G2/S, whose denominator is far from zero, by the jackknife over the steps and Student's t;
    inverted afterwards. Where it reaches zero only a lower bound is left.

    Args:
        pairs: mean squared norm of the small gradients, squared norm of the large one, a step each.
        small, large: samples behind them.

    Returns:
        Low and high; high is `None` where only the lower bound is supported. It is then one-sided
        at the same confidence.
    """
    if large <= small or small < 1:
        return "one gradient a step: accumulation or several ranks are needed"
    num = len(pairs)
    if num < MIN_NOISE_STEPS:
        return f"{MIN_NOISE_STEPS} measured steps are needed, there are {num}"
    signal = [
        (large * large_norm - small * small_norm) / (large - small)
        for small_norm, large_norm in pairs
    ]
    noise = [
        (small_norm - large_norm) / (1 / small - 1 / large) for small_norm, large_norm in pairs
    ]
    sum_signal, sum_noise = sum(signal), sum(noise)
    if sum_noise <= 0:
        return "the gradients of a step do not differ measurably"
    left_out = [
        (sum_signal - step_signal) / rest if (rest := sum_noise - step_noise) > 0 else None
        for step_signal, step_noise in zip(signal, noise, strict=True)
    ]
    known = [estimate for estimate in left_out if estimate is not None]
    if len(known) < num:
        return "a single step makes up all of the noise"
    ratio = sum_signal / sum_noise
    mean = sum(known) / num
    error = sqrt((num - 1) / num * sum((estimate - mean) ** 2 for estimate in known))
    two_sided = student(num - 1, NOISE_CONFIDENCE) * error
    if ratio - two_sided > 0:
        return 1 / (ratio + two_sided), 1 / (ratio - two_sided)
    upper = ratio + student(num - 1, 2 * NOISE_CONFIDENCE - 1) * error  # one-sided
    if upper <= 0:
        return "the noise hides the gradient altogether"
    return 1 / upper, None
