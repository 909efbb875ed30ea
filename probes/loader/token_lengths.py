"""Lengths beside padded sequences, by their name or by what the rows show."""

from __future__ import annotations

from collections.abc import Sequence

from .token_batch import ID_NAMES, BatchTokens, unit_of, why_unread
from .token_parts import Part
from .token_rows import MIN_FILLED, ends_at

LENGTH_NAMES = (
    "lengths",
    "input_lengths",
    "src_lengths",
    "source_lengths",
    "text_lengths",
    "token_lengths",
    "seq_lengths",
    "sequence_lengths",
    "lens",
    "seq_lens",
    "seq_len",
    "length",
    "x_lengths",
    "num_frames",
)


def of_lengths(parts: Sequence[Part]) -> BatchTokens | None:
    """Lengths by their name, or integers beside sequences of which they say where each ends."""
    for part in parts:
        known = part.name.lower() in LENGTH_NAMES
        if not known and part.name:
            continue  # a column of numbers
        if part.device and known and len(part.shape) == 1 and part.content == "integers":
            padded = next((other for other in parts if _carries(other, part.shape[0])), None)
            if padded is not None:
                unit = unit_of(padded.content)
                return BatchTokens("lengths", None, why=why_unread(part), unit=unit)
        lengths = _whole_numbers(part)
        if lengths is None or part.is_changed:
            continue
        for padded in parts:
            if padded is part or not _carries(padded, len(lengths)):
                continue
            counted = _lengths_of(padded, lengths, part.name if known else "")
            if counted is not None:
                return counted
    return None


def _lengths_of(padded: Part, lengths: list[int], name: str) -> BatchTokens | None:
    """Tokens of a padded part, `None` where the lengths are of something else."""
    num, longest = len(lengths), max(lengths, default=0)
    if min(lengths, default=0) < 0:
        return None
    if not name:
        return _lengths_beside(padded, lengths)
    batch_axis = 0 if padded.shape[0] == num else 1
    along = [length for axis, length in enumerate(padded.shape) if axis != batch_axis]
    unit = unit_of(padded.content)
    if longest in along:
        return BatchTokens("lengths", num * longest, sum(lengths), lengths, unit=unit)
    if longest > max(along, default=0):
        return None
    if len(along) == 1:
        if padded.name in ID_NAMES or _end_at(padded, lengths):
            return BatchTokens("lengths", num * along[0], sum(lengths), lengths, unit=unit)
        return None
    why = f"{name} reach to {longest}, and no axis of {list(padded.shape)} is as long"
    return BatchTokens("lengths", None, sum(lengths), lengths, unit=unit, why=why)


def _lengths_beside(padded: Part, lengths: list[int]) -> BatchTokens | None:
    """Without a name, the rows have to say the same: one value fills them from there on."""
    num, longest = len(lengths), max(lengths, default=0)
    axis = 1 if padded.shape[0] == num else 0
    if not longest or longest != padded.shape[axis] or not _end_at(padded, lengths):
        return None
    return BatchTokens(
        "lengths beside the sequences",
        num * longest,
        sum(lengths),
        lengths,
        unit=unit_of(padded.content),
        # Where little was filled, any numbers may be as large.
        tentative=num * longest - sum(lengths) < MIN_FILLED,
    )


def _end_at(padded: Part, lengths: list[int]) -> bool:
    if padded.value is None or padded.is_changed or not lengths:
        return False
    first = padded.shape[0] == len(lengths)
    return ends_at(padded.value if first else padded.value.transpose(0, 1), lengths)


def _carries(part: Part, num_samples: int) -> bool:
    """Whether a part may hold a padded sequence for each of so many samples."""
    return len(part.shape) in (2, 3) and num_samples in part.shape[:2] and part.content != "truths"


def _whole_numbers(part: Part) -> list[int] | None:
    """Returns the whole numbers of a list or of a tensor with one axis; else `None`."""
    if isinstance(part.value, list):
        return part.value if all(type(item) is int for item in part.value) else None
    if part.value is None or len(part.shape) != 1 or part.content != "integers":
        return None
    numbers: list[int] = part.value.tolist()
    return numbers
