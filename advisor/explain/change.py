"""The line to change, as the user would find it."""

from __future__ import annotations

from ...records import BatchSizeSource, Discovery, Following, RunRecord

WHOLE = "train_batch_size"
"""DeepSpeed's name for the samples of an optimizer step of all ranks."""


def change(record: RunRecord, size: int | None, micro_batches: int | None) -> str:
    """The line to change, as the user would find it.

    Args:
        micro_batches: that the advice accumulates over; `None` leaves the script's own.
    """
    if record.discovery is None or size is None:
        return ""
    loader, shared = record.discovery.primary, record.discovery.shared
    native = record.discovery.native_batch_size
    same = micro_batches in (None, record.discovery.micro_batches)
    if size == native and same and not record.discovery.why_own_unknown:
        return "nothing to change"
    source, name, own, number = loader.source, loader.size_name, native, size
    if shared is not None:
        source, name, own = shared.source, shared.name, shared.number
        number = own // native * size
    if source is None and record.discovery.traits.size_is_argument:
        text = f"the script's argument {{batch_size}} → {size}"
    elif source is None:
        where = f"{loader.place}  " if loader.place is not None else ""
        before = "" if record.discovery.why_own_unknown else f"={own}"
        text = f"{where}{name}{before} → {number}"
    elif not source.template:
        text = f"{source.place}  {source.before}  ({own} → {number})"
    else:
        text = _replaced(source, number)
    if shared is not None:
        text += f" (of all {number // size} ranks, {size} of each)"
    if source is not None:
        text += _others(source, own)
    text += _following(record.discovery, size, micro_batches)
    edit = record.edit
    if edit is not None and edit.size == size and edit.also is not None:
        text += f"; and {_replaced(edit.also, size)}"
    if not same:
        several = "" if micro_batches == 1 else "es"
        text += f"; accumulate over {micro_batches} micro-batch{several}"
        accumulation = record.discovery.accumulation
        if accumulation is not None and micro_batches is not None:
            text += f": {_replaced(accumulation, micro_batches)}"
    return text


def change_check(record: RunRecord, size: int | None) -> str:
    """Whether the script was seen to take the size from there; empty where it got it from there.

    What is an argument of the script, or of a function, was that in every trial.
    """
    discovery, edit = record.discovery, record.edit
    if discovery is None or size in (None, discovery.native_batch_size):
        return ""
    if not (discovery.traits.steers_loader or discovery.traits.trains_by_keras):
        return ""
    if edit is None or edit.size != size:
        return "unchecked"
    if edit.arrived is None:
        return f"unchecked: {edit.reason}"
    each = f", {edit.micro_batches} for each step" if edit.micro_batches > 1 else ""
    seen = f"started so, the script trains on batches of {edit.arrived}{each}"
    return f"checked: {seen}" if edit.did else f"checked, and not enough: {seen}"


def _replaced(source: BatchSizeSource, number: int) -> str:
    """The place, its text, and the text with another number."""
    where = "on the command line: " if source.place is None else f"{source.place}  "
    after = " ".join(source.template.format(number).split())  # aligned text is shown in short
    text = f"{where}{source.before} → {after}"
    typed = source.before.startswith(("-", source.option or "-"))
    if source.option is not None and not typed:
        space = "" if source.option.endswith("=") else " "
        text += f"   (or on the command line: {source.option}{space}{number})"
    return text


def following_numbers(
    discovery: Discovery, size: int, micro_batches: int | None
) -> list[tuple[Following, int]]:
    """What else has to change with the size, or to be looked at, and to which number."""
    native, accumulated = discovery.native_batch_size, micro_batches or discovery.micro_batches
    numbers = []
    for other in discovery.following:
        if other.is_shared:  # it stands for the size itself
            continue
        whole = other.name == WHOLE
        own = native * (discovery.micro_batches if whole else 1)
        number = other.number // own * size * (accumulated if whole else 1)
        shares_the_name = other.source is not None and not other.source.template
        if shares_the_name or number != other.number:
            numbers.append((other, number))
    return numbers


def _following(discovery: Discovery, size: int, micro_batches: int | None) -> str:
    """The numbers that have to change with the size, where they stand."""
    accumulated = micro_batches or discovery.micro_batches
    text = ""
    for other, number in following_numbers(discovery, size, micro_batches):
        source = other.source
        if source is not None and not source.template:
            text += f"; {source.place}  {source.before} has to be the same number"
            continue
        change = f"{other.name} {other.number} → {number}"
        text += f"; and with it {change if source is None else _replaced(source, number)}"
        if other.name == WHOLE:
            parts = f"{size} x {accumulated} x {number // (size * accumulated)}"
            text += f" (DeepSpeed: micro-batch x accumulation x ranks, {parts})"
    return text


def _others(source: BatchSizeSource, native: int) -> str:
    """Words further places that set the same setting; empty without any."""
    same = [str(each.place) for each in source.others if each.number == native]
    different = [f"{each.place} ({each.number})" for each in source.others if each.number != native]
    text = ""
    if same:
        text += f"; or {', '.join(same)}: the same number, and the one that is read last counts"
    if different:
        text += f"; also set at {', '.join(different)}, not to the size in use"
    return text
