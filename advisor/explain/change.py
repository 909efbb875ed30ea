"""The line to change, as the user would find it."""

from __future__ import annotations

from ...records import RunRecord


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
    if source is None and record.discovery.traits.size_is_argument:
        text = f"the script's argument {{batch_size}} → {size}"
    elif source is None:
        where = f"{loader.place}  " if loader.place is not None else ""
        text = f"{where}{loader.size_name}={native} → {size}"
    elif not source.template:
        text = f"{source.place}  {source.before}  ({native} → {size})"
    else:
        text = f"{source.place}  {source.before} → {source.template.format(size)}"
        if source.option is not None and not source.before.startswith("-"):
            text += f"   (or on the command line: {source.option} {size})"
    if not same:
        text += f"; accumulate over {micro_batches} micro-batches"
    return text
