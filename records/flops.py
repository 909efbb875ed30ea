"""Floating point operations of one step, counted while it ran."""

from __future__ import annotations

from .base import Record


class StepFlops(Record, frozen=True, kw_only=True):
    """Operations of one step beside the timed ones, by torch's flop counter.

    A multiplication and an addition are two operations. Convolutions, matrix products and fused
    attention count, as torch counts them: a causal mask saves nothing. Optimizers are left out.

    Attributes:
        forward, backward: of the model, over all micro-batches.
        recomputed: of forward passes made again in the backward one (checkpointing); in neither.
        products: the part of `forward + backward` that multiplies activations with each other, as
            attention does; it grows with the square of a batch's length.
        convolutions: the part of `forward + backward` that convolves; `None` in older records.
        by_dtype: `forward + backward` by the type that was multiplied; `tfloat32` where a GPU may
            round float32 to it.
        positions, squares: places for tokens of the step, and the sum of rows x length² of its
            batches; `None` where these are no sequences.
        largest_tensor: shape of the largest tensor that an operation of the step returned.
    """

    forward: int
    backward: int
    recomputed: int = 0
    products: int = 0
    convolutions: int | None = None
    by_dtype: dict[str, int] = {}
    positions: int | None = None
    squares: int | None = None
    largest_tensor: tuple[int, ...] = ()

    @property
    def model(self) -> int:
        """Operations that the model needs for a step."""
        return self.forward + self.backward
