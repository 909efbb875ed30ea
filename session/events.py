"""After a run: its sizes as TensorBoard's own dashboards show them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..records import Advice, RunRecord
from .store import TRACES, read_samples

NOTE = (
    "\n\nScalars smooths its curves by default, and leaves out what it takes for outliers: set "
    "smoothing to 0 and untick *Ignore outliers in chart scaling*. The tab **Batch Advisor** shows "
    "the same values as they are."
)


def write_run_events(record: RunRecord, advice: Advice, folder: Path) -> None:
    """Writes event files below `traces/`, where the traces of the same sizes are.

    Raises:
        OSError: they cannot be written.
    """
    from ..reports.events import write_events
    from ..reports.markdown import MARK, render
    from .report import report_of

    text = render(report_of(record, folder)).removeprefix(MARK).strip() + NOTE
    steps = _steps(read_samples(folder))
    write_events(folder / TRACES, record, advice, text=text, steps=steps)


def _steps(rows: Sequence[dict[str, Any]]) -> dict[int, list[tuple[float, float]]]:
    """Step times and input waits by the ordinal of the trial; rows of other kinds are left out."""
    steps: dict[int, list[tuple[float, float]]] = {}
    for row in rows:
        ordinal = row.get("trial")
        times = [row.get("step_s"), row.get("input_wait_s")]
        known = [float(one) for one in times if isinstance(one, (int, float))]
        if isinstance(ordinal, int) and len(known) == 2 and all(map(math.isfinite, known)):
            steps.setdefault(ordinal, []).append((known[0], known[1]))
    return steps
