"""What `analyze` found as one HTML file that asks nobody for anything; the tab shows the same."""

from __future__ import annotations

from ..anatomy import Anatomies
from ..tab import TracePage
from . import SCRIPTS, asset
from .anatomy import page_parts
from .page import START, chart_data, environment, policy


def render(page: TracePage, anatomies: Anatomies | None, name: str) -> str:
    """The whole file.

    Args:
        page: of the traces.
        anatomies: pictures of their steps.
        name: what was looked at.
    """
    charts = {f"t-{chart.key}": chart for chart in page.charts}
    drawn = page_parts(anatomies)
    style = "\n".join(map(asset, ("uplot/uPlot.min.css", "report.css", *drawn.style)))
    script = "\n".join((*map(asset, (*SCRIPTS, *drawn.script)), START))
    return (
        environment()
        .get_template("traces.html.jinja")
        .render(
            report={"title": name},
            page=page,
            name=name,
            style=style,
            script=script,
            policy=policy(style, script),
            data=chart_data(charts),
            licence=asset("uplot/LICENSE"),
            **drawn.values,
        )
    )
