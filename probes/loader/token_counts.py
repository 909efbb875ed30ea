"""Tokens of a batch, real ones apart from padding: a pure function of the batch's parts.

The first sign that a batch shows is taken, the surest first: a packed sequence or a nested tensor,
a mask, packed position ids or `cu_seqlens`, lengths, a list of sequences, a run of one id at the
ends of rows. A sign that contradicts itself makes the real tokens unknown, with the reason. Images,
tables and other batches show none, and nothing is said of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from . import token_signs
from .token_batch import ID_NAMES, BatchTokens, ids_of, unit_of, why_unread
from .token_parts import Part
from .token_rows import MIN_FILLED, ends_at, real_ends

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

LABEL_NAMES = ("labels", "label", "targets", "target", "y", "lm_labels")
IGNORED = -100
"""Label that torch's cross entropy leaves out unless it is told otherwise."""
NOTHING_TELLS = "the batch has no mask and no lengths that tell padding from tokens"


def tokens_in(parts: Sequence[Part], pad_id: int | None = None) -> BatchTokens | None:
    """Tokens of a batch, by its parts; `None` where it holds no sequences or nothing tells.

    Args:
        pad_id: the id that a batch before showed to be padding.

    >>> import torch
    >>> from batchadvisor.probes.loader.token_parts import parts_of
    >>> tokens_in(parts_of({"attention_mask": torch.tensor([[1, 1], [1, 0]]),
    ...                     "input_ids": torch.tensor([[5, 6], [7, 0]])}))[:4]
    ('attention mask', 4, 3, [2, 1])
    """
    for sign in _SIGNS:
        counted = sign(parts)
        if counted is not None:
            return _with_trained(counted, parts)
    counted = _of_ids(parts, pad_id)
    return None if counted is None else _with_trained(counted, parts)


def _of_ids(parts: Sequence[Part], pad_id: int | None) -> BatchTokens | None:
    """Ids alone: what they are is told by their name, by a target for each, or by their ends."""
    ids = ids_of(parts)
    if ids is None:
        return None
    targets = [part for part in parts if part is not ids and part.shape == ids.shape]
    sure = (
        ids.name in ID_NAMES[:4]
        or len(parts) == 1
        or any(part.content == "integers" for part in targets)
    )
    positions = ids.shape[0] * ids.shape[1]
    if why_unread(ids):
        return BatchTokens("shape", positions, why=why_unread(ids)) if sure else None
    ends = real_ends(ids.value, pad_id)
    if ends is not None:
        lengths, found = ends
        return BatchTokens("run of one id", positions, sum(lengths), lengths, pad_id=found)
    return BatchTokens("shape", positions, why=NOTHING_TELLS, tentative=not sure)


def _of_lengths(parts: Sequence[Part]) -> BatchTokens | None:
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


_SIGNS: tuple[Callable[[Sequence[Part]], BatchTokens | None], ...] = (
    token_signs.of_packed,
    token_signs.of_nested,
    token_signs.of_mask,
    token_signs.of_position_ids,
    token_signs.of_cu_seqlens,
    _of_lengths,
    token_signs.of_list,
)


def _with_trained(counted: BatchTokens, parts: Sequence[Part]) -> BatchTokens:
    """Adds the positions that have a label which counts, where there is a label for each."""
    ids = ids_of(parts)
    if ids is None:
        return counted
    for part in parts:
        if part is ids or part.shape != ids.shape or part.value is None or part.is_changed:
            continue
        if part.content != "integers" or part.name not in ("", *LABEL_NAMES):
            continue
        ignored = int((part.value == IGNORED).sum())
        if part.name or ignored:
            return counted._replace(trained=part.value.numel() - ignored)
    return counted
