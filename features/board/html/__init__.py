"""The tab in TensorBoard: pages and fragments of HTML, escaped by jinja2.

May import the reports' model, `reports/words/`, and `reports/html/`, whose charts and templates it
shows.
"""

from __future__ import annotations

from .pages import (
    assets,
    compare_many,
    compare_two,
    line,
    page,
    show_devices,
    show_problem,
    show_run,
    show_traces,
)

__all__ = [
    "assets",
    "compare_many",
    "compare_two",
    "line",
    "page",
    "show_devices",
    "show_problem",
    "show_run",
    "show_traces",
]
