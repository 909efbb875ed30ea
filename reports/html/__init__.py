"""The report as one HTML file, and the assets that other pages draw charts with.

May import the model and `words/`.
"""

from __future__ import annotations

from pathlib import Path

ASSETS = Path(__file__).parent / "assets"
"""uPlot (`uplot/`, with its licence), what draws charts with it, `report.css`."""
SCRIPTS = ("uplot/uPlot.iife.min.js", "chart_marks.js", "charts.js", "tables.js")
"""What a page with live charts and long tables runs, in this order."""


def asset(name: str) -> str:
    """The text of an asset, `charts.js` or `uplot/uPlot.min.css`."""
    return (ASSETS / name).read_text(encoding="utf-8")
