"""Seeded laws of memory, and steps on fake tensors that do not know all of them.

They are not told of jumps of workspaces, of pieces that the allocator leaves between tensors, of
memory that grows faster than the batch, nor of a bias of the whole by 12 % (standard deviation).
"""

import math
import random
from dataclasses import dataclass

from batchadvisor.advisor.search.prior_plan import next_fake_size
from batchadvisor.records import MemoryPrior

from ..on_paper import GIB, discovery_of
from .machine import Machine

BIAS = 0.12
MARGIN = 0.05
NUM_SAMPLES = 10**7


@dataclass
class MemoryLaws:
    """One script on one device."""

    seed: int

    def __post_init__(self):
        draw = random.Random(self.seed)
        self.capacity = draw.choice([8, 16, 24, 40, 48, 80, 141]) * GIB
        self.fixed = self.capacity * draw.uniform(0.02, 0.75)
        self.largest = 10 ** draw.uniform(1.3, 4.3)
        self.floor = self.fixed * draw.choice([0, 0, draw.uniform(1, 1.5)])
        self.jumps = [
            (draw.uniform(0, self.largest), draw.uniform(0, 0.06) * self.capacity)
            for _ in range(draw.randint(1, 5))
        ]
        self.pieces = draw.uniform(0, 0.10)
        self.bend = draw.uniform(0.05, 0.3) if draw.random() < 0.1 else 0.0
        self.bias = math.exp(draw.gauss(0, BIAS))
        self.native = draw.choice([1, 4, 8, 16, 32, 64])
        while self.native > 1 and self.memory(self.native) > self.capacity:
            self.native //= 2  # the search begins where the script's own steps ran

    def line(self, size):
        """What tensors take."""
        slope = (self.capacity - self.fixed) / self.largest
        return max(self.floor, self.fixed + slope * size)

    def memory(self, size):
        """What the device reads."""
        slope = (self.capacity - self.fixed) / self.largest
        bent = self.fixed + slope * size * (1 + self.bend * size / self.largest)
        jumps = max((more for start, more in self.jumps if size >= start), default=0)
        pieces = 1 + self.pieces * random.Random(self.seed * 100_003 + size).random()
        return (max(self.floor, bent) + jumps) * pieces

    def prior(self):
        """What steps on fake tensors say."""
        peaks = {}
        target = int(self.capacity * (1 - MARGIN))
        while (size := next_fake_size(peaks, self.native, target, NUM_SAMPLES)) is not None:
            peaks[size] = int(self.line(size) * self.bias)
        return MemoryPrior(peaks=peaks)

    def machine(self, *, prior):
        """The same on paper, on which whole searches run."""
        return Machine(
            memory=self.memory,
            capacity=self.capacity,
            discovery=discovery_of(native=self.native, num_samples=NUM_SAMPLES),
            noise=0.0,
            seed=self.seed,
            prior=self.prior() if prior else None,
        )
