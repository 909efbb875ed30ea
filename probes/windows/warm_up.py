"""The steps before those that are timed, or all steps of a fit trial."""

from __future__ import annotations

MAX_WARMUP_STEPS = 12
SETTLED = 0.10
"""Two successive warm-up steps this close end the warm-up."""
SHORT_STEPS = 12
"""Where the time of a trial has room for this many steps, it is a usual one, whatever was expected:
a script's first steps, by which a trial is planned, load libraries and are many times as long."""
QUEUED = 2
"""Batches that each worker of a loader holds ready: `prefetch_factor`, unless a script sets it."""
WAITS = 0.05
"""A step that waited for this share of its time found no batch ready."""


class WarmUp:
    """Times of the steps so far, and whether they have settled.

    Args:
        min_steps: are made whatever their times.
        time_limit_s: of the trial; after it nothing is waited for.
        num_stale: steps that the script still makes with batches of the window before.
        num_workers: of the loader. What they made ready while a first step took its time is used
            up before steps cost what they always do.
    """

    def __init__(
        self, *, min_steps: int, time_limit_s: float, num_stale: int, num_workers: int = 0
    ) -> None:
        self._min_steps = min_steps
        self._time_limit_s = time_limit_s
        self._num_stale = num_stale
        self._num_queued = QUEUED * num_workers if num_workers > 1 else 0
        self._seconds: list[float] = []
        self._filled_after: int | None = None
        self._is_full = False

    @property
    def num_steps(self) -> int:
        """Steps so far, without stale ones."""
        return len(self._seconds)

    @property
    def last_s(self) -> float | None:
        """Seconds of the last step; `None` before the first."""
        return self._seconds[-1] if self._seconds else None

    @property
    def filled_after(self) -> int | None:
        """Steps after which the loader held every batch ready that it may; `None`: not by now.

        One that is full after the first step alone, which is a long one, is emptied by the others.
        """
        return self._filled_after if self._is_full else None

    @property
    def shortest_s(self) -> float:
        """Seconds of the shortest step, never 0."""
        return max(min(self._seconds), 1e-9)

    def mean_s(self, num: int) -> float:
        """Seconds of the last `num` steps on average, or of all that there are, never 0."""
        last = self._seconds[-num:]
        return max(sum(last) / len(last), 1e-9)

    def add(self, seconds: float, wait_s: float = 0.0, *, full: bool = False) -> None:
        """A step ended.

        Args:
            wait_s: of its time, for batches.
            full: the loader holds every batch ready that it may.
        """
        if self._seconds and wait_s >= WAITS * seconds:  # the first waits for workers to start
            self._num_queued = 0
        self._seconds.append(seconds)
        self._is_full = full
        if full and self._filled_after is None:
            self._filled_after = len(self._seconds)

    def is_short(self) -> bool:
        """Whether the time of the trial has room for the steps of a usual one."""
        return bool(self._seconds) and SHORT_STEPS * self._seconds[-1] <= self._time_limit_s

    def drop_stale(self) -> bool:
        """Whether the step that was just added was made with a batch of the window before.

        Such a step counts no more.
        """
        if not self._num_stale:
            return False
        self._num_stale -= 1
        self._seconds.clear()
        self._filled_after = None
        return True

    def is_settled(self, spent_s: float) -> bool:
        """Whether the steps can be timed from now on.

        Args:
            spent_s: seconds since the trial began.
        """
        if len(self._seconds) < self._min_steps:
            return False
        if self._min_steps < 2 and not self.is_short():  # too long to wait until they settle
            return True
        if len(self._seconds) < 2:
            return False
        if spent_s >= self._time_limit_s:
            return True
        drains = len(self._seconds) < self._num_queued and not self._is_full
        if drains and spent_s < self._time_limit_s / 2:
            return False
        before, last = self._seconds[-2:]
        return abs(last - before) <= SETTLED * last or len(self._seconds) >= MAX_WARMUP_STEPS
