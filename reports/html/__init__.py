"""The report as one HTML file, and the assets that other pages draw charts with."""

from __future__ import annotations

from pathlib import Path

ASSETS = Path(__file__).parent / "assets"
"""uPlot (`uplot/`, with its licence), `charts.js` (draws charts with it), `report.css`."""


def asset(name: str) -> str:
    """The text of an asset, `charts.js` or `uplot/uPlot.min.css`."""
    return (ASSETS / name).read_text(encoding="utf-8")
