"""A page of blocks as one HTML file that asks nobody for anything."""

from __future__ import annotations

from itertools import dropwhile, takewhile
from typing import Any

from ..blocks import Block, Charts, Document, Section
from ..chart import Chart
from .page import PREFIX, whole_file

TEMPLATE = "document.html.jinja"


def render(document: Document) -> str:
    """The whole file."""
    return whole_file(TEMPLATE, charts_of(document), **values_of(document))


def charts_of(document: Document) -> dict[str, Chart]:
    """Every chart of the page by the name that its figure carries."""
    return {
        f"{PREFIX}{chart.key}": chart
        for block in document.walk()
        if isinstance(block, Charts)
        for chart in block.charts
    }


def values_of(document: Document) -> dict[str, Any]:
    """What the template shows: what stands before the first section is in the head of the page."""
    return {
        "report": document,
        "opening": list(takewhile(_stands_alone, document.blocks)),
        "rest": list(dropwhile(_stands_alone, document.blocks)),
    }


def _stands_alone(block: Block) -> bool:
    return not isinstance(block, Section)
