"""Memory by steps on fake tensors, before any size was tried."""

from __future__ import annotations

from typing import Literal

from .base import Record

PriorKind = Literal["tensors", "segments"]
"""The count behind the law: live tensors, or what torch's CUDA allocator would reserve for them."""


class MemoryPrior(Record, frozen=True, kw_only=True):
    """Peaks of steps that computed nothing; an estimate, which the first real peaks correct.

    Attributes:
        peaks: bytes by batch size.
        passes: the most outside of the optimizer's step, by batch size; empty in old records, and
            where that was not counted.
        floor_bytes: parameters, gradients and the optimizer's state: no step takes less.
        kind: what was counted; `segments`, what an allocator reserves, only in old records.
        elapsed_s: wall time of these steps and of the process that made them.
        reason: why there are none; the search then goes by real peaks alone.
    """

    peaks: dict[int, int] = {}
    passes: dict[int, int] = {}
    floor_bytes: int = 0
    kind: PriorKind = "tensors"
    elapsed_s: float = 0.0
    reason: str = ""
