"""The tensors that a step trained on, as far as they can be seen."""

from __future__ import annotations

from .base import Record


class Entered(Record, frozen=True, kw_only=True):
    """The tensors that one step trained on: those that entered its outermost modules, and its loss.

    Attributes:
        inputs: shapes of the first tensors that modules were given, in that order.
        loss: shapes of the first tensors that the loss was made of, the nearest first.
        num_inputs, num_elements: of all tensors that modules were given.
    """

    inputs: tuple[tuple[int, ...], ...] = ()
    loss: tuple[tuple[int, ...], ...] = ()
    num_inputs: int = 0
    num_elements: int = 0
