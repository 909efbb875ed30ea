"""Signs that tell the padding of a batch: each takes its parts, `None` if they do not show it."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import torch
from torch.nn.utils.rnn import PackedSequence

from ...records import TokenEvidence
from .token_batch import ID_NAMES, BatchTokens, ids_of, named_part, unit_of, why_unread
from .token_parts import MASK_NAMES, PADDING_NAMES, Part
from .token_rows import MIN_FILLED, filled_by


def of_packed(parts: Sequence[Part]) -> BatchTokens | None:
    """A packed sequence of torch."""
    packed = next((part.value for part in parts if isinstance(part.value, PackedSequence)), None)
    if packed is None:
        return None
    num_steps = int(packed.data.shape[0])
    # batch_sizes[t] sequences are longer than t; it lies on the host, wherever the data is.
    sizes = packed.batch_sizes.tolist()
    drops = zip(sizes, [*sizes[1:], 0], strict=True)
    lengths = [place + 1 for place, (here, after) in enumerate(drops) for _ in range(here - after)]
    unit = unit_of("floats" if packed.data.is_floating_point() else "integers")
    return BatchTokens("packed sequence", num_steps, num_steps, lengths, unit=unit)


def of_nested(parts: Sequence[Part]) -> BatchTokens | None:
    """A nested tensor of sequences; one of images says nothing."""
    nested = next((part.value for part in parts if getattr(part.value, "is_nested", False)), None)
    if nested is None:
        return None
    items = nested.unbind()
    if not items or any(item.dim() not in (1, 2) for item in items):
        return None  # images of a size each
    if items[0].dim() == 2 and len({item.shape[1] for item in items}) > 1:
        return None
    lengths = [int(item.shape[0]) for item in items]
    unit = unit_of("floats" if nested.is_floating_point() else "integers")
    return BatchTokens("nested tensor", sum(lengths), sum(lengths), lengths, unit=unit)


def of_mask(parts: Sequence[Part]) -> BatchTokens | None:
    """A mask by its name, or one that stands beside the tokens of a tuple."""
    named = named_part(parts, MASK_NAMES) or named_part(parts, PADDING_NAMES)
    if named is None:
        return _of_mask_beside(parts)
    inverted = named.name in PADDING_NAMES
    evidence: TokenEvidence = "padding mask" if inverted else "attention mask"
    if inverted and named.content != "truths":
        return None
    if not any(_goes_with(part, named.shape) for part in parts if part is not named):
        return None
    ids = ids_of(parts)
    if len(named.shape) != 2:
        positions = ids.shape[0] * ids.shape[1] if ids is not None else None
        why = f"{named.name} has {len(named.shape)} axes, not two"
        return BatchTokens(evidence, positions, why=why)
    first = next(part for part in (ids, *parts) if part and _goes_with(part, named.shape))
    unit = unit_of(first.content)
    positions = named.shape[0] * named.shape[1]
    why = why_unread(named)
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
    ids = ids_of(parts)
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


def of_position_ids(parts: Sequence[Part]) -> BatchTokens | None:
    """Position ids that begin again at 0 inside a row: packed sequences, without padding."""
    part = named_part(parts, ("position_ids",))
    if part is None or part.value is None or part.is_changed or part.content != "integers":
        return None
    ids = ids_of(parts)
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


def of_cu_seqlens(parts: Sequence[Part]) -> BatchTokens | None:
    """The bounds of packed sequences."""
    part = next(
        (part for part in parts if part.name.startswith(("cu_seqlens", "cu_seq_len"))), None
    )
    if part is None or len(part.shape) != 1 or part.content != "integers":
        return None
    ids = ids_of(parts, flat=True)
    positions = None
    if ids is not None:
        positions = 1
        for length in ids.shape:
            positions *= length
    why = why_unread(part)
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


def of_list(parts: Sequence[Part]) -> BatchTokens | None:
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


def _goes_with(part: Part, shape: tuple[int, ...]) -> bool:
    """Whether a mask of that shape may be of this part."""
    if len(part.shape) < 2 or not shape or part.shape[0] != shape[0]:
        return False
    return len(part.shape) <= 3 and (len(shape) != 2 or shape[1] in part.shape[1:])


def _of_rows(lengths: list[int], parts: Sequence[Part]) -> list[int] | None:
    """Lengths of the rows, unless position ids say that a row holds several sequences."""
    part = named_part(parts, ("position_ids",))
    if part is None or part.value is None or len(part.shape) != 2 or part.content != "integers":
        return lengths
    real = bool((part.value[:, 1:] == 0).any()) and part.shape[0] == len(lengths)
    return None if real else lengths
