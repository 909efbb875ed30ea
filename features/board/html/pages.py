"""Pages and fragments of the tab: data in, escaped HTML out."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from ....reports.anatomy import Anatomies
from ....reports.blocks import Document
from ....reports.chart import Chart
from ....reports.html import ASSETS
from ....reports.report import Report, Table
from ....reports.tab import ComparePage, TracePage
from ....reports.words.compared import not_compared
from ....reports.words.traces import trace_line
from ....reports.words.wording import clean
from ....units import format_bytes
from ..records import Entry, Shown

if TYPE_CHECKING:
    import jinja2

HERE = Path(__file__).parent
OWN_SCRIPTS = ("index.js", "board.js", "board.css")


@functools.cache
def assets() -> Mapping[str, Path]:
    """Files that the page may ask for, by the name that it asks with."""
    own = {name: HERE / "assets" / name for name in OWN_SCRIPTS}
    shared = (path for path in ASSETS.rglob("*") if path.is_file())
    return {**{path.relative_to(ASSETS).as_posix(): path for path in shared}, **own}


def page() -> str:
    """The tab's page; everything else is asked for by its script."""
    return _environment().get_template("page.html.jinja").render()


def line(shown: Shown) -> str:
    """One entry in one line."""
    if shown.advice is not None:
        return clean(shown.advice.headline)
    return trace_line(shown.analysis) if shown.analysis is not None else clean(shown.problem)


def show_run(
    entry: Entry,
    report: Report,
    summary: Table | None,
    anatomies: Anatomies | None = None,
    *,
    viewer: bool,
) -> str:
    """A run.

    Args:
        report: made from its record.
        summary: metrics by batch size; `None` where nothing is known.
        anatomies: pictures of its steps.
        viewer: whether traces can be opened here.
    """
    return _render(
        "board_run.html.jinja",
        _charts_of(report),
        report=report,
        not_compared=not_compared(report.advice),
        summary=summary,
        traces=_traces(entry),
        viewer=viewer,
        anatomies=anatomies,
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


def show_traces(
    entry: Entry, page: TracePage, anatomies: Anatomies | None = None, *, viewer: bool
) -> str:
    """Traces without a run, with pictures of their steps."""
    charts = {f"t-{chart.key}": chart for chart in page.charts}
    return _render(
        "board_traces.html.jinja",
        charts,
        page=page,
        name=f"traces in {entry.name}",
        traces=_traces(entry),
        viewer=viewer,
        anatomies=anatomies,
    )


def show_problem(entry: Entry, problem: str) -> str:
    """Why an entry cannot be shown."""
    return _render("problem.html.jinja", {}, name=entry.name, problem=problem)


def compare_two(document: Document) -> str:
    """Two runs side by side."""
    from ....reports.html.document import TEMPLATE, charts_of, values_of

    return _render(TEMPLATE, charts_of(document), **values_of(document))


def compare_many(page: ComparePage) -> str:
    """Several runs side by side; what could not be read is named."""
    charts = {f"x-{chart.key}": chart for chart in page.charts}
    return _render(
        "compare.html.jinja",
        charts,
        page=page,
        unread=page.unread,
    )


def _traces(entry: Entry) -> list[dict[str, str]]:
    return [
        {
            "path": trace.path,
            "size": format_bytes(trace.num_bytes),
            "address": f"trace/{entry.key}/{trace.key}/{quote(Path(trace.path).name, safe='')}",
        }
        for trace in entry.traces
    ]


def _charts_of(report: Report) -> dict[str, Chart]:
    from ....reports.html.page import charts_of

    return charts_of(report)


def _render(
    template: str, charts: dict[str, Chart], anatomies: Anatomies | None = None, **values: Any
) -> str:
    from ....reports.html.anatomy import page_parts
    from ....reports.html.page import chart_data

    values |= page_parts(anatomies).values
    return _environment().get_template(template).render(data=chart_data(charts), **values)


@functools.cache
def _environment() -> jinja2.Environment:
    from ....reports.html.page import environment

    return environment(HERE / "templates")
