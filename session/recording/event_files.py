"""Event files: sizes as TensorBoard's own dashboards show them, from the first one on."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...records import Advice, RunRecord
from .store import TRACES, RunStore, read_samples

if TYPE_CHECKING:
    from ...reports.events.run import EventFiles

NOTE = (
    "\n\nScalars smooths its curves by default, and leaves out what it takes for outliers: set "
    "smoothing to 0 and untick *Ignore outliers in chart scaling*. The tab **Batch Advisor** shows "
    "the same values as they are."
)
UPDATE_COST_FACTOR = 20
"""Pause between two updates, in times what the last one took; a new size does not wait."""
REWRITE_GROWTH = 2
"""A size of a watched loop is written again when so many times the steps stand behind it."""


class EventStore(RunStore):
    """A run's folder that TensorBoard can watch: event files grow with the record.

    Each size has its own when it was measured, and the last record replaces what later trials made
    more exact. They are written between two trials, or at a callback's boundary. A failure costs
    event files, never the run.

    Attributes:
        problem: why there are none, or not the last ones; empty while all is well.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.problem = ""
        self._files: EventFiles | None = None
        self._written: dict[int, int] = {}
        self._sizes: set[int] = set()
        self._last: tuple[Any, Any] = ("", ())
        self._due_s = 0.0

    def save(self, record: RunRecord) -> None:
        """Writes the record, then what is new in it as events.

        Raises:
            RunError: the record cannot be written.
        """
        super().save(record)
        if self.problem:
            return
        try:
            self._follow(record)
        except Exception as error:  # noqa: BLE001  also what protocol buffers raise
            self.problem = str(error) or type(error).__name__

    def _follow(self, record: RunRecord) -> None:
        if self._files is None:
            # Now, while nothing is measured yet: TensorBoard's modules take a third of a second.
            from ...reports.events.run import EventFiles

            self._files = EventFiles(self.folder / TRACES)
        if not record.trials or not self._is_due(record):
            return
        from ...advisor.advise import advise

        started_s = time.monotonic()
        write_run_events(record, advise(record), self.folder, self._files)
        self._last = (record.state, record.trials)
        self._sizes = {trial.batch_size for trial in record.trials}
        self._written = _steps_behind(record)
        now_s = time.monotonic()
        self._due_s = now_s + UPDATE_COST_FACTOR * (now_s - started_s)

    def _is_due(self, record: RunRecord) -> bool:
        if record.state != "running":
            return self._last != (record.state, record.trials)
        if not {trial.batch_size for trial in record.trials} <= self._sizes:
            return True
        grown = any(
            num >= REWRITE_GROWTH * self._written.get(ordinal, 0)
            for ordinal, num in _steps_behind(record).items()
        )
        return grown and time.monotonic() >= self._due_s


def _steps_behind(record: RunRecord) -> dict[int, int]:
    """How many steps a trial rests on, one at least; by its ordinal."""
    return {
        trial.ordinal: max(1, trial.step_s.num_samples if trial.step_s is not None else 0)
        for trial in record.trials
    }


def write_run_events(
    record: RunRecord, advice: Advice, folder: Path, files: EventFiles | None = None
) -> None:
    """Writes event files below `traces/`, where the traces of the same sizes are.

    Args:
        files: that wrote earlier states of the record, if any did.

    Raises:
        OSError: they cannot be written.
    """
    from ...reports.builder.sizes.rows import size_rows
    from ...reports.events.run import EventFiles
    from ...reports.markdown.page import MARK, render
    from ..report import report_of

    text = render(report_of(record, folder)).removeprefix(MARK).strip() + NOTE
    steps = _steps(read_samples(folder)) if record.observed is None else {}
    for trial in record.trials:
        if trial.turns is not None:  # steps of several sizes
            steps.pop(trial.ordinal, None)
    (files or EventFiles(folder / TRACES)).update(
        record, size_rows(record, advice), text=text, steps=steps
    )


def _steps(rows: Sequence[dict[str, Any]]) -> dict[int, list[tuple[float, float]]]:
    """Step times and input waits by the ordinal of the trial; rows of other kinds are left out."""
    steps: dict[int, list[tuple[float, float]]] = {}
    for row in rows:
        ordinal = row.get("trial")
        times = [row.get("step_s"), row.get("input_wait_s")]
        known = [float(time_s) for time_s in times if isinstance(time_s, (int, float))]
        if isinstance(ordinal, int) and len(known) == 2 and all(map(math.isfinite, known)):
            steps.setdefault(ordinal, []).append((known[0], known[1]))
    return steps
