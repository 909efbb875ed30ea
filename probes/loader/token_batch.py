"""What a batch tells of its tokens, and what the signs of padding share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

from ...records import TokenEvidence
from .token_parts import Part

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


class BatchTokens(NamedTuple):
    """What a batch tells of its tokens.

    Attributes:
        positions: places for tokens, padding included.
        real: of these, what is no padding.
        trained: of these, what has a label that counts.
        lengths: real tokens of each sequence; `None` where unknown.
        why: why `real` or `positions` is unknown.
        pad_id: the id that stands for padding, where a run of it was the sign.
        width: places of each row, where rows are padded to one length.
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
    width: int | None = None
    tentative: bool = False


def named_part(parts: Sequence[Part], names: Sequence[str]) -> Part | None:
    by_name = {part.name: part for part in reversed(parts)}
    return next((by_name[name] for name in names if name in by_name), None)


def ids_of(parts: Sequence[Part], *, flat: bool = False) -> Part | None:
    """The token ids: by name, else the first tensor of a batch where that holds whole numbers.

    Args:
        flat: of packed batches, which may have one axis.
    """
    numbers = [
        part
        for part in parts
        if part.content == "integers" and (len(part.shape) == 2 or (flat and len(part.shape) == 1))
    ]
    named = named_part(numbers, ID_NAMES)
    if named is not None or not parts or parts[0].name:
        return named
    return parts[0] if parts[0] in numbers[:1] else None


def why_unread(part: Part) -> str:
    """Why a part cannot be counted, or empty."""
    name = part.name or "the tokens"
    if part.device:
        return f"{name} came on {part.device}, and reading it would hold up the step"
    if part.is_changed:
        return f"the script changed {name} in place before it could be counted"
    return "" if part.value is not None else f"{name} could not be read"


def unit_of(content: str | None) -> Literal["tokens", "time steps"]:
    return "time steps" if content == "floats" else "tokens"
