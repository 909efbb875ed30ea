"""Laws that were fitted to trials: memory and step time, by batch size."""

from __future__ import annotations

from .base import Record
from .fake_step import PriorKind


class MemoryLaw(Record, frozen=True, kw_only=True):
    """Peak memory = fixed + slope x batch size, fitted to trials.

    Attributes:
        residual: largest relative deviation of a point used.
        largest_estimate: the largest size that the law says fits; an estimate, never advised.
    """

    fixed_bytes: float
    slope_bytes: float
    residual: float
    sizes: tuple[int, ...]
    largest_estimate: int


class PriorLaw(Record, frozen=True, kw_only=True):
    """Peak memory by steps on fake tensors, and what real peaks made of it.

    The law is max(floor, fixed + sample x batch); a peak is offset + ratio x law.

    Attributes:
        kind: what was counted on fake tensors.
        sizes: whose steps were made on fake tensors.
        offset_bytes, ratio: by the real peaks of `corrected_by`; 0 and 1 without any.
        residual: largest relative miss of a real peak, `None` with fewer than three.
        target_bytes: what a size may take; 0 in old advice.
        largest_estimate: the largest size that the corrected law says fits; never advised.
    """

    kind: PriorKind
    floor_bytes: float
    fixed_bytes: float
    sample_bytes: float
    sizes: tuple[int, ...]
    offset_bytes: float = 0.0
    ratio: float = 1.0
    corrected_by: tuple[int, ...] = ()
    residual: float | None = None
    target_bytes: int = 0
    largest_estimate: int

    def peak_bytes(self, batch_size: float) -> float:
        """The corrected peak."""
        law = max(self.floor_bytes, self.fixed_bytes + self.sample_bytes * batch_size)
        return self.offset_bytes + self.ratio * law


class TimeLaw(Record, frozen=True, kw_only=True):
    """Step time = fixed + slope x batch size, fitted to trials."""

    fixed_s: float
    slope_s: float
    residual: float
    sizes: tuple[int, ...]

    def step_s(self, batch_size: float) -> float:
        """Predicted seconds per step."""
        return self.fixed_s + self.slope_s * batch_size

    def samples_per_s(self, batch_size: float) -> float:
        """Predicted samples per second."""
        return batch_size / self.step_s(batch_size)

    def fixed_share(self, batch_size: float) -> float:
        """The part of a predicted step that the batch does not change, 0..1."""
        return self.fixed_s / self.step_s(batch_size)
