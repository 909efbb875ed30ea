"""A plan as people read it, as data."""

from __future__ import annotations

from ...records import Record
from ...reports.chart import Chart
from ...reports.report import Fact, Finding, Table


class PlanSection(Record, frozen=True, kw_only=True):
    """A part of a plan: sentences, a table, charts.

    Attributes:
        brief: whether a window of text shows it too; files show all.
    """

    title: str
    texts: tuple[str, ...] = ()
    table: Table | None = None
    charts: tuple[Chart, ...] = ()
    brief: bool = True


class PlanReport(Record, frozen=True, kw_only=True):
    """A plan over records of several types, as people read it; its JSON is `ClusterPlan`.

    Attributes:
        snippet: Python code to paste; empty where there is nothing to divide.
    """

    title: str
    headline: str
    notices: tuple[str, ...] = ()
    sections: tuple[PlanSection, ...]
    findings: tuple[Finding, ...] = ()
    snippet: str = ""
    identity: tuple[Fact, ...] = ()
