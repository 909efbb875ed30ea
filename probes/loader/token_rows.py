"""Rows of token ids: where a mask or a run of one id says that they end."""

from __future__ import annotations

from typing import Any

import torch

MIN_RUN = 2
"""A run of padding at the end of some row is at least so long."""
MIN_FILLED = 8
"""Fewer positions that hold one id may do so by chance."""


def filled_by(mask: Any, ids: Any) -> int | None:
    """Positions that 0/1 values beside token ids, both `[rows, length]`, call padding.

    `None` where these are no mask. They are one where zeros are at one end of each row and one and
    the same id stands there; segment ids, binary labels and the like are not.
    """
    if not mask.numel() or int(ids.max()) <= 1:
        return None  # these are no ids
    if mask.dtype != torch.bool:
        if int(mask.min()) < 0 or int(mask.max()) > 1:
            return None
        mask = mask != 0
    filled = ids[~mask]
    num_filled = int(filled.numel())
    if num_filled == mask.numel() or (num_filled and bool((filled != filled[0]).any())):
        return None
    at_end = not bool((mask[:, 1:] > mask[:, :-1]).any())
    at_beginning = not bool((mask[:, 1:] < mask[:, :-1]).any())
    return num_filled if at_end or at_beginning else None


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

    A run is taken for padding only where the id stands nowhere but in such runs, half of the rows
    have one, they differ in length and hold `MIN_FILLED` positions or more. Rows that are padded at
    their beginning are turned round.

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
    num_filled = ids.numel() - sum(lengths)
    num_runs = sum(length < ids.shape[1] for length in lengths)
    few = num_filled < MIN_FILLED or 2 * num_runs < len(lengths)
    if not known and (few or len(set(lengths)) < 2):
        return None
    return lengths, pad_id
