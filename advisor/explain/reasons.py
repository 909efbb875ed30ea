"""The sentences of the advice: why this size, and what it gains over the own one.

They put a decision into words. What was chosen, and by which rule, they are told.
"""

from __future__ import annotations

from collections.abc import Iterable

from ...records import Choice
from ...units import format_bytes, format_share
from ..choose.because import (
    Again,
    AskedFor,
    Because,
    Failed,
    FasterAgain,
    Fastest,
    FastestConfirmed,
    FastestUsable,
    Knee,
    KneeRule,
    Largest,
    LoaderSetsThePace,
    NeverDelivered,
    NeverTimed,
    NextToFastest,
    NextToLargest,
    NextToThriftiest,
    NoEnergy,
    NotBetter,
    NotCompared,
    NothingLarger,
    NothingRan,
    OnlyTimed,
    OutOfMemory,
    Thriftiest,
    TooLarge,
    TooNoisy,
)
from ..choose.decision import Decision
from ..choose.knee import uncompared
from ..measured.measurements import Measurements
from ..measured.thresholds import DRIFT
from . import disturbances
from .length_findings import risk_words
from .ratios import against_own, beside, left_open, rate_name, throughput_name
from .token_findings import pads_less

OF_THE_SMALLEST: tuple[KneeRule, ...] = (
    "smallest within the tolerance",
    "smallest within the tolerance and fastest",
    "clean beside the smallest",
)
FASTEST_BY_THE_SEARCH: tuple[KneeRule, ...] = (
    "smallest within the tolerance and fastest",
    "fastest",
)


def reason(
    measurements: Measurements, decision: Decision, choice: Choice | None, native: Choice | None
) -> str:
    """Why this size, and what it gains over the script's own.

    Args:
        choice: the recommended size, as it was measured; `None` without one.
        native: the script's own size, as it was measured; `None` where it did not run.
    """
    because = decision.because
    parts = [_words(measurements, decision, choice, because)]
    if choice is None or isinstance(because, AskedFor):
        return parts[0]
    discovery = measurements.record.discovery
    if decision.standing == "own unknown" and discovery is not None:
        why = discovery.why_own_unknown
        parts.append(f"The script's own size is unknown, nothing is compared with it: {why}.")
    if not isinstance(because, NotBetter | TooNoisy):
        if native is not None and native.batch_size != choice.batch_size:
            parts.append(against_own(choice, native, decision.ratio, rate_name(measurements)))
            if decision.standing == "better":
                parts.append(pads_less(measurements, choice.batch_size, native.batch_size))
        elif native is not None:
            parts.append("This is the size the script has already.")
        if decision.against is not None:
            parts.append(left_open(measurements, decision.against))
    parts.append(risk_words(measurements, choice.batch_size))
    parts.append(_left_out(measurements, native))
    return " ".join(part for part in parts if part)


def _words(
    measurements: Measurements, decision: Decision, choice: Choice | None, because: Because
) -> str:
    """The rule that chose, in a sentence or two."""
    match because:
        case OnlyTimed():
            return "The only size that was timed."
        case Largest():
            return f"The {_largest(measurements, decision.size)}."
        case NextToLargest() | NextToThriftiest() | NextToFastest():
            return _instead_of(measurements, because)
        case LoaderSetsThePace(share):
            return (
                f"The step waits {share:.0%} of its time for the DataLoader, and no batch size "
                "that ran is much faster: fix the loader first."
            )
        case Thriftiest():
            return _thriftiest(because, choice)
        case Fastest() | FasterAgain() | FastestConfirmed() | FastestUsable():
            return _fastest(measurements, because)
        case Knee():
            return _knee(measurements, because)
        case AskedFor(own, rule):
            only = isinstance(rule, OnlyTimed)
            why = "" if only else f"{_words(measurements, decision, choice, rule)} "
            add = "add it to --sizes" if measurements.goal.sizes else "lift the bound"
            return (
                f"{why}The script's own {own} was not asked for, so that nothing says how it "
                f"compares: {add} to find out."
            )
        case NotBetter() | TooNoisy():
            return _kept(measurements, decision)
        case NotCompared(own, ran):
            return (
                f"The script's own {own} was not timed, and no other size is recommended without a "
                f"comparison with it. Sizes that ran: {_listed(ran)}. Continue with --resume."
            )
        case NothingLarger(own, timed):
            return (
                f"Nothing above the script's own {own} was timed before the time was over, so that "
                f"nothing says whether a larger batch pays. Sizes timed: {_listed(timed)}. "
                "Continue with --resume and a larger --budget."
            )
        case _:
            return _nothing(measurements, because)


def _kept(measurements: Measurements, decision: Decision) -> str:
    """Why the script keeps its size although the search found another."""
    own, size, ratio = decision.size, decision.considered, decision.ratio
    between = ""
    if ratio is not None:
        between = f" (x{ratio.low:.2f} to x{ratio.high:.2f} the {rate_name(measurements)})"
    if decision.standing == "no gain":
        return (
            f"The search chose {size}, which is about as fast as the script's own {own}{between} "
            "and not much smaller. A change gains nothing."
        )
    if isinstance(decision.because, NotBetter):
        return (
            f"The search chose {size}, but compared with the script's own {own} it "
            f"is not better{between}."
        )
    cause = disturbances.said(measurements)
    other = "another size" if size is None else str(size)
    than = "better than"
    if size is not None and own is not None and size < own:
        other, than = f"the smaller {size}", "as fast as"
    return (
        f"The measurements do not tell whether {other} is {than} the script's own "
        f"{own}{between}{': ' + cause if cause else ''}. "
        f"{disturbances.remedy(measurements)}"
    )


def _left_out(measurements: Measurements, native: Choice | None) -> str:
    """The sizes that ran and take too much memory; where the largest is sought only the own."""
    own = None if native is None else native.batch_size
    over = {size for size in measurements.sizes_that_ran if measurements.over_target(size)}
    if measurements.goal.kind == "memory":
        over &= {own}

    def names(sizes: set[int]) -> str:
        return ", ".join(
            f"the script's own {size}" if size == own else str(size) for size in sorted(sizes)
        )

    risky = {size for size in over if measurements.too_risky(size)}
    parts = []
    if over - risky:
        parts.append(f"for taking more than {_limit(measurements)}: {names(over - risky)}")
    if risky:
        parts.append(f"as the longest batches of an epoch would not fit: {names(risky)}")
    return f"Left out, {'; '.join(parts)}." if parts else ""


def _instead_of(
    measurements: Measurements, because: NextToLargest | NextToThriftiest | NextToFastest
) -> str:
    """Why a clean size comes before the best one of its goal, and what that costs."""
    most, avoided = format_share(because.cost), because.avoided
    end = f"and without its harmful last batch, which is worth up to {most}"
    if isinstance(because, NextToLargest):
        return f"Next to {avoided}, the {_largest(measurements, avoided)}, {end}."
    if isinstance(because, NextToThriftiest):
        return (
            f"Next to {avoided}, the size with the most samples per joule, {end}: "
            f"{because.mine:.4g} instead of {because.theirs:.4g}."
        )
    cost = (
        ""
        if because.again is None
        else f": {beside(because.again, f'its {throughput_name(measurements)}')}"
    )
    return f"Next to {avoided}, the fastest size that ran, {end}{cost}."


def _thriftiest(because: Thriftiest, choice: Choice | None) -> str:
    mine = 0 if choice is None else choice.samples_per_joule or 0
    text = f"The size with the most samples per joule: {mine:.4g}."
    if because.fastest is None:
        return f"{text} It is also the fastest."
    if not because.theirs:
        return text
    return f"{text} The fastest, {because.fastest}, reaches {because.theirs:.4g}."


def _fastest(
    measurements: Measurements,
    because: Fastest | FasterAgain | FastestConfirmed | FastestUsable,
) -> str:
    if isinstance(because, Fastest):
        return "The fastest size that ran; of sizes that noise cannot tell apart the smallest."
    if isinstance(because, FasterAgain):
        shown = _beside(measurements, because.again)
        return f"Faster in the fresh process than the fastest of the search: {shown}."
    best = because.fastest
    if isinstance(because, FastestConfirmed):
        return (
            f"The fastest of the sizes that ran again in a fresh process; {best}, the fastest of "
            "the search, did not."
        )
    return f"The fastest size that can be recommended; {best}, the fastest of the search, cannot."


def _knee(measurements: Measurements, because: Knee) -> str:
    """Which sentence holds, and how the size fared beside its rival in the fresh process."""
    why = _why_the_knee(measurements, because)
    if because.again is None:
        return f"{why}."
    shown = _beside(measurements, because.again)
    # The fastest by the search that the fresh process read slower: each figure with its own clock.
    slower = because.again.middle < 1 and because.rule in FASTEST_BY_THE_SEARCH
    if because.doubt == "none":
        return f"{why}; in the fresh process {shown}." if slower else f"{why}: {shown}."
    doubt = {
        "noise": "the noise does not tell whether that is less",
        "few readings": "too few comparisons to tell; run again with a larger --budget",
        "drift": f"a drifting machine may move that by {DRIFT:.0%}; measure on a quieter one",
    }[because.doubt]
    if because.rule in OF_THE_SMALLEST:  # the others say themselves whose word they are
        why = f"By the search {why[0].lower()}{why[1:]}"
    return f"{why}. In the fresh process it reached {shown}: {doubt}."


def _why_the_knee(measurements: Measurements, because: Knee) -> str:
    tolerance = format_share(measurements.goal.tolerance)
    enough = format_share(1 - measurements.goal.tolerance)
    beside = because.beside
    match because.rule:
        case "faster in the fresh process":
            return f"Faster in the fresh process than {beside}, the fastest of the search"
        case "the fresh process turned the fastest down":
            return (
                f"Taken for {beside}, the fastest of the search, which the fresh process turned "
                "down"
            )
        case "large enough for BatchNorm":
            return f"The fastest of the search, {beside}, is too small for BatchNorm's statistics"
        case "clean beside the fastest":
            return (
                f"Next to {beside}, the fastest of the search, and without its short last batch; "
                f"within {tolerance} of the best"
            )
        case "smallest within the tolerance and fastest":
            return (
                f"The smallest size within {tolerance} of the best "
                f"{throughput_name(measurements)}, and the fastest of the {_compared(measurements)}"
            )
        case "fastest":
            return (
                f"The size with the highest {throughput_name(measurements)} of the "
                f"{_compared(measurements)}"
            )
        case "clean beside the smallest":
            return (
                f"Next to {beside}, the smallest size within {tolerance} of the best, and without "
                "its harmful last batch"
            )
        case "smallest within the tolerance":
            return f"The smallest size that reaches {enough} of the best"


def _compared(measurements: Measurements) -> str:
    """What a size is the fastest of: sizes that took no turns may be faster."""
    others = uncompared(measurements)
    if not others:
        return "search"
    return f"sizes that took turns ({_listed(others)} read faster, and took none)"


def _beside(measurements: Measurements, again: Again) -> str:
    return beside(again, f"the {throughput_name(measurements)} of {again.other}")


def _largest(measurements: Measurements, size: int | None) -> str:
    """What is known of the largest size: that it ran, and below what it stays."""
    if measurements.target_bytes is None:
        return "largest size that ran (how much memory there is was not found)"
    if size not in measurements.trusted_memory:
        return "largest size that ran (its memory was not measured)"
    return f"largest size that ran and stays below {_limit(measurements)}"


def _limit(measurements: Measurements) -> str:
    """What a size may take, and how that follows from the capacity."""
    less = f"capacity less {format_share(measurements.goal.margin)}"
    widening = measurements.input_widening
    if widening > 1:
        less += f", and {1 - 1 / widening:.0%} of that kept for longer batches"
    return f"{format_bytes(measurements.target_bytes or 0)} ({less})"


def _nothing(
    measurements: Measurements,
    because: NoEnergy | TooLarge | NeverDelivered | NeverTimed | OutOfMemory | Failed | NothingRan,
) -> str:
    """Why there is no size."""
    match because:
        case NoEnergy(why):  # names and numbers of the driver keep their capitals
            return f"{why[:1].upper()}{why[1:]}. --goal throughput needs none."
        case TooLarge(smallest, peak_bytes):
            return (
                f"Every size that ran takes more than {_limit(measurements)}: "
                f"{measurements.named(smallest)} took {format_bytes(peak_bytes)}."
            )
        case NeverDelivered(num_samples, smallest):
            return (
                f"The dataset has {num_samples} samples, so the "
                f"script's own loader never yields a batch of {smallest} or more."
            )
        case NeverTimed(largest):
            return (
                f"Sizes up to {largest} ran and none of them was timed, which --goal "
                f"{measurements.goal.kind} needs. --goal memory does not."
            )
        case OutOfMemory(smallest):
            device = measurements.record.device
            limit = f" within {format_bytes(device.capacity_bytes)}" if device else ""
            return f"Nothing fits{limit}: {measurements.named(smallest)} ran out of memory."
        case Failed(smallest, detail):
            return f"Batch {smallest} failed: {detail}"
        case NothingRan(why):
            return why


def _listed(sizes: Iterable[int]) -> str:
    return ", ".join(map(str, sizes))
