"""A snapshot of the memory as one HTML file that asks nobody for anything."""

from __future__ import annotations

from ..report import MemoryReport
from . import SCRIPTS, asset
from .page import START, chart_data, environment, policy


def render(report: MemoryReport) -> str:
    """The whole file."""
    charts = {f"m-{chart.key}": chart for device in report.devices for chart in device.charts}
    style = asset("uplot/uPlot.min.css") + "\n" + asset("report.css")
    script = "\n".join((*map(asset, SCRIPTS), START))
    return (
        environment()
        .get_template("memory.html.jinja")
        .render(
            report=report,
            style=style,
            script=script,
            policy=policy(style, script),
            data=chart_data(charts),
            licence=asset("uplot/LICENSE"),
        )
    )
