"""Tokens of a batch, real ones apart from padding: a pure function of the batch's parts.

The first sign that a batch shows is taken, the surest first: a packed sequence or a nested tensor,
a mask, packed position ids or `cu_seqlens`, lengths, a list of sequences, a run of one id at the
ends of rows. A sign that contradicts itself makes the real tokens unknown, with the reason. Images,
tables and other batches show none, and nothing is said of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from . import token_signs
from .token_batch import ID_NAMES, BatchTokens, ids_of, why_unread
from .token_lengths import of_lengths
from .token_parts import Part, parts_of
from .token_rows import real_ends

LABEL_NAMES = ("labels", "label", "targets", "target", "y", "lm_labels")
IGNORED = -100
"""Label that torch's cross entropy leaves out unless it is told otherwise."""
NOTHING_TELLS = "the batch has no mask and no lengths that tell padding from tokens"


def count_tokens(batch: Any, pad_id: int | None = None) -> BatchTokens | None:
    """Tokens of a batch, `None` where it holds no sequences or nothing tells.

    Args:
        pad_id: the id that a batch before showed to be padding.

    >>> import torch
    >>> count_tokens({"attention_mask": torch.tensor([[1, 1], [1, 0]]),
    ...               "input_ids": torch.tensor([[5, 6], [7, 0]])})[:4]
    ('attention mask', 4, 3, [2, 1])
    """
    return tokens_in(parts_of(batch), pad_id)


def tokens_in(parts: Sequence[Part], pad_id: int | None = None) -> BatchTokens | None:
    """Counts as `count_tokens` does, in the parts of a batch that were set aside."""
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


_SIGNS: tuple[Callable[[Sequence[Part]], BatchTokens | None], ...] = (
    token_signs.of_packed,
    token_signs.of_nested,
    token_signs.of_mask,
    token_signs.of_position_ids,
    token_signs.of_cu_seqlens,
    of_lengths,
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
