"""Tokens of a batch, real ones apart from padding: a pure function of the batch's parts.

The first sign that a batch shows is taken, the surest first: a packed sequence or a nested tensor,
a mask, packed position ids or `cu_seqlens`, lengths, a list of sequences, a run of one id at the
ends of rows. A sign that contradicts itself makes the real tokens unknown, with the reason. Images,
tables and other batches show none, and nothing is said of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, Literal, NamedTuple

import torch
from torch.nn.utils.rnn import PackedSequence

from ...records import TokenEvidence
from .token_parts import MASK_NAMES, PADDING_NAMES, Part, parts_of
from .token_rows import MIN_FILLED, ends_at, filled_by, real_ends

ID_NAMES = (
    "input_ids",
    "tokens",
    "token_ids",
    "src_tokens",
    "inputs",
    "source",
    "src",
    "text",
    "ids",
    "idx",
    "x",
)
"""Names of the tokens themselves; the first that a batch has."""
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


class BatchTokens(NamedTuple):
    """What a batch tells of its tokens.

    Attributes:
        positions: places for tokens, padding included.
        real: of these, what is no padding.
        trained: of these, what has a label that counts.
        lengths: real tokens of each sequence; `None` where unknown.
        why: why `real` or `positions` is unknown.
        pad_id: the id that stands for padding, where a run of it was the sign.
        tentative: the batch alone does not show that it holds tokens.
    """

    evidence: TokenEvidence
    positions: int | None
    real: int | None = None
    lengths: Sequence[int] | None = None
    trained: int | None = None
    unit: Literal["tokens", "time steps"] = "tokens"
    why: str = ""
    pad_id: int | None = None
    tentative: bool = False


def count_tokens(batch: Any, pad_id: int | None = None) -> BatchTokens | None:
    """Tokens of a batch, `None` where it holds no sequences or nothing tells.

    Args:
        pad_id: the id that a batch before showed to be padding.

    >>> count_tokens({"attention_mask": torch.tensor([[1, 1], [1, 0]]),
    ...               "input_ids": torch.tensor([[5, 6], [7, 0]])})[:4]
    ('attention mask', 4, 3, [2, 1])
    """
    return tokens_in(parts_of(batch), pad_id)


def tokens_in(parts: Sequence[Part], pad_id: int | None = None) -> BatchTokens | None:
    """As `count_tokens`, of the parts of a batch that were set aside."""
    for sign in _SIGNS:
        counted = sign(parts)
        if counted is not None:
            return _with_trained(counted, parts)
    counted = _of_ids(parts, pad_id)
    return None if counted is None else _with_trained(counted, parts)


# signs, the surest first ----------------------------------------------------------------------


def _of_packed(parts: Sequence[Part]) -> BatchTokens | None:
    packed = next((part.value for part in parts if isinstance(part.value, PackedSequence)), None)
    if packed is None:
        return None
    num_steps = int(packed.data.shape[0])
    # batch_sizes[t] sequences are longer than t; it lies on the host, wherever the data is.
    sizes = packed.batch_sizes.tolist()
    drops = zip(sizes, [*sizes[1:], 0], strict=True)
    lengths = [place + 1 for place, (here, after) in enumerate(drops) for _ in range(here - after)]
    unit = _unit("floats" if packed.data.is_floating_point() else "integers")
    return BatchTokens("packed sequence", num_steps, num_steps, lengths, unit=unit)


def _of_nested(parts: Sequence[Part]) -> BatchTokens | None:
    nested = next((part.value for part in parts if getattr(part.value, "is_nested", False)), None)
    if nested is None:
        return None
    items = nested.unbind()
    if not items or any(item.dim() not in (1, 2) for item in items):
        return None  # images of a size each
    if items[0].dim() == 2 and len({item.shape[1] for item in items}) > 1:
        return None
    lengths = [int(item.shape[0]) for item in items]
    unit = _unit("floats" if nested.is_floating_point() else "integers")
    return BatchTokens("nested tensor", sum(lengths), sum(lengths), lengths, unit=unit)


def _of_mask(parts: Sequence[Part]) -> BatchTokens | None:
    """A mask by its name, or one that stands beside the tokens of a tuple."""
    named = _named(parts, MASK_NAMES) or _named(parts, PADDING_NAMES)
    if named is None:
        return _of_mask_beside(parts)
    inverted = named.name in PADDING_NAMES
    evidence: TokenEvidence = "padding mask" if inverted else "attention mask"
    if inverted and named.content != "truths":
        return None
    if not any(_goes_with(part, named.shape) for part in parts if part is not named):
        return None
    ids = _ids(parts)
    if len(named.shape) != 2:
        positions = ids.shape[0] * ids.shape[1] if ids is not None else None
        why = f"{named.name} has {len(named.shape)} axes, not two"
        return BatchTokens(evidence, positions, why=why)
    first = next(part for part in (ids, *parts) if part and _goes_with(part, named.shape))
    unit = _unit(first.content)
    positions = named.shape[0] * named.shape[1]
    why = _unread(named)
    if ids is not None and ids.shape != named.shape:
        why = f"{named.name} is {list(named.shape)} and {ids.name} is {list(ids.shape)}"
        return BatchTokens(evidence, None, why=why, unit=unit)
    if why:
        return BatchTokens(evidence, positions, why=why, unit=unit)
    mask = named.value
    if inverted:
        mask = ~mask
    elif named.content != "truths" and bool(((mask != 0) & (mask != 1)).any()):
        why = f"{named.name} holds other values than 0 and 1"
        return BatchTokens(evidence, positions, why=why, unit=unit)
    lengths = mask.sum(dim=1).to(torch.int64).tolist()
    return BatchTokens(evidence, positions, sum(lengths), _of_rows(lengths, parts), unit=unit)


def _of_mask_beside(parts: Sequence[Part]) -> BatchTokens | None:
    ids = _ids(parts)
    if ids is None or ids.name or ids.value is None or ids.is_changed:
        return None
    for part in parts:
        beside = part is not ids and not part.name and part.shape == ids.shape
        if not beside or part.value is None or part.is_changed or part.content == "floats":
            continue
        num_filled = filled_by(part.value, ids.value)
        if num_filled is not None:
            lengths = part.value.sum(dim=1).tolist()
            return BatchTokens(
                "mask beside the tokens",
                ids.shape[0] * ids.shape[1],
                sum(lengths),
                lengths,
                tentative=0 < num_filled < MIN_FILLED,
            )
    return None


def _of_position_ids(parts: Sequence[Part]) -> BatchTokens | None:
    part = _named(parts, ("position_ids",))
    if part is None or part.value is None or part.is_changed or part.content != "integers":
        return None
    ids = _ids(parts)
    if ids is not None and ids.shape != part.shape:
        return None
    places = part.value.reshape(-1)
    lengths = _packed_lengths(places, num_rows=part.shape[0] if len(part.shape) == 2 else 1)
    if lengths is None:
        return None
    num = int(places.numel())
    if len(lengths) > 1 and lengths[-2:] == [1, 1]:
        why = "position_ids end in zeros: padding, or sequences of one token"
        return BatchTokens("position ids", num, why=why)
    return BatchTokens("position ids", num, num, lengths)


def _packed_lengths(places: Any, num_rows: int) -> list[int] | None:
    """Lengths of sequences that follow each other; `None` where each row holds one of them."""
    starts = (places == 0).nonzero().reshape(-1).tolist()
    if len(starts) <= num_rows or starts[0] != 0:
        return None
    follows = (places[1:] == 0) | (places[1:] == places[:-1] + 1)
    if not bool(follows.all()):
        return None
    ends = [*starts[1:], int(places.numel())]
    return [end - start for start, end in zip(starts, ends, strict=True)]


def _of_cu_seqlens(parts: Sequence[Part]) -> BatchTokens | None:
    part = next(
        (part for part in parts if part.name.startswith(("cu_seqlens", "cu_seq_len"))), None
    )
    if part is None or len(part.shape) != 1 or part.content != "integers":
        return None
    ids = _ids(parts, flat=True)
    positions = None
    if ids is not None:
        positions = 1
        for length in ids.shape:
            positions *= length
    why = _unread(part)
    if why:
        return BatchTokens("cu_seqlens", positions, why=why)
    bounds = part.value.tolist()
    lengths = [end - start for start, end in pairwise(bounds)]
    if not bounds or bounds[0] != 0 or min(lengths, default=0) < 0:
        return None
    if positions is not None and bounds[-1] > positions:
        why = f"{part.name} ends at {bounds[-1]}, and the batch has {positions} positions"
        return BatchTokens("cu_seqlens", positions, why=why)
    lengths = [length for length in lengths if length]
    return BatchTokens("cu_seqlens", positions, bounds[-1], lengths)


def _of_lengths(parts: Sequence[Part]) -> BatchTokens | None:
    """Lengths by their name, or integers beside sequences of which they say where each ends."""
    for part in parts:
        known = part.name.lower() in LENGTH_NAMES
        if not known and part.name:
            continue  # a column of numbers
        if part.device and known and len(part.shape) == 1 and part.content == "integers":
            padded = next((other for other in parts if _carries(other, part.shape[0])), None)
            if padded is not None:
                unit = _unit(padded.content)
                return BatchTokens("lengths", None, why=_unread(part), unit=unit)
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
    unit = _unit(padded.content)
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
        unit=_unit(padded.content),
        # Where little was filled, any numbers may be as large.
        tentative=num * longest - sum(lengths) < MIN_FILLED,
    )


def _end_at(padded: Part, lengths: list[int]) -> bool:
    if padded.value is None or padded.is_changed or not lengths:
        return False
    first = padded.shape[0] == len(lengths)
    return ends_at(padded.value if first else padded.value.transpose(0, 1), lengths)


def _of_list(parts: Sequence[Part]) -> BatchTokens | None:
    """A list of sequences, which comes first in the batch or is named as tokens are."""
    for place, part in enumerate(parts):
        named = part.name in ID_NAMES
        if not isinstance(part.value, list) or not (named or (place == 0 and not part.name)):
            continue
        if any(type(item) is int for item in part.value):
            continue
        lengths = [len(item) for item in part.value]
        if not named and len(set(lengths)) < 2:
            continue  # may be a column for each field
        why = "the batch is a list of sequences: padding, if any, is added after it arrived"
        return BatchTokens("list of sequences", None, sum(lengths), lengths, why=why)
    return None


def _of_ids(parts: Sequence[Part], pad_id: int | None) -> BatchTokens | None:
    """Ids alone: what they are is told by their name, by a target for each, or by their ends."""
    ids = _ids(parts)
    if ids is None:
        return None
    targets = [part for part in parts if part is not ids and part.shape == ids.shape]
    sure = (
        ids.name in ID_NAMES[:4]
        or len(parts) == 1
        or any(part.content == "integers" for part in targets)
    )
    positions = ids.shape[0] * ids.shape[1]
    if _unread(ids):
        return BatchTokens("shape", positions, why=_unread(ids)) if sure else None
    ends = real_ends(ids.value, pad_id)
    if ends is not None:
        lengths, found = ends
        return BatchTokens("run of one id", positions, sum(lengths), lengths, pad_id=found)
    return BatchTokens("shape", positions, why=NOTHING_TELLS, tentative=not sure)


_SIGNS: tuple[Callable[[Sequence[Part]], BatchTokens | None], ...] = (
    _of_packed,
    _of_nested,
    _of_mask,
    _of_position_ids,
    _of_cu_seqlens,
    _of_lengths,
    _of_list,
)


# what they share ------------------------------------------------------------------------------


def _named(parts: Sequence[Part], names: Sequence[str]) -> Part | None:
    by_name = {part.name: part for part in reversed(parts)}
    return next((by_name[name] for name in names if name in by_name), None)


def _ids(parts: Sequence[Part], *, flat: bool = False) -> Part | None:
    """The token ids: by name, else the first tensor of a batch where that holds whole numbers.

    Args:
        flat: of packed batches, which may have one axis.
    """
    numbers = [
        part
        for part in parts
        if part.content == "integers" and (len(part.shape) == 2 or (flat and len(part.shape) == 1))
    ]
    named = _named(numbers, ID_NAMES)
    if named is not None or not parts or parts[0].name:
        return named
    return parts[0] if parts[0] in numbers[:1] else None


def _goes_with(part: Part, shape: tuple[int, ...]) -> bool:
    """Whether a mask of that shape may be of this part."""
    if len(part.shape) < 2 or not shape or part.shape[0] != shape[0]:
        return False
    return len(part.shape) <= 3 and (len(shape) != 2 or shape[1] in part.shape[1:])


def _carries(part: Part, num_samples: int) -> bool:
    """Whether a part may hold a padded sequence for each of so many samples."""
    return len(part.shape) in (2, 3) and num_samples in part.shape[:2] and part.content != "truths"


def _whole_numbers(part: Part) -> list[int] | None:
    """Of a list or a tensor of one axis."""
    if isinstance(part.value, list):
        return part.value if all(type(item) is int for item in part.value) else None
    if part.value is None or len(part.shape) != 1 or part.content != "integers":
        return None
    numbers: list[int] = part.value.tolist()
    return numbers


def _of_rows(lengths: list[int], parts: Sequence[Part]) -> list[int] | None:
    """Lengths of the rows, unless position ids say that a row holds several sequences."""
    part = _named(parts, ("position_ids",))
    if part is None or part.value is None or len(part.shape) != 2 or part.content != "integers":
        return lengths
    real = bool((part.value[:, 1:] == 0).any()) and part.shape[0] == len(lengths)
    return None if real else lengths


def _unread(part: Part) -> str:
    """Why a part cannot be counted, or empty."""
    name = part.name or "the tokens"
    if part.device:
        return f"{name} came on {part.device}, and reading it would hold up the step"
    if part.is_changed:
        return f"the script changed {name} in place before it could be counted"
    return "" if part.value is not None else f"{name} could not be read"


def _unit(content: str | None) -> Literal["tokens", "time steps"]:
    return "time steps" if content == "floats" else "tokens"


def _with_trained(counted: BatchTokens, parts: Sequence[Part]) -> BatchTokens:
    """With the positions that have a label which counts, where labels are one a position."""
    ids = _ids(parts)
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
