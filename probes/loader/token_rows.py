"""Rows of token ids: where a mask or a run of one id says that they end."""

from __future__ import annotations

from typing import Any

import torch

MIN_RUN = 2
"""A run of padding at the end of some row is at least so long."""


def is_mask_of(mask: Any, ids: Any) -> bool:
    """Whether 0/1 values beside token ids, both `[rows, length]`, say which of them are real.

    They do where zeros are at one end of each row and one and the same id stands there. Segment
    ids, binary labels and the like do not.
    """
    if not mask.numel():
        return False
    if int(ids.max()) <= 1:
        return False  # these are no ids
    if mask.dtype != torch.bool:
        if int(mask.min()) < 0 or int(mask.max()) > 1:
            return False
        mask = mask != 0
    if bool(mask.all()):
        return True
    filled = ids[~mask]
    if not bool(mask.any()) or bool((filled != filled[0]).any()):
        return False
    at_end = not bool((mask[:, 1:] > mask[:, :-1]).any())
    return at_end or not bool((mask[:, 1:] < mask[:, :-1]).any())


def ends_at(values: Any, lengths: list[int]) -> bool:
    """Whether one and the same value fills each row from its length on.

    Args:
        values: `[rows, length]` or `[rows, length, features]`.
        lengths: one a row.
    """
    places = torch.arange(values.shape[1], device="cpu")
    beyond = places >= torch.tensor(lengths, device="cpu").unsqueeze(1)
    filled = values[beyond]
    return not filled.numel() or not bool((filled != filled.reshape(-1)[0]).any())


def real_ends(ids: Any, pad_id: int | None) -> tuple[list[int], int] | None:
    """Lengths of rows without the run of one id at their end, and that id.

    A run is taken for padding only where the id stands nowhere but in such runs, these differ in
    length, and one is of two or more. Rows that are padded at their beginning are turned round.

    Args:
        ids: whole numbers `[rows, length]`.
        pad_id: that another batch showed to be padding; then equal runs will do, and none.
    """
    if not ids.numel() or ids.shape[1] < MIN_RUN:
        return None
    for rows in (ids, ids.flip(1)):
        ends = _ends(rows, pad_id)
        if ends is not None:
            return ends
    return None


def _ends(ids: Any, pad_id: int | None) -> tuple[list[int], int] | None:
    known = pad_id is not None
    if pad_id is None:
        candidates = ids[ids[:, -1] == ids[:, -MIN_RUN], -1]
        if not candidates.numel() or bool((candidates != candidates[0]).any()):
            return None
        pad_id = int(candidates[0])
    other = ids != pad_id
    places = torch.arange(1, ids.shape[1] + 1, device="cpu")
    lengths: list[int] = (other * places).amax(dim=1).tolist()
    if sum(lengths) != int(other.sum()) or not min(lengths):
        return None  # it stands inside a row too, or for all of one
    if not known and len(set(lengths)) < 2:
        return None
    return lengths, pad_id
