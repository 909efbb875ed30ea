"""Sizes beside each other, in words, by the unit that they were compared in."""

from __future__ import annotations

from ... import units
from ...records import Choice, Spread
from ...spread import ratio_of
from ..choose.decision import Because, Rival
from ..measured.measurements import Measurements
from ..measured.trials import says_nothing
from . import disturbances

NO_RATIO = 10
"""An interval whose ends differ by such a factor shows nothing."""


def rate_name(measurements: Measurements) -> str:
    """Names the quantity that speeds are compared by, as the headline does."""
    return units.rate_name(of_tokens=measurements.tokens_a_sample is not None)


def throughput_name(measurements: Measurements) -> str:
    """Names that quantity where no number follows."""
    return "throughput" + ("" if measurements.tokens_a_sample is None else " in real tokens")


def beside(because: Because, what: str) -> str:
    """How the chosen size compares with its rival; empty where they were not measured again.

    More than 100% of the one that the search found the fastest is no number to stand behind where
    the interval leaves it open which of them is faster.

    Args:
        what: of the other one it is a share of.
    """
    ratio = because.ratio
    if ratio is None:
        return ""
    between = f"{ratio.low:.1%} to {ratio.high:.1%}"
    if ratio.low <= 1 < ratio.median:
        return f"in turn it and {because.rival} cannot be told apart ({between} of {what})"
    return f"{ratio.median:.1%} of {what} (measured in turn, {between})"


def against_own(choice: Choice, native: Choice, ratio: Spread | None, rate: str) -> str:
    """Words how much a size gains over the script's own; empty where one of them was not timed.

    Args:
        ratio: of the two in a comparison; `None` without one.
        rate: what it is one of.
    """
    if choice.samples_per_s is None or native.samples_per_s is None:
        return ""
    own = f"the script's own {native.batch_size}"
    if ratio is None:
        ratio = ratio_of(choice.samples_per_s, native.samples_per_s)
        if not (choice.samples_per_s.is_interval and native.samples_per_s.is_interval):
            return (
                f"x{ratio.median:.2f} the {rate} of {own}; one value alone does not show how "
                "much of that is noise."
            )
    between = f"(x{ratio.low:.2f} to x{ratio.high:.2f})"
    if ratio.low <= 1 <= ratio.high:
        return f"No difference from {own} beyond the noise {between}."
    if says_nothing(ratio):
        return f"{'Faster' if ratio.low > 1 else 'Slower'} than {own} {between}."
    return f"x{ratio.median:.2f} the {rate} of {own} {between}."


def left_open(measurements: Measurements, rival: Rival) -> str:
    """Says that noise leaves it open whether another size is faster, and what to do about it."""
    low, high = rival.ratio.low, rival.ratio.high
    between = f"x{low:.2f} to x{high:.2f} the {rate_name(measurements)}"
    if low > 1:
        return f"{rival.size} is faster ({between})."
    shown = f"whether {rival.size} is faster ({between})"
    if high > NO_RATIO * low:
        shown = f"how fast {rival.size} is"
    return f"Too noisy to tell {shown}. {disturbances.remedy(measurements)}"
