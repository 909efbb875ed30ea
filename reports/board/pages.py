"""Pages and fragments of the tab: data in, escaped HTML out."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from ...records.board import Entry, Shown
from ...units import format_bytes
from ..chart import Chart
from ..html import ASSETS
from ..report import ComparisonReport, Report
from ..sections import not_compared
from ..sizes import size_rows
from ..wording import clean
from .compare import compare_page
from .summary import Measured, summary
from .traces import trace_line, trace_page

if TYPE_CHECKING:
    import jinja2

HERE = Path(__file__).parent
OWN_SCRIPTS = ("index.js", "board.js", "board.css")


@functools.cache
def assets() -> Mapping[str, Path]:
    """Files that the page may ask for, by the name that it asks with."""
    found = {name: HERE / "assets" / name for name in OWN_SCRIPTS}
    shared = (one for one in ASSETS.rglob("*") if one.is_file())
    return {**{one.relative_to(ASSETS).as_posix(): one for one in shared}, **found}


def page() -> str:
    """The tab's page; everything else is asked for by its script."""
    return _environment().get_template("page.html.jinja").render()


def line(shown: Shown) -> str:
    """One entry in one line."""
    if shown.advice is not None:
        return clean(shown.advice.headline)
    return trace_line(shown.analysis) if shown.analysis is not None else clean(shown.problem)


def show_run(shown: Shown, report: Report, *, viewer: bool) -> str:
    """A run.

    Args:
        report: made from its record.
        viewer: whether traces can be opened here.
    """
    assert shown.record is not None
    assert shown.advice is not None
    device = shown.record.device
    title = "GPU summary" if device is None or device.kind != "cpu" else "CPU summary"
    measured = [
        Measured(name=str(row.batch_size), profile=row.profile, counters=row.counters)
        for row in size_rows(shown.record, shown.advice)
        if row.profile is not None or row.counters is not None
    ]
    return _render(
        "board_run.html.jinja",
        _charts_of(report),
        report=report,
        not_compared=not_compared(report.advice),
        summary=summary(measured, f"{title}, by batch size"),
        traces=_traces(shown.entry),
        viewer=viewer,
    )


def show_devices(report: Report) -> str:
    """A run on several devices; each of them is an entry of its own as well."""
    return _render(
        "board_run.html.jinja",
        _charts_of(report),
        report=report,
        not_compared=not_compared(report.advice),
        summary=None,
        traces=(),
        viewer=False,
    )


def show_traces(shown: Shown, *, viewer: bool) -> str:
    """Traces without a run, or why an entry cannot be shown."""
    if shown.analysis is None:
        return _render("problem.html.jinja", {}, name=shown.entry.name, problem=shown.problem)
    found = trace_page(shown.analysis)
    charts = {f"t-{one.key}": one for one in found.charts}
    return _render(
        "traces.html.jinja",
        charts,
        page=found,
        name=shown.entry.name,
        traces=_traces(shown.entry),
        viewer=viewer,
    )


def compare_two(report: ComparisonReport) -> str:
    """Two runs side by side."""
    return _render(
        "comparison.html.jinja",
        _charts_of(report),
        report=report,
    )


def compare_many(shown: Sequence[Shown]) -> str:
    """Several runs side by side; what could not be read is named."""
    runs = [
        (one.entry.name, one.record, one.advice)
        for one in shown
        if one.record is not None and one.advice is not None
    ]
    unread = [
        f"{one.entry.name} is left out: {one.problem or 'these are traces, not a run'}"
        for one in shown
        if one.record is None
    ]
    found = compare_page(runs)
    charts = {f"x-{one.key}": one for one in found.charts}
    return _render(
        "compare.html.jinja",
        charts,
        page=found,
        unread=unread,
    )


def _traces(entry: Entry) -> list[dict[str, str]]:
    return [
        {
            "path": one.path,
            "size": format_bytes(one.num_bytes),
            "address": f"trace/{entry.key}/{one.key}/{quote(Path(one.path).name, safe='')}",
        }
        for one in entry.traces
    ]


def _charts_of(report: Report | ComparisonReport) -> dict[str, Chart]:
    from ..html.page import charts_of

    return charts_of(report)


def _render(template: str, charts: dict[str, Chart], **values: Any) -> str:
    from ..html.page import chart_data

    return _environment().get_template(template).render(data=chart_data(charts), **values)


@functools.cache
def _environment() -> jinja2.Environment:
    from ..html.page import environment

    return environment(HERE / "templates")
