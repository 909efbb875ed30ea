"""Pages of the tab in TensorBoard that are of no single run, as data."""

from __future__ import annotations

from ..records import Flame, Record
from .chart import Chart
from .report import LimitText, LongTable, Table


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


class TracePage(Record, frozen=True, kw_only=True):
    """The page of a folder of traces.

    Attributes:
        limits: what limits the steps, with whose steps they are.
        tables: in the order in which they are shown.
        flames: where the time went by stack, with whose it is.
        grown: what changed from one trace to another, where they are not the ranks of one job.
    """

    headline: str
    limits: tuple[tuple[str, LimitText], ...]
    notes: tuple[str, ...]
    charts: tuple[Chart, ...]
    tables: tuple[Table, ...]
    flames: tuple[tuple[str, tuple[Flame, ...]], ...] = ()
    grown: tuple[LongTable, ...] = ()
