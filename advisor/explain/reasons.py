"""The sentences of the advice: why this size, and what it gains over the own one.

They put a decision into words. What was chosen, and by which rule, they are told.
"""

from __future__ import annotations

from ...records import Choice
from ...units import format_bytes, format_seconds, format_share
from ..choose.decision import Because, Decision, Rival, Rule
from ..measured.measurements import Measurements
from ..measured.sizes import MIN_STEPS_AN_EPOCH, stopped_by_steps
from . import disturbances
from .length_findings import risk_words
from .ratios import against_own, beside, left_open, rate_name, throughput_name
from .token_findings import pads_less

FASTEST_BY_THE_SEARCH: tuple[Rule, ...] = (
    "within the tolerance and fastest",
    "highest of the search",
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
    if choice is None or because.rule == "asked for":
        return parts[0]
    discovery = measurements.record.discovery
    if decision.standing == "own unknown" and discovery is not None:
        why = discovery.why_own_unknown
        parts.append(f"The script's own size is unknown, nothing is compared with it: {why}.")
    if because.rule not in ("not better", "hardly faster", "too noisy"):
        if native is not None and native.batch_size != choice.batch_size:
            parts.append(against_own(choice, native, decision.ratio, rate_name(measurements)))
            parts.append(_load(measurements, choice.batch_size, native.batch_size))
            if decision.standing == "better":
                parts.append(pads_less(measurements, choice.batch_size, native.batch_size))
        elif native is not None:
            parts.append("This is the size the script has already.")
            if max(measurements.best_timed, default=0) <= choice.batch_size:
                parts.append(_nothing_larger(measurements))
        if decision.against is not None:
            parts.append(left_open(measurements, decision.against))
    parts.append(risk_words(measurements, choice.batch_size))
    parts.append(_left_out(measurements, native))
    return " ".join(part for part in parts if part)


def _load(measurements: Measurements, size: int, own: int) -> str:
    """Beside what two sizes were compared, where one was never read without others on its cores."""
    if not {size, own} <= measurements.best_timed.keys() or measurements.speeds.calm(size, own):
        return ""
    load = disturbances.said(measurements) or disturbances.UNNAMED
    variables = disturbances.variables_of(measurements)
    beside = f"beside others{f', with {variables}' if variables else ''}"
    return (
        f"They were compared {beside}; on a quiet machine they may differ by less, "
        f"or the other way round: {load}."
    )


def _words(
    measurements: Measurements, decision: Decision, choice: Choice | None, because: Because
) -> str:
    """The rule that chose, in a sentence or two."""
    other, numbers, sizes = because.other, because.numbers, ", ".join(map(str, because.sizes))
    match because.rule:
        case "only timed":
            return "The only size that was timed."
        case "largest":
            return f"The {_largest(measurements, decision.size)}."
        case "next to the largest" | "next to the thriftiest" | "next to the fastest":
            return _instead_of(measurements, because)
        case "loader sets the pace":
            return (
                f"The step waits {numbers[0]:.0%} of its time for the DataLoader, and no batch "
                "size that ran is surely much faster: fix the loader first."
            )
        case "thriftiest":
            return _thriftiest(because, choice)
        case "fastest":
            return "The fastest size that ran; of sizes that noise cannot tell apart the smallest."
        case "faster again":
            shown = _beside(measurements, because)
            return f"Faster in the fresh process than the fastest of the search: {shown}."
        case "fastest confirmed":
            return (
                f"The fastest of the sizes that ran again in a fresh process; {other}, the fastest "
                "of the search, did not."
            )
        case "asked for":
            among = because.among
            why = ""
            if among is not None and among.rule != "only timed":
                why = f"{_words(measurements, decision, choice, among)} "
            add = "add it to --sizes" if measurements.goal.sizes else "lift the bound"
            if not measurements.goal.sizes and (other or 0) % measurements.goal.multiple_of:
                add = "leave --multiple-of out"
            return (
                f"{why}The script's own {other} was not asked for, so that nothing says how it "
                f"compares: {add} to find out."
            )
        case "not better" | "hardly faster" | "too noisy":
            return _kept(measurements, decision)
        case "surely faster":
            return (
                "The size that is most surely faster than the script's own. The search chose "
                f"{other}, of which the noise does not tell that."
            )
        case "not compared":
            return (
                f"The script's own {other} was not timed, and no other size is recommended without "
                f"a comparison with it. Sizes that ran: {sizes}. {_more_time(measurements)}"
            )
        case "nothing larger":
            return (
                f"Nothing above the script's own {other} was timed before the time was over, so "
                f"that nothing says whether a larger batch pays. Sizes timed: {sizes}. "
                f"{_more_time(measurements, larger=True)}"
            )
    return _nothing(measurements, because) or _knee(measurements, because, decision.against)


def _kept(measurements: Measurements, decision: Decision) -> str:
    """Why the script keeps its size although the search found another."""
    own, size, ratio = decision.size, decision.considered, decision.ratio
    between = ""
    if ratio is not None:
        between = f" (x{ratio.low:.2f} to x{ratio.high:.2f} the {rate_name(measurements)})"
    if decision.because.rule == "hardly faster" and ratio is not None:
        return (
            f"The search chose {size}, which is at most x{ratio.high:.2f} as fast as the script's "
            f"own {own}{between}. No change is worth that."
        )
    if decision.standing == "no gain":
        return (
            f"The search chose {size}, which is about as fast as the script's own {own}{between} "
            "and not much smaller. A change gains nothing."
        )
    if decision.because.rule == "not better":
        what = f"gives no more {decision.because.why}" if decision.because.why else "is not better"
        return (
            f"The search chose {size}, but compared with the script's own {own} it {what}{between}."
        )
    # Which size, and how it compares, the headline says.
    cause, numbers = disturbances.said(measurements), decision.because.numbers
    most = f"No size that was timed is more than x{numbers[0]:.2f} as fast. " if numbers else ""
    return (
        f"The script keeps its own {own} until a measurement tells{': ' + cause if cause else ''}. "
        f"{most}{disturbances.remedy(measurements)}"
    )


def _nothing_larger(measurements: Measurements) -> str:
    """Why no larger size stands beside the script's own, where nothing was amiss with one."""
    if stopped_by_steps(measurements) is None:
        return ""
    return (
        f"No larger one was tried: an epoch would have fewer than {MIN_STEPS_AN_EPOCH} optimizer "
        "steps (--max-batch lifts this bound)."
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


def _instead_of(measurements: Measurements, because: Because) -> str:
    """Why a clean size comes before the best one of its goal, and what that costs."""
    cost, *per_joule = because.numbers
    avoided = because.other
    end = f"and without its harmful last batch, which is worth up to {format_share(cost)}"
    if because.rule == "next to the largest":
        return f"Next to {avoided}, the {_largest(measurements, avoided)}, {end}."
    if because.rule == "next to the thriftiest":
        mine, theirs = per_joule
        return (
            f"Next to {avoided}, the size with the most samples per joule, {end}: "
            f"{mine:.4g} instead of {theirs:.4g}."
        )
    shown = beside(because, f"its {throughput_name(measurements)}")
    return f"Next to {avoided}, the fastest size that ran, {end}{shown and ': '}{shown}."


def _thriftiest(because: Because, choice: Choice | None) -> str:
    mine = 0 if choice is None else choice.samples_per_joule or 0
    if any(number > mine for number in because.numbers):
        return (
            f"The smallest size that cannot be told from the most samples per joule: {mine:.4g}. "
            f"The fastest, {because.other}, reads {because.numbers[0]:.4g}."
        )
    text = f"The size with the most samples per joule: {mine:.4g}."
    if because.other is None:
        return f"{text} It is also the fastest."
    if not any(because.numbers):
        return text
    return f"{text} The fastest, {because.other}, reaches {because.numbers[0]:.4g}."


def _knee(measurements: Measurements, because: Because, against: Rival | None) -> str:
    """Which sentence holds, and how the size fared beside its rival once both ran again.

    Args:
        against: what is said of it after this sentence has figures of its own; nothing else is
            said of the same pair.
    """
    why = _why_the_knee(measurements, because)
    if because.ratio is None:
        return f"{why}."
    doubted = because.ratio.median < 1 - measurements.goal.tolerance
    if against is not None and against.size == because.rival:
        return f"By the search {why[0].lower()}{why[1:]}." if doubted else f"{why}."
    shown = _beside(measurements, because)
    # The fastest by the search that all together read slower: each figure with its own clock.
    slower = because.ratio.median < 1 and because.rule in FASTEST_BY_THE_SEARCH
    if not doubted:
        return f"{why}; measured again {shown}." if slower else f"{why}: {shown}."
    return (
        f"By the search {why[0].lower()}{why[1:]}. Measured again it reached {shown}: the noise "
        "does not tell whether that is less."
    )


def _why_the_knee(measurements: Measurements, because: Because) -> str:
    tolerance = format_share(measurements.goal.tolerance)
    enough = format_share(1 - measurements.goal.tolerance)
    other = because.other
    match because.rule:
        case "faster than the fastest":
            return f"Faster in the fresh process than {other}, the fastest of the search"
        case "in place of the fastest":
            return (
                f"Taken for {other}, the fastest of the search, which the fresh process turned down"
            )
        case "large enough for BatchNorm":
            return f"The fastest of the search, {other}, is too small for BatchNorm's statistics"
        case "clean beside the fastest":
            return (
                f"Next to {other}, the fastest of the search, and without its short last batch; "
                f"within {tolerance} of the best"
            )
        case "within the tolerance and fastest":
            return (
                f"The smallest size within {tolerance} of the best "
                f"{throughput_name(measurements)}, and the fastest of the {_searched(because)}"
            )
        case "worth a change":
            return (
                f"The smallest size within {tolerance} of the best "
                f"{throughput_name(measurements)} that gains as much over the script's own "
                f"({other} does not)"
            )
        case "highest of the search":
            return (
                f"The size with the highest {throughput_name(measurements)} of the "
                f"{_searched(because)}"
            )
        case "highest until measured again":
            return (
                f"The size with the highest {throughput_name(measurements)} of the "
                f"{_searched(because)}; measured again it was slower"
            )
        case "clean beside the smallest":
            return (
                f"Next to {other}, the smallest size within {tolerance} of the best, and without "
                "its harmful last batch"
            )
    return f"The smallest size that reaches {enough} of the best"


def _searched(because: Because) -> str:
    """Names the sizes among which one is the fastest; others that never met it may be faster."""
    if because.sizes:
        others = ", ".join(map(str, because.sizes))
        return f"sizes that took turns ({others} took none, and may be faster)"
    return "sizes that took turns in the search" if because.why else "search"


def _beside(measurements: Measurements, because: Because) -> str:
    return beside(because, f"the {throughput_name(measurements)} of {because.rival}")


def _largest(measurements: Measurements, size: int | None) -> str:
    """Describes the largest size: that it ran, and the limit below which it stays."""
    if measurements.target_bytes is None:
        return "largest size that ran (how much memory there is was not found)"
    if size not in measurements.trusted_memory:
        return "largest size that ran (its memory was not measured)"
    return f"largest size that ran and stays below {_limit(measurements)}"


def _limit(measurements: Measurements) -> str:
    """Words the bytes that a size may take, and how they follow from the capacity."""
    less = f"capacity less {format_share(measurements.goal.margin)}"
    widening = measurements.input_widening
    if widening > 1:
        less += f", and {1 - 1 / widening:.0%} of that kept for longer batches"
    return f"{format_bytes(measurements.target_bytes or 0)} ({less})"


def _nothing(measurements: Measurements, because: Because) -> str:
    """Why there is no size; empty where there is one."""
    other, numbers, why = because.other, because.numbers, because.why
    match because.rule:
        case "no energy":  # names and numbers of the driver keep their capitals
            return f"{why[:1].upper()}{why[1:]}. --goal throughput needs none."
        case "too large" if why == "lengths":
            return (
                "The longest batches of an epoch would not fit at any size that ran: "
                f"{measurements.named(other or 0)} took {format_bytes(numbers[0])} of "
                f"{_limit(measurements)} in its trial."
            )
        case "too large":
            return (
                f"Every size that ran takes more than {_limit(measurements)}: "
                f"{measurements.named(other or 0)} took {format_bytes(numbers[0])}."
            )
        case "never delivered":
            return (
                f"The dataset has {numbers[0]:.0f} samples, so the "
                f"script's own loader never yields a batch of {other} or more."
            )
        case "never timed":
            return (
                f"Sizes up to {other} ran and none of them was timed, which --goal "
                f"{measurements.goal.kind} needs. --goal memory does not."
            )
        case "too early":
            ran = f"Sizes up to {other} ran, and none was timed" if other else "Nothing was timed"
            step_s, more = measurements.script.native_step_s, _more_time(measurements, larger=True)
            slow = "" if step_s is None else f" One step as written took {format_seconds(step_s)}."
            return f"{ran} before the time was over.{slow} {more}"
        case "out of memory":
            device = measurements.record.device
            limit = f" within {format_bytes(device.capacity_bytes)}" if device else ""
            return f"Nothing fits{limit}: {measurements.named(other or 0)} ran out of memory."
        case "failed":
            return f"Batch {other} failed: {why}"
        case "nothing ran":
            return why
    return ""


def _more_time(measurements: Measurements, *, larger: bool = False) -> str:
    """How to have a comparison after all."""
    if measurements.script.in_this_process:
        return "Ask again with a larger budget."
    return f"Continue with --resume{' and a larger --budget' if larger else ''}."
