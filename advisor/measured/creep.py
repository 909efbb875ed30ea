"""Memory that rises from step to step: told from what an allocator, the collector and the data do.

The lows of blocks of steps are looked at: longer batches and what waits for the collector raise the
readings of some steps and leave the low of a block alone; a pool of the allocator's makes one jump;
a heap that warms up rises ever more slowly. A step that keeps something raises every block alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from statistics import median

import msgspec

from ...records import KeptTensors, RunRecord

NUM_BLOCKS = 10
BLOCK_STEPS = 16
"""Steps of each of the first blocks; later blocks are longer."""
READS = 16
"""Memory readings of one block."""
LEAST_RISE = 0.05
"""Rise over all blocks, as a share of the first low, below which nothing is said."""
EVEN_SHARE = 0.2
"""Every rise but the largest is at least this share of their median."""
RUBBISH = 0.25
"""Share of a rise that goes with a collection: then it was the collector's to come."""
LASTING = 0.6
"""The second half rises by at least this share of the first half's rise."""
MIN_LOOK_STEPS = 30
"""With fewer steps between looks at the tensors that live nothing is said."""
LEAST_TENSORS, LEAST_NODES = 0.5, 1.0
"""Tensors, and nodes of autograd graphs, that a step keeps; fewer count as none."""
ALIKE_FACTOR = 3.0
"""Between looks a step keeps much the same: its rates differ by no more than this factor."""


class Rise(msgspec.Struct, frozen=True):
    """Lows that rise with every block."""

    first_bytes: int
    last_bytes: int
    num_blocks: int

    def outlasts(self, collected_bytes: int) -> bool:
        """Whether most of it is left after a collection.

        Args:
            collected_bytes: a reading right after it.
        """
        rise = self.last_bytes - self.first_bytes
        return collected_bytes >= self.last_bytes - RUBBISH * rise


def rise_of(lows: Sequence[int]) -> Rise | None:
    """Whether memory rises through the last blocks; `None` also where they are too few to tell.

    Args:
        lows: the lowest reading of each block of equally many steps, in bytes, in order; without
            the first steps of a training.
    """
    last = lows[-NUM_BLOCKS:]
    if len(last) < NUM_BLOCKS or last[-1] - last[0] < LEAST_RISE * last[0]:
        return None
    rises = [after - before for before, after in pairwise(last)]
    jump = rises.index(max(rises))  # may be a new pool of the allocator's
    even = [rise for place, rise in enumerate(rises) if place != jump]
    usual = median(even)
    if (
        usual <= 0
        or min(even) < EVEN_SHARE * usual
        or usual * (NUM_BLOCKS - 1) < LEAST_RISE * last[0]
    ):
        return None
    half = len(even) // 2
    if median(even[half:]) < LASTING * median(even[:half]):
        return None
    return Rise(last[0], last[-1], NUM_BLOCKS - 1)


class Blocks:
    """Readings between steps as lows of blocks, at most 2 x NUM_BLOCKS of them.

    When they are many, neighbours become one block, and readings are taken half as often: a
    training of any length costs the same.

    Attributes:
        lows: of whole blocks, in bytes; the first block of a training is left out.
        stride: steps from one reading to the next.
    """

    def __init__(self) -> None:
        self.lows: list[int] = []
        self.stride = BLOCK_STEPS // READS
        self._reads: list[int] = []
        self._is_first = True

    @property
    def num_steps(self) -> int:
        """Steps of one block."""
        return self.stride * READS

    def add(self, reading: int) -> bool:
        """Takes a reading; whether it completed a block."""
        self._reads.append(reading)
        if len(self._reads) < READS:
            return False
        low, self._reads = min(self._reads), []
        if self._is_first:
            self._is_first = False
            return False
        self.lows.append(low)
        if len(self.lows) == 2 * NUM_BLOCKS:
            self.lows = [min(pair) for pair in zip(self.lows[::2], self.lows[1::2], strict=True)]
            self.stride *= 2
        return True

    def forget(self) -> None:
        """Drops the readings so far: they say nothing about what follows."""
        self.lows, self._reads = [], []


class Keeping(msgspec.Struct, frozen=True):
    """Tensors and bytes that each step keeps, by looks at the tensors that live.

    Attributes:
        tensors, nodes, more_bytes: a step.
        latest: of the last look.
    """

    num_steps: int
    tensors: float
    nodes: float
    more_bytes: float
    latest: KeptTensors


def keeping_of(looks: Sequence[KeptTensors]) -> Keeping | str | None:
    """Finds what each step keeps; why that cannot be told; or `None` where steps keep nothing.

    How many tensors live does not depend on the batch size, so looks at several sizes count
    together.

    Args:
        looks: at one process after the other.
    """
    num_steps = sum(look.num_steps for look in looks)
    if not looks:
        return "nobody looked at the tensors that live"
    if num_steps < MIN_LOOK_STEPS:
        return f"{num_steps} steps are too few to see whether each keeps something"
    tensors = _steady([look.more_tensors / look.num_steps for look in looks], LEAST_TENSORS)
    nodes = _steady([look.more_nodes / look.num_steps for look in looks], LEAST_NODES)
    if not (tensors or nodes) or looks[-1].is_bounded:
        return None
    return Keeping(
        num_steps=num_steps,
        tensors=tensors,
        nodes=nodes,
        more_bytes=sum(look.more_bytes for look in looks) / num_steps,
        latest=looks[-1],
    )


def looks_of(record: RunRecord) -> list[KeptTensors]:
    """The looks of a record, in order."""
    return [trial.kept for trial in record.trials if trial.kept is not None]


def _steady(rates: Sequence[float], least: float) -> float:
    """The median of rates that are all at least so high, and alike; else 0."""
    if min(rates) < least or max(rates) > ALIKE_FACTOR * min(rates):
        return 0.0
    return float(median(rates))
