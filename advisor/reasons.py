"""The sentences of the advice: what to use, why, and which line to change."""

from __future__ import annotations

from ..records import Choice, RunRecord
from ..units import format_bytes, format_measured
from . import clean_size
from .confirm import DRIFT, ROUNDS, finalists, num_comparisons, passed_over, ratio_to
from .energy import samples_per_joule, thriftiest, why_not
from .facts import best_timed, failed, searched, smallest_bad, target_bytes, trusted_memory
from .knee import fastest, tail_avoided
from .scaling import input_share
from .thresholds import INPUT_SHARE


def headline(choice: Choice | None) -> str:
    """The verdict in one line."""
    if choice is None:
        return "No batch size can be recommended."
    words = [f"Use batch size {choice.batch_size}"]
    if choice.samples_per_s is not None:
        rate = choice.samples_per_s
        value = format_measured(rate.median, rate.relative_half_width)
        half = rate.relative_half_width
        words.append(
            f"{value} samples/s ±{half:.0%}" if half >= 0.095 else f"{value} samples/s ±{half:.1%}"
        )
    if choice.peak_bytes is not None:
        words.append(f"peak {format_bytes(choice.peak_bytes)}")
    return ": ".join([words[0], ", ".join(words[1:])]) if words[1:] else words[0]


def reason(record: RunRecord, choice: Choice | None, native: Choice | None) -> str:
    """Why this size, and what it gains over the script's own."""
    if choice is None:
        return _why_nothing(record)
    parts = [_objective(record, choice)]
    if native is not None and native.batch_size != choice.batch_size:
        parts.append(_against_native(choice, native))
    elif native is not None:
        parts.append("This is the size the script has already.")
    return " ".join(parts)


def _objective(record: RunRecord, choice: Choice) -> str:
    size, kind = choice.batch_size, record.goal.kind
    avoided = passed_over(record)
    if avoided is not None and avoided != size:
        return _instead_of(record, size, avoided)
    if kind == "memory":
        target = target_bytes(record) or 0
        return (
            f"The largest size that ran and stays below {format_bytes(target)} "
            f"(capacity less {_percent(record.goal.margin)})."
        )
    best = fastest(record)
    own = record.discovery.native_batch_size if record.discovery is not None else None
    sizes = searched(record)
    if kind == "knee" and size == own and size in sizes:
        share = input_share(sizes[size])
        if share >= INPUT_SHARE:
            return (
                f"The step waits {share:.0%} of its time for the DataLoader, so no batch size "
                "gains anything: mend the loader first."
            )
    if kind == "energy":
        text = f"The size with the most samples per joule: {choice.samples_per_joule or 0:.4g}."
        if best is None or best == size:
            return f"{text} It is the fastest as well."
        other = samples_per_joule(best_timed(record)[best])
        return text + (f" The fastest, {best}, reaches {other:.4g}." if other else "")
    if kind == "throughput" and best is not None and best != size:
        ratio = ratio_to(record, size, best)
        assert ratio is not None  # it is what turned the other down
        shown = _of(ratio, f"the throughput of {best}", once=False)
        return f"Faster in the fresh process than the fastest of the search: {shown}."
    if kind == "throughput":
        return "The fastest size that ran; of sizes that noise cannot tell apart the smallest."
    return _knee(record, size, best)


def _instead_of(record: RunRecord, size: int, best: int) -> str:
    """Why a clean size comes before the best one of its goal, and what that costs."""
    kind, most = record.goal.kind, clean_size.cost_of(record)
    end = f"and without its harmful last batch, which is worth up to {most:.0%}"
    if kind == "memory":
        target = format_bytes(target_bytes(record) or 0)
        return f"Next to {best}, the largest size that ran and stays below {target}, {end}."
    if kind == "energy":
        mine, theirs = (samples_per_joule(best_timed(record)[one]) or 0 for one in (size, best))
        return (
            f"Next to {best}, the size with the most samples per joule, {end}: {mine:.4g} "
            f"instead of {theirs:.4g}."
        )
    ratio = ratio_to(record, size, best)
    once = num_comparisons(record, size, best) == 1
    cost = f": {_of(ratio, 'its throughput', once=once)}" if ratio is not None else ""
    return f"Next to {best}, the fastest size that ran, {end}{cost}."


def _knee(record: RunRecord, size: int, best: int | None) -> str:
    """Which sentence holds, and how the size fared beside its rival in the fresh process."""
    rival = next((one for one in finalists(record) if one != size), best)
    ratio = ratio_to(record, size, rival) if rival not in (None, size) else None
    why = _why_the_knee(record, size, best)
    if ratio is None or rival is None:
        return f"{why}."
    once = num_comparisons(record, size, rival) == 1
    shown = _of(ratio, f"the throughput of {rival}", once=once)
    if ratio[2] >= 1 - record.goal.tolerance:
        return f"{why}: {shown}."
    if num_comparisons(record, size, rival) < ROUNDS:
        doubt = "too few comparisons to tell; run again with a larger --budget"
    else:
        doubt = f"a drifting machine may move that by {DRIFT:.0%}; measure on a quieter one"
    found = f"By the search {why[0].lower()}{why[1:]}"
    return f"{found}. In the fresh process it reached {shown}: {doubt}."


def _why_the_knee(record: RunRecord, size: int, best: int | None) -> str:
    tolerance = record.goal.tolerance
    if best is not None and size > best:
        return (
            f"Next to {best}, the fastest of the search, and without its short last batch; "
            f"within {tolerance:.0%} of the best"
        )
    if best == size:
        return (
            f"The smallest size within {tolerance:.0%} of the best throughput, and the fastest "
            "of the search"
        )
    avoided = tail_avoided(record)
    if avoided is not None and avoided < size:
        return (
            f"Next to {avoided}, the smallest size within {tolerance:.0%} of the best, and without "
            "its harmful last batch"
        )
    return f"The smallest size that reaches {1 - tolerance:.0%} of the best"


def _of(ratio: tuple[float, float, float], what: str, *, once: bool) -> str:
    """A ratio of the confirmation in words."""
    middle, low, high = ratio
    how = "one comparison" if once else f"measured in turn, {low:.1%} to {high:.1%}"
    return f"{middle:.1%} of {what} ({how})"


def _percent(share: float) -> str:
    return f"{100 * share:.4g}%"


def _against_native(choice: Choice, native: Choice) -> str:
    if choice.samples_per_s is None or native.samples_per_s is None:
        return ""
    ratio = choice.samples_per_s.median / native.samples_per_s.median
    low = choice.samples_per_s.low / native.samples_per_s.high
    high = choice.samples_per_s.high / native.samples_per_s.low
    if low <= 1 <= high:
        return (
            f"Against the script's own {native.batch_size} the noise shows no difference "
            f"(x{low:.2f} to x{high:.2f})."
        )
    return (
        f"x{ratio:.2f} the samples per second of the script's own {native.batch_size} "
        f"(x{low:.2f} to x{high:.2f})."
    )


def _why_nothing(record: RunRecord) -> str:
    if record.goal.kind == "energy" and best_timed(record) and thriftiest(record) is None:
        return f"{why_not(record)}. --goal throughput needs none.".capitalize()
    target = target_bytes(record)
    peaks = trusted_memory(record)
    if target is not None and peaks and all(one.peak_bytes > target for one in peaks.values()):
        smallest = min(peaks)
        return (
            f"Every size that ran takes more than {format_bytes(target)} (capacity less "
            f"{_percent(record.goal.margin)}): batch {smallest} took "
            f"{format_bytes(peaks[smallest].peak_bytes)}."
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


def change(record: RunRecord, size: int | None, micro_batches: int) -> str:
    """The line to change, as the user would find it."""
    if record.discovery is None or size is None:
        return ""
    loader = record.discovery.primary
    native = record.discovery.native_batch_size
    if size == native and micro_batches == record.discovery.micro_batches:
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
        if source.option is not None and not source.before.startswith(source.option):
            text += f"   (or on the command line: {source.option} {size})"
    if micro_batches != record.discovery.micro_batches:
        text += f"; accumulate over {micro_batches} micro-batches"
    return text
