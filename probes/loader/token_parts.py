"""The parts of a batch that may tell its tokens. Looked at when a batch goes to the script.

That is inside a timed step: nothing is computed here, and only small tensors are kept. What they
say is counted when the step is over; see token_counts.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import torch
from torch.nn.utils.rnn import PackedSequence

MAX_PARTS = 24
TOKEN_DEPTH = 3
MAX_ITEMS = 32
"""Items of a list that are looked at while a step is timed, at most."""
MASK_NAMES = ("attention_mask", "input_mask")
"""1 where a token is real."""
PADDING_NAMES = ("key_padding_mask", "src_key_padding_mask")
"""True where a position is padding, as torch's own attention layers take them."""

Content = Literal["integers", "truths", "floats"]


class Part(NamedTuple):
    """A tensor, list or packed sequence of a batch.

    Attributes:
        name: the key or attribute it stands under; empty in a tuple.
        shape: of a tensor; `()` of anything else.
        content: of a tensor.
        value: what can be counted later without waiting for a device; else `None`.
        version: of the tensor, which a change in place raises.
        device: the tensor lies on, where that is not the host's memory.
    """

    name: str
    shape: tuple[int, ...]
    content: Content | None
    value: Any
    version: int | None = None
    device: str = ""

    @property
    def is_changed(self) -> bool:
        """Whether the script changed the tensor since."""
        return self.version is not None and self.value._version != self.version


def parts_of(batch: Any) -> list[Part]:
    """Parts of a batch in their order, at most `MAX_PARTS`."""
    parts: list[Part] = []
    for name, value in _walk("", batch, TOKEN_DEPTH):
        parts.append(_part(name, value))
        if len(parts) == MAX_PARTS:
            break
    return parts


def _walk(name: str, value: Any, depth: int) -> Iterator[tuple[str, Any]]:
    if isinstance(value, (torch.Tensor, PackedSequence)):
        yield name, value
    elif depth == 0 or isinstance(value, (str, bytes)):
        return
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from _walk(key if isinstance(key, str) else "", item, depth - 1)
    elif isinstance(value, Sequence):
        if _are_sequences(value):
            yield name, value
            return
        fields = getattr(value, "_fields", None)  # of a named tuple
        for place, item in enumerate(value[:MAX_PARTS]):
            yield from _walk(fields[place] if fields else name, item, depth - 1)
    elif hasattr(value, "__dict__"):
        for key, item in vars(value).items():
            if not key.startswith("_"):
                yield from _walk(key, item, depth - 1)


def _are_sequences(value: Sequence[Any]) -> bool:
    """Whether a list may have an item of tokens for each sample, or a length for each."""
    if not isinstance(value, list) or not value:
        return False
    first = value[0]
    if isinstance(first, torch.Tensor):
        # What default_collate leaves is a list too, of a tensor for each field.
        some = value[:MAX_ITEMS]
        return not first.is_nested and all(map(_is_row, some)) and _differ(some)
    return type(first) is int or (isinstance(first, list) and bool(first) and type(first[0]) is int)


def _is_row(item: Any) -> bool:
    return isinstance(item, torch.Tensor) and item.dim() == 1 and item.dtype == torch.int64


def _differ(rows: Sequence[Any]) -> bool:
    return any(len(row) != len(rows[0]) for row in rows)


def _part(name: str, value: Any) -> Part:
    if not isinstance(value, torch.Tensor):
        return Part(name, (), None, value)
    if value.is_nested:
        on_host = value.device.type == "cpu"
        return Part(name, (), None, value if on_host else None, device=_device(value))
    shape = tuple(value.shape)
    content: Content = "integers"
    if value.dtype == torch.bool:
        content = "truths"
    elif value.is_floating_point():
        content = "floats"
    device = _device(value)
    most = 3 if content == "floats" else 2
    kept = 0 < len(shape) <= most and not device and not value.is_complex()
    version = None
    if kept and not value.is_inference():
        version = value._version
    return Part(name, shape, content, value if kept else None, version, device)


def _device(value: torch.Tensor) -> str:
    return "" if value.device.type == "cpu" else str(value.device)
