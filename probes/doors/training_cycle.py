"""Which loader trains: the one that yields, with gradients enabled, between optimizer steps.

A *cycle* ends at the first such fetch after every optimizer seen so far has stepped. This gives
four batches a cycle under accumulation over four, and two batches where a second optimizer steps
every other batch. Yielding before the first step proves nothing: scripts validate first. Nor does
yielding in one cycle alone: scripts validate after a step, and forget `torch.no_grad()`.

There may be more than one step in a cycle: after each batch, where the second optimizer steps on
every other one; a pool of batches is read and then trained on one by one; or each batch is stepped
on several times (truncated backpropagation through time).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from math import gcd
from typing import NamedTuple

MOST_CYCLES = 5
"""Cycles after which a loader is taken, though none was in two of them in a row, or their steps
were as many in no two of them in a row."""

FEW_CYCLES = 4
MOST_OF = 0.75
"""Share of a window's cycles that are alike where its steps are counted."""


class Rhythm(NamedTuple):
    """Batches and optimizer steps of a cycle.

    Attributes:
        micro_batches: batches per optimizer step.
        steps_per_batch: optimizer steps per batch; one of the two is 1.
        pool: how often that is repeated in a cycle; sizes change between cycles.
    """

    micro_batches: int
    steps_per_batch: int = 1
    pool: int = 1


def parts_of(num_batches: int, num_steps: int) -> int:
    """The equal parts that a cycle can be divided into, each with whole batches and steps."""
    return gcd(num_batches, num_steps) if num_batches else 1


def usual_steps(seen: Mapping[int, int]) -> int | None:
    """Optimizer steps on each batch of a window.

    Args:
        seen: how many cycles had each number of them. Of a few cycles nothing more can be told; of
            more an odd one, at the end of an epoch, says nothing.

    Returns:
        0 where most have no number in common, `None` without a cycle.
    """
    if not seen:
        return None
    steps, total = max(seen, key=seen.__getitem__), sum(seen.values())
    return steps if total < FEW_CYCLES or seen[steps] >= MOST_OF * total else 0


class CycleFinder:
    """Finds a whole training cycle, told of fetches and steps.

    Attributes:
        last_steps: steps in the last cycle. Of several optimizers the one that made the fewest
            counts: the critic of a GAN may make five on a batch for one of the generator. But each
            fetch with a step of any behind it has one.
    """

    def __init__(self) -> None:
        self.optimizers: set[int] = set()
        self.num_steps = 0
        self.num_fetches = 0
        self.num_cycles = 0
        self.last_steps = 0
        self._apart = False
        self._steps_before_last = 0
        self._stepped: Counter[int] = Counter()
        self._fetched: Counter[int] = Counter()
        self._bursts = 0
        self._in_burst = False
        self._known_at_start: set[int] = set()
        self._last: Counter[int] = Counter()
        self._before_last: Counter[int] = Counter()
        self._stable = False

    def stepped(self, optimizer: int) -> None:
        """An optimizer made a step."""
        self.num_steps += 1
        self.optimizers.add(optimizer)
        self._stepped[optimizer] += 1
        self._bursts += not self._in_burst
        self._in_burst = True

    def set_apart(self) -> None:
        """Batches are fetched in another thread than that of the steps.

        How many of either fall into a cycle is chance then, and steps are not counted.
        """
        self._apart = True

    def forget(self, optimizers: set[int]) -> None:
        """These step no more; one that does all the same counts again."""
        self.optimizers -= optimizers

    def forget_idle(self) -> bool:
        """Forgets those that did not step in this cycle. False where none stepped."""
        if self._stepped:
            self.optimizers &= self._stepped.keys()
        return bool(self._stepped)

    def fetching(self) -> bool:
        """A batch is about to be fetched. True at the end of a cycle."""
        if not self.optimizers or not self._stepped.keys() >= self.optimizers:
            return False
        self._before_last, self._last = self._last, self._fetched
        self._steps_before_last = self.last_steps
        fewest = min(self._stepped[optimizer] for optimizer in self.optimizers)
        self.last_steps = 1 if self._apart else max(fewest, self._bursts)
        self._stable = self.num_cycles > 0 and self._known_at_start == self.optimizers
        self.num_cycles += 1
        self._known_at_start = set(self.optimizers)
        self._stepped = Counter()
        self._fetched = Counter()
        self._bursts = 0
        return True

    def fetched(self, loader: int) -> None:
        """A loader yielded a batch to code that can train on it."""
        self.num_fetches += 1
        self._fetched[loader] += 1
        self._in_burst = False

    @property
    def stable(self) -> bool:
        """Whether the last cycle began and ended with the same optimizers."""
        return self._stable

    @property
    def complete(self) -> bool:
        """Whether the last cycle began and ended with the same optimizers and had batches.

        Several loaders may all have been validated on in the first two cycles: one more tells.
        Where each cycle has another loader (tasks that take turns), no number of cycles tells.
        """
        num_both = len(self._both())
        enough = 1 if num_both == 1 else 3 if num_both else MOST_CYCLES
        if not self._stable or not self._last or self.num_cycles < enough:
            return False
        # The first cycle may hold a step of another kind: one that a schedule asks for, or a
        # penalty of every 16th batch.
        steady = self.rhythm(next(iter(self.training_loaders))) is not None
        return steady or self.num_cycles >= MOST_CYCLES

    @property
    def training_loaders(self) -> Counter[int]:
        """Loader to batches in the last cycle, in the order of their first fetch.

        Those alone that were fetched from in the cycle before it as well, if there are any.
        """
        both = self._both()
        return Counter(
            {loader: num for loader, num in self._last.items() if loader in both or not both}
        )

    def num_batches(self, loader: int) -> int:
        """Batches of a loader in the last cycle."""
        return self._last[loader]

    def rhythm(self, loader: int) -> Rhythm | None:
        """How the batches of a training loader and the steps go together.

        `None` where several steps in a cycle have no whole ratio to its batches, or another one
        in the cycle before.
        """
        batches, before = self._last[loader], self._before_last[loader]
        if self.last_steps == 1 and (self._steps_before_last == 1 or not before):
            return Rhythm(batches)
        pool = parts_of(batches, self.last_steps)
        rhythm = Rhythm(batches // pool, self.last_steps // pool, pool)
        other = batches * self._steps_before_last != before * self.last_steps
        if (before and other) or min(rhythm.micro_batches, rhythm.steps_per_batch) > 1:
            return None
        return rhythm

    def _both(self) -> set[int]:
        return self._before_last.keys() & self._last.keys()
