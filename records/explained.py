"""Where the memory of a step goes."""

from __future__ import annotations

from typing import Literal

from .base import Count, Record
from .fake_step import FakeTrial
from .snapshot import MemoryAnalysis

WhyExplained = Literal["recommended", "largest that ran", "out of memory"]
"""Why a size is explained."""


class ExplainedSize(Record, frozen=True, kw_only=True):
    """Where the memory goes at one size; nothing of it was measured.

    Attributes:
        trial: its step on fake tensors; `None` if there was none, for this reason.
    """

    batch_size: Count
    why: WhyExplained
    trial: FakeTrial | None = None
    reason: str = ""


HeldRole = Literal["parameters", "gradients", "optimizer's state", "other tensors"]
"""Use of a live tensor's memory."""


class HeldSource(Record, frozen=True, kw_only=True):
    """Live tensors that belong to one module, or have one shape.

    Attributes:
        name: classes of modules, `Block > Linear`, or dtype and shape, `float32 64 x 512`; empty
            for parameters that no module holds.
        roles: bytes by what they are for, the most first.
        num_tensors: together.
    """

    name: str
    roles: dict[HeldRole, int]
    num_tensors: Count

    @property
    def num_bytes(self) -> int:
        """Total bytes."""
        return sum(self.roles.values())


class HeldTensors(Record, frozen=True, kw_only=True):
    """Tensors of a training of the user's own that lived between two steps, or as memory was
    refused; measured.

    Attributes:
        step: optimizer steps made by then.
        refused: whether it was looked as memory was refused.
        line: of the script at which it was, `folder/train.py:41`; empty where it is unknown.
        held: bytes by what they are for, the most first.
        modules: that hold the parameters, with gradients and optimizer state.
        others: all other tensors, by dtype and shape.
        allocated_bytes: by the allocator's count, tensors that only autograd holds included.
        elapsed_s: that the look took.
    """

    step: int
    refused: bool = False
    line: str = ""
    held: dict[HeldRole, int]
    modules: tuple[HeldSource, ...] = ()
    others: tuple[HeldSource, ...] = ()
    allocated_bytes: int | None = None
    elapsed_s: float = 0.0
    unavailable: dict[str, str] = {}

    @property
    def num_bytes(self) -> int:
        """Total bytes."""
        return sum(self.held.values())


class MemoryExplained(Record, frozen=True, kw_only=True):
    """Where the memory of a script's steps goes.

    Attributes:
        sizes: that were explained, the recommended one first.
        held: by a training that a callback watched, one look after the other.
        snapshot: name of the file of torch's recorder beside the record; empty if there is none.
        recorded: what it says of one real step at the recommended size, on CUDA.
        elapsed_s: wall time that it took, after the search.
        reason: why nothing is known.
    """

    sizes: tuple[ExplainedSize, ...] = ()
    held: tuple[HeldTensors, ...] = ()
    snapshot: str = ""
    recorded: MemoryAnalysis | None = None
    elapsed_s: float = 0.0
    reason: str = ""
