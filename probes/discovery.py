"""Which loader trains: the one that yields, with gradients enabled, between optimizer steps.

A *cycle* ends at the first such fetch after every optimizer seen so far has stepped. This gives
four batches a cycle under accumulation over four, and two batches where a second optimizer steps
every other batch. Yielding before the first step proves nothing: scripts validate first.
"""

from __future__ import annotations

from collections import Counter


class CycleFinder:
    """Told of fetches and steps; says when a whole training cycle has been seen."""

    def __init__(self) -> None:
        self.optimizers: set[int] = set()
        self.num_steps = 0
        self.num_fetches = 0
        self.num_cycles = 0
        self._stepped: set[int] = set()
        self._fetched: Counter[int] = Counter()
        self._known_at_start: set[int] = set()
        self._last: Counter[int] = Counter()
        self._stable = False

    def stepped(self, optimizer: int) -> None:
        """An optimizer made a step."""
        self.num_steps += 1
        self.optimizers.add(optimizer)
        self._stepped.add(optimizer)

    def fetching(self) -> bool:
        """A batch is about to be fetched. True at the end of a cycle."""
        if not self.optimizers or not self._stepped >= self.optimizers:
            return False
        self._last = self._fetched
        self._stable = self.num_cycles > 0 and self._known_at_start == self.optimizers
        self.num_cycles += 1
        self._known_at_start = set(self.optimizers)
        self._stepped = set()
        self._fetched = Counter()
        return True

    def fetched(self, loader: int) -> None:
        """A loader yielded a batch to code that can train on it."""
        self.num_fetches += 1
        self._fetched[loader] += 1

    @property
    def stable(self) -> bool:
        """Whether the last cycle began and ended with the same optimizers."""
        return self._stable

    @property
    def complete(self) -> bool:
        """Whether the last cycle began and ended with the same optimizers and had batches."""
        return self._stable and bool(self._last)

    @property
    def training_loaders(self) -> Counter[int]:
        """Loader to batches in the last cycle, in the order of their first fetch."""
        return self._last
