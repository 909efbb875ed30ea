"""The page of several runs in the tab in TensorBoard, as data."""

from __future__ import annotations

from ...records import Record
from ...reports.chart import Chart
from ...reports.report import Table


class ComparePage(Record, frozen=True, kw_only=True):
    """Two or more runs.

    Attributes:
        unread: what could not be read, and is left out.
    """

    num_runs: int
    unread: tuple[str, ...] = ()
    headline: str
    notes: tuple[str, ...]
    table: Table
    charts: tuple[Chart, ...]
