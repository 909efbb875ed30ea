"""The verdict in one line, and a rate with its interval."""

from __future__ import annotations

from ...records import Choice, LoaderInfo, Spread
from ...units import format_bytes, format_measured
from ..choose.decision import Decision
from ..measured.trials import says_nothing


def headline(
    choice: Choice | None, decision: Decision | None = None, loader: LoaderInfo | None = None
) -> str:
    """The verdict in one line.

    Args:
        loader: whose size it is, where that is no number of samples.
    """
    if choice is None:
        because = None if decision is None else decision.because
        if because is not None and because.rule == "nothing larger":
            return f"No answer yet: nothing above {because.other} was timed."
        if because is not None and because.rule == "not compared":
            return f"No answer yet: the script's own {because.other} was not timed."
        if because is not None and because.rule == "too early":
            return "No answer yet: no size was timed before the time was over."
        return "No batch size can be recommended."
    standing = "better" if decision is None else decision.standing
    kept = standing in ("own", "worse", "no gain", "too noisy") and decision is not None
    named = f"batch size {choice.batch_size}"
    if loader is not None and loader.axis != "samples":
        named = loader.named(choice.batch_size)
    words = [f"{'Keep' if kept else 'Use'} {named}"]
    if standing == "asked for":
        words = [f"Of the sizes asked for, {named.removeprefix('batch size ')}"]
    if choice.samples_per_s is not None:
        words.append(_rate_of(choice, choice.samples_per_s))
    if standing == "too noisy" and decision is not None:
        words.append(f"too noisy to tell whether {_other(choice, decision)}")
    if choice.peak_bytes is not None:
        words.append(f"peak {format_bytes(choice.peak_bytes)}")
    return ": ".join([words[0], ", ".join(words[1:])]) if words[1:] else words[0]


def _other(choice: Choice, decision: Decision) -> str:
    """`64 is better (x0.91 to x1.30)`; of a smaller size nobody expects that it is."""
    other = decision.considered
    named = "another" if other is None else str(other)
    what = "is as fast" if other is not None and other < choice.batch_size else "is better"
    if decision.because.why:
        what = f"gives more {decision.because.why}"
    between = "" if decision.ratio is None else f" ({interval_words(decision.ratio)})"
    return f"{named} {what}{between}"


def interval_words(ratio: Spread) -> str:
    """`x0.91 to x1.30`."""
    return f"x{ratio.low:.2f} to x{ratio.high:.2f}"


def _rate_of(choice: Choice, samples_per_s: Spread) -> str:
    """Words the rate: real tokens per second where sequences vary in length, else samples."""
    if choice.real_tokens_per_s is not None:
        return format_rate(choice.real_tokens_per_s, "real tokens/s")
    return format_rate(samples_per_s)


def format_rate(rate: Spread, unit: str = "samples/s") -> str:
    """Samples per second with the interval: plus or minus, or low to high.

    The latter where it is skewed, or so wide that its middle is no answer.
    """
    half = rate.relative_half_width if rate.is_interval else 1.0
    if rate.is_skewed or says_nothing(rate):
        low, high = (format_measured(value, half) for value in (rate.low, rate.high))
        return f"{low}–{high} {unit}"  # noqa: RUF001  a range
    text = f"{format_measured(rate.median, half)} {unit}"
    if rate.is_interval:
        text += f" ±{half:.0%}" if half >= 0.095 else f" ±{half:.1%}"
    return text
