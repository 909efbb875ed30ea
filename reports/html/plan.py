"""A plan over records of several types as one HTML file that asks nobody for anything."""

from __future__ import annotations

from ..report import PlanReport
from . import SCRIPTS, asset
from .page import START, chart_data, environment, policy


def render(report: PlanReport) -> str:
    """The whole file."""
    charts = {f"p-{chart.key}": chart for part in report.sections for chart in part.charts}
    style = asset("uplot/uPlot.min.css") + "\n" + asset("report.css")
    script = "\n".join((*map(asset, SCRIPTS), START))
    return (
        environment()
        .get_template("plan.html.jinja")
        .render(
            report=report,
            style=style,
            script=script,
            policy=policy(style, script),
            data=chart_data(charts),
            licence=asset("uplot/LICENSE"),
        )
    )
