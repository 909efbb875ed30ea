"""Steps that are alike, and their times."""

from __future__ import annotations

from .reservoir import Reservoir
from .stretches import Stretches

CAPACITY = 512
"""Steps that stand behind a median; more would narrow no decision."""


class StepKind:
    """Steps of the same size and number of micro-batches.

    Attributes:
        times: (step, wait) in nanoseconds, of steps that followed one of the same kind: neither
            the first of a shape nor the short one of an epoch's end.
        unsettled: those of other steps, a few of them; all there is in very short runs.
        stretches: in place of both on a device that runs behind the host.
    """

    __slots__ = (
        "batch_size",
        "elapsed_ns",
        "micro_batches",
        "num_steps",
        "stretches",
        "times",
        "unsettled",
    )

    def __init__(self, batch_size: int, micro_batches: int) -> None:
        self.batch_size = batch_size
        self.micro_batches = micro_batches
        self.num_steps = 0
        self.elapsed_ns = 0
        self.times: Reservoir[tuple[int, int]] = Reservoir(CAPACITY, seed=batch_size)
        self.unsettled: list[tuple[int, int]] = []
        self.stretches = Stretches()

    @property
    def num_timed(self) -> int:
        """Steps behind its times."""
        return self.times.count or self.stretches.num_steps
