"""What `analyze` found as one HTML file that asks nobody for anything; the tab shows the same."""

from __future__ import annotations

from ..anatomy import Anatomies
from ..tab import TracePage
from .page import whole_file


def render(page: TracePage, anatomies: Anatomies | None, name: str) -> str:
    """The whole file.

    Args:
        page: of the traces.
        anatomies: pictures of their steps.
        name: what was looked at.
    """
    return whole_file(
        "traces.html.jinja",
        {f"t-{chart.key}": chart for chart in page.charts},
        anatomies,
        report={"title": name},
        page=page,
        name=name,
    )
