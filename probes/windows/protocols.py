"""The interface of a window, and of the profiler that it needs."""

from __future__ import annotations

from typing import Protocol

from ...records import Profile, Trial
from ..process.messages import Phase, StepSample


class WindowProfiler(Protocol):
    """A profiler with its own schedule; see profiling.py."""

    def start(self) -> None: ...
    def step(self) -> bool:
        """Called at each boundary; true when the schedule is complete."""

    def finish(self) -> Profile: ...
    def abandon(self) -> None: ...


class TrialWindow(Protocol):
    """One trial as the running loop sees it: of one size, or of several that take turns."""

    phase: Phase

    @property
    def size(self) -> int:
        """The size of the step that comes next."""

    @property
    def num_steps(self) -> int:
        """Steps made in the present phase."""

    @property
    def last_step_s(self) -> float | None:
        """A recent step's time by the host's clock, for progress only."""

    def arrived(self, num_samples: int | None, proof: str, wait_s: float, *, primary: bool) -> None:
        """A batch went to the script after `wait_s` seconds."""

    def resume(self) -> None:
        """The script goes on: the next step starts now."""

    def boundary(self, parts: int = 1) -> bool:
        """A step ended, by the script's next fetch. True when the trial is complete.

        Args:
            parts: equal steps that it was.
        """

    def samples(self) -> tuple[StepSample, ...]:
        """Every step that counted, for `samples.jsonl`."""

    def result(self, ordinal: int, worker: int) -> Trial:
        """The trial as the record keeps it."""
