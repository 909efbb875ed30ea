"""The sentences of the advice: what to use, why, and which line to change."""

from __future__ import annotations

from ..records import Choice, RunRecord, Spread
from ..units import format_bytes, format_measured, format_share
from . import clean_size, disturbances
from .confirm import DRIFT, ROUNDS, finalists, num_comparisons, passed_over, ratio_to
from .energy import samples_per_joule, thriftiest, why_not
from .facts import (
    best_timed,
    can_be_delivered,
    confirmations,
    failed,
    input_widening,
    known_bad,
    over_target,
    ran,
    searched,
    smallest_bad,
    target_bytes,
    trusted_memory,
)
from .knee import fastest, knee, tail_avoided
from .own_size import Decision, says_nothing
from .scaling import input_share
from .sizes import smallest_sound
from .tail import harmful
from .thresholds import INPUT_SHARE


def headline(choice: Choice | None, decision: Decision | None = None) -> str:
    """The verdict in one line."""
    if choice is None:
        return "No batch size can be recommended."
    standing = "better" if decision is None else decision.standing
    kept = standing in ("own", "worse", "too noisy") and decision is not None
    words = [f"{'Keep' if kept else 'Use'} batch size {choice.batch_size}"]
    if standing == "asked for":
        words = [f"Of the sizes asked for, {choice.batch_size}"]
    if standing == "too noisy" and decision is not None:
        other = "another" if decision.considered is None else str(decision.considered)
        words.append(f"too noisy to tell whether {other} is better")
    elif choice.samples_per_s is not None and not says_nothing(choice.samples_per_s):
        words.append(f"{format_rate(choice.samples_per_s)}")
    if choice.peak_bytes is not None:
        words.append(f"peak {format_bytes(choice.peak_bytes)}")
    return ": ".join([words[0], ", ".join(words[1:])]) if words[1:] else words[0]


def format_rate(rate: Spread) -> str:
    """Samples per second with the interval: plus or minus, or low to high where it is skewed."""
    half = rate.relative_half_width if rate.is_interval else 1.0
    if rate.is_skewed:
        low, high = (format_measured(value, half) for value in (rate.low, rate.high))
        return f"{low}–{high} samples/s"  # noqa: RUF001  a range
    text = f"{format_measured(rate.median, half)} samples/s"
    if rate.is_interval:
        text += f" ±{half:.0%}" if half >= 0.095 else f" ±{half:.1%}"
    return text


def reason(
    record: RunRecord,
    choice: Choice | None,
    native: Choice | None,
    decision: Decision | None = None,
) -> str:
    """Why this size, and what it gains over the script's own."""
    if decision is not None and decision.standing == "not compared":
        return _not_compared(record)
    if choice is None:
        return _why_nothing(record)
    if decision is not None and decision.standing in ("worse", "too noisy"):
        return " ".join(
            part for part in (_kept(record, choice, decision), _left_out(record, native)) if part
        )
    if decision is not None and decision.standing == "asked for":
        own = record.discovery.native_batch_size if record.discovery is not None else 0
        others = [size for size in best_timed(record) if size != choice.batch_size]
        why = f"{_objective(record, choice)} " if others else ""
        add = "add it to --sizes" if record.goal.sizes else "lift the bound"
        return (
            f"{why}The script's own {own} was not asked for, so that nothing says how it "
            f"compares: {add} to find out."
        )
    parts = [_objective(record, choice)]
    if native is not None and native.batch_size != choice.batch_size:
        parts.append(_against_native(choice, native, decision))
    elif native is not None:
        parts.append("This is the size the script has already.")
    parts.append(_left_out(record, native))
    return " ".join(one for one in parts if one)


def _not_compared(record: RunRecord) -> str:
    """Why nothing is recommended where the script's own size was not timed."""
    own = record.discovery.native_batch_size if record.discovery is not None else 0
    done = ", ".join(map(str, sorted({trial.batch_size for trial in ran(record)})))
    return (
        f"The script's own {own} was not timed, and no other size is recommended without a "
        f"comparison with it. Sizes that ran: {done}. Continue with --resume."
    )


def _kept(record: RunRecord, choice: Choice, decision: Decision) -> str:
    """Why the script keeps its size although the search found another."""
    size, ratio = decision.considered, decision.ratio
    between = ""
    if ratio is not None:
        between = f" (x{ratio.low:.2f} to x{ratio.high:.2f} the samples per second)"
    if decision.standing == "worse":
        return (
            f"The search chose {size}, but compared with the script's own {choice.batch_size} it "
            f"is not better{between}."
        )
    because = disturbances.said(record)
    other = "another size" if size is None else str(size)
    return (
        f"The measurements do not tell whether {other} is better than the script's own "
        f"{choice.batch_size}{between}{': ' + because if because else ''}. "
        f"{disturbances.remedy(record)}"
    )


def _left_out(record: RunRecord, native: Choice | None) -> str:
    """The sizes that ran and take too much memory; where the largest is sought only the own."""
    own = None if native is None else native.batch_size
    over = {one.batch_size for one in ran(record) if over_target(record, one.batch_size)}
    if record.goal.kind == "memory":
        over &= {own}
    if not over:
        return ""
    names = [f"the script's own {one}" if one == own else str(one) for one in sorted(over)]
    return f"Left out, for taking more than {_limit(record)}: {', '.join(names)}."


def _objective(record: RunRecord, choice: Choice) -> str:
    size, kind = choice.batch_size, record.goal.kind
    avoided = passed_over(record)
    if avoided is not None and avoided != size:
        return _instead_of(record, size, avoided)
    if kind == "memory":
        return f"The {_largest(record, size)}."
    if len(best_timed(record)) == 1:
        return "The only size that was timed."
    best = fastest(record)
    own = record.discovery.native_batch_size if record.discovery is not None else None
    sizes = searched(record)
    if kind == "knee" and size == own and size in sizes:
        share = input_share(sizes[size])
        if share >= INPUT_SHARE and not _surely_slower(record, size):
            return (
                f"The step waits {share:.0%} of its time for the DataLoader, and no batch size "
                "that ran is much faster: fix the loader first."
            )
    if kind == "energy":
        text = f"The size with the most samples per joule: {choice.samples_per_joule or 0:.4g}."
        if best is None or best == size:
            return f"{text} It is also the fastest."
        other = samples_per_joule(best_timed(record)[best])
        return text + (f" The fastest, {best}, reaches {other:.4g}." if other else "")
    if kind == "throughput" and best is not None and best != size:
        return _other_than_the_fastest(record, size, best)
    if kind == "throughput":
        return "The fastest size that ran; of sizes that noise cannot tell apart the smallest."
    return _knee(record, size, best)


def _surely_slower(record: RunRecord, size: int) -> bool:
    """Whether another size that ran is faster by more than the tolerance, fit to use or not."""
    rates = {other: one.samples_per_s for other, one in best_timed(record).items()}
    mine, floor = rates.get(size), 1 - record.goal.tolerance
    return mine is not None and any(
        one is not None and mine.high < floor * one.low for one in rates.values()
    )


def _other_than_the_fastest(record: RunRecord, size: int, best: int) -> str:
    """Why a size comes before the fastest of the search."""
    shown = _of(record, size, best, f"the throughput of {best}")
    if shown:
        return f"Faster in the fresh process than the fastest of the search: {shown}."
    confirmed = {one.batch_size for one in confirmations(record)}
    if size in confirmed and best not in confirmed:
        return (
            f"The fastest of the sizes that ran again in a fresh process; {best}, the fastest of "
            "the search, did not."
        )
    return f"The fastest size that can be recommended; {best}, the fastest of the search, cannot."


def _instead_of(record: RunRecord, size: int, best: int) -> str:
    """Why a clean size comes before the best one of its goal, and what that costs."""
    kind, most = record.goal.kind, clean_size.cost_of(record)
    end = f"and without its harmful last batch, which is worth up to {format_share(most)}"
    if kind == "memory":
        return f"Next to {best}, the {_largest(record, best)}, {end}."
    if kind == "energy":
        mine, theirs = (samples_per_joule(best_timed(record)[one]) or 0 for one in (size, best))
        return (
            f"Next to {best}, the size with the most samples per joule, {end}: {mine:.4g} "
            f"instead of {theirs:.4g}."
        )
    shown = _of(record, size, best, "its throughput")
    cost = f": {shown}" if shown else ""
    return f"Next to {best}, the fastest size that ran, {end}{cost}."


def _knee(record: RunRecord, size: int, best: int | None) -> str:
    """Which sentence holds, and how the size fared beside its rival in the fresh process."""
    others = [one for one in (*finalists(record), best) if one is not None and one != size]
    rival = next((one for one in others if ratio_to(record, size, one) is not None), None)
    ratio = None if rival is None else ratio_to(record, size, rival)
    why = _why_the_knee(record, size, best)
    if ratio is None or rival is None:
        return f"{why}."
    shown = _of(record, size, rival, f"the throughput of {rival}")
    floor = 1 - record.goal.tolerance
    if ratio[0] >= floor:
        return f"{why}: {shown}."
    if ratio[2] >= floor:
        doubt = "the noise does not tell whether that is less"
    elif num_comparisons(record, size, rival) < ROUNDS:
        doubt = "too few comparisons to tell; run again with a larger --budget"
    else:
        doubt = f"a drifting machine may move that by {DRIFT:.0%}; measure on a quieter one"
    found = f"By the search {why[0].lower()}{why[1:]}"
    return f"{found}. In the fresh process it reached {shown}: {doubt}."


def _why_the_knee(record: RunRecord, size: int, best: int | None) -> str:
    tolerance = format_share(record.goal.tolerance)
    if best is not None and size > best and size != knee(record):
        return _moved_by_the_confirmation(record, size, best)
    if best is not None and best < smallest_sound(record) <= size:
        return f"The fastest of the search, {best}, is too small for BatchNorm's statistics"
    if best is not None and size > best and harmful(record, best):
        return (
            f"Next to {best}, the fastest of the search, and without its short last batch; "
            f"within {tolerance} of the best"
        )
    if best == size:
        return (
            f"The smallest size within {tolerance} of the best throughput, and the fastest "
            "of the search"
        )
    avoided = tail_avoided(record)
    if avoided is not None and avoided < size:
        return (
            f"Next to {avoided}, the smallest size within {tolerance} of the best, and without "
            "its harmful last batch"
        )
    return f"The smallest size that reaches {format_share(1 - record.goal.tolerance)} of the best"


def _moved_by_the_confirmation(record: RunRecord, size: int, best: int) -> str:
    """Why a size comes before a smaller one, the fastest of the search."""
    found = ratio_to(record, size, best)
    if found is not None and found[0] > 1:
        return f"Faster in the fresh process than {best}, the fastest of the search"
    return f"Taken for {best}, the fastest of the search, which the fresh process turned down"


def _of(record: RunRecord, size: int, other: int, what: str) -> str:
    """How two sizes compare in the confirmation, in words; empty where they do not."""
    ratio = ratio_to(record, size, other)
    if ratio is None:
        return ""
    middle, low, high = ratio
    once = num_comparisons(record, size, other) == 1
    how = "one comparison" if once else f"measured in turn, {low:.1%} to {high:.1%}"
    return f"{middle:.1%} of {what} ({how})"


def _largest(record: RunRecord, size: int) -> str:
    """What is known of the largest size: that it ran, and below what it stays."""
    if target_bytes(record) is None:
        return "largest size that ran (how much memory there is was not found)"
    if size not in trusted_memory(record):
        return "largest size that ran (its memory was not measured)"
    return f"largest size that ran and stays below {_limit(record)}"


def _limit(record: RunRecord) -> str:
    """What a size may take, and how that follows from the capacity."""
    less = f"capacity less {format_share(record.goal.margin)}"
    widening = input_widening(record)
    if widening > 1:
        less += f", and {1 - 1 / widening:.0%} of that kept for longer batches"
    return f"{format_bytes(target_bytes(record) or 0)} ({less})"


def _against_native(choice: Choice, native: Choice, decision: Decision | None) -> str:
    if choice.samples_per_s is None or native.samples_per_s is None:
        return ""
    own = native.batch_size
    ratio = None if decision is None else decision.ratio
    if ratio is None:
        times = choice.samples_per_s.median / native.samples_per_s.median
        if not (choice.samples_per_s.is_interval and native.samples_per_s.is_interval):
            return (
                f"x{times:.2f} the samples per second of the script's own {own}; one value "
                "alone does not show how much of that is noise."
            )
        ratio = Spread(
            median=times,
            low=choice.samples_per_s.low / native.samples_per_s.high,
            high=choice.samples_per_s.high / native.samples_per_s.low,
            num_samples=2,
            confidence=0.9,
        )
    between = f"(x{ratio.low:.2f} to x{ratio.high:.2f})"
    if ratio.low <= 1 <= ratio.high:
        return f"No difference from the script's own {own} beyond the noise {between}."
    if says_nothing(ratio):
        return f"Faster than the script's own {own} {between}."
    return f"x{ratio.median:.2f} the samples per second of the script's own {own} {between}."


def _why_nothing(record: RunRecord) -> str:
    if record.goal.kind == "energy" and best_timed(record) and thriftiest(record) is None:
        why = why_not(record)  # names and numbers of the driver keep their capitals
        return f"{why[:1].upper()}{why[1:]}. --goal throughput needs none."
    target = target_bytes(record)
    peaks = trusted_memory(record)
    if target is not None and peaks and all(one.peak_bytes > target for one in peaks.values()):
        smallest = min(peaks)
        return (
            f"Every size that ran takes more than {_limit(record)}: batch {smallest} took "
            f"{format_bytes(peaks[smallest].peak_bytes)}."
        )
    sizes = {one.batch_size for one in ran(record)}
    if sizes and record.discovery and not any(can_be_delivered(record, one) for one in sizes):
        return (
            f"The dataset has {record.discovery.primary.num_samples} samples, so the "
            f"script's own loader never yields a batch of {min(sizes)} or more."
        )
    untimed = sizes - best_timed(record).keys()
    fit = [size for size in untimed if not known_bad(record, size)]
    if fit and record.goal.kind != "memory":
        return (
            f"Sizes up to {max(fit)} ran and none of them was timed, which --goal "
            f"{record.goal.kind} needs. --goal memory does not."
        )
    bad = smallest_bad(record)
    if bad is not None:
        worst = min(failed(record), key=lambda one: one.batch_size)
        limit = f" within {format_bytes(record.device.capacity_bytes)}" if record.device else ""
        if worst.outcome == "out_of_memory":
            return f"Nothing fits{limit}: batch {worst.batch_size} ran out of memory."
        return f"Batch {worst.batch_size} failed: {worst.detail}"
    if record.faults:
        return record.faults[-1].detail
    return record.stop_reason or "Nothing was measured."


def change(record: RunRecord, size: int | None, micro_batches: int | None) -> str:
    """The line to change, as the user would find it.

    Args:
        micro_batches: that the advice accumulates over; `None` leaves the script's own.
    """
    if record.discovery is None or size is None:
        return ""
    loader = record.discovery.primary
    native = record.discovery.native_batch_size
    same = micro_batches in (None, record.discovery.micro_batches)
    if size == native and same:
        return "nothing to change"
    source = loader.source
    if source is None and record.discovery.door == "template":
        text = f"the script's argument {{batch_size}} → {size}"
    elif source is None:
        where = f"{loader.place}  " if loader.place is not None else ""
        text = f"{where}batch_size={native} → {size}"
    elif not source.template:
        text = f"{source.place}  {source.before}  ({native} → {size})"
    else:
        text = f"{source.place}  {source.before} → {source.template.format(size)}"
        if source.option is not None and not source.before.startswith("-"):
            text += f"   (or on the command line: {source.option} {size})"
    if not same:
        text += f"; accumulate over {micro_batches} micro-batches"
    return text
