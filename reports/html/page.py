"""Reports of runs, and of traces without one, as one HTML file that asks nobody for anything.

Everything stands in the file: style, uPlot with its licence, the data. The content security policy
allows exactly the style and the scripts by their hashes and nothing else. Without JavaScript the
charts are the drawings that are in the file already.
"""

from __future__ import annotations

import base64
import hashlib
from pathlib import Path
from typing import Any

import jinja2
import msgspec

from ..anatomy import Anatomies
from ..chart import Chart
from ..report import DeviceSection, Report
from ..tab import TracePage
from ..words.compared import not_compared
from ..words.flames import kinds_of, notes_of, title_of
from . import ASSETS, SCRIPTS, asset, flame
from .anatomy import page_parts
from .bars import WIDTH as BLOCKS_WIDTH
from .bars import epoch_blocks, split_bars
from .frame import HEIGHT, WIDTH
from .svg import shapes

UNUSED = {"title", "notes", "key"}
"""Fields of a chart that its script does not need, since the page shows them beside it."""
PREFIX = "c-"
"""How names of figures begin in a page of blocks."""
START = """
(function () {
  BatchAdvisorTables.enhance(document);
  var start = function () {
    BatchAdvisorCharts.enhance(JSON.parse(document.getElementById("charts").textContent));
  };
  // The drawings are on the screen before the live charts take any time.
  requestAnimationFrame(function () { window.setTimeout(start); });
})();
"""


def render(report: Report, anatomies: Anatomies | None = None) -> str:
    """The whole file of one run.

    Args:
        anatomies: pictures of its steps.
    """
    return whole_file(
        "run.html.jinja",
        charts_of(report),
        anatomies,
        report=report,
        not_compared=not_compared(report.advice),
    )


def whole_file(
    template: str, charts: dict[str, Chart], anatomies: Anatomies | None = None, **values: Any
) -> str:
    """A file of a template.

    Args:
        charts: by the names that their figures carry.
        anatomies: pictures of steps.
        values: of the template; `report` has the title.
    """
    drawn = page_parts(anatomies)
    style = "\n".join(map(asset, ("uplot/uPlot.min.css", "report.css", *drawn.style)))
    script = "\n".join((*map(asset, (*SCRIPTS, *drawn.script)), START))
    return (
        environment()
        .get_template(template)
        .render(
            style=style,
            script=script,
            policy=policy(style, script),
            data=chart_data(charts),
            licence=asset("uplot/LICENSE"),
            **values,
            **drawn.values,
        )
    )


def policy(style: str, script: str) -> str:
    """A policy that allows this style and this script and no other source of anything."""
    return (
        f"default-src 'none'; style-src {_hash(style)}; script-src {_hash(script)}; "
        "base-uri 'none'; form-action 'none'"
    )


def _hash(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"


def charts_of(report: Report) -> dict[str, Chart]:
    """Every chart of the page by the name that its figure carries."""
    charts = {f"all-{chart.key}": chart for chart in report.overview}
    charts |= {f"mem-{chart.key}": chart for part in report.memory for chart in part.charts}
    for number, device in enumerate(report.devices):
        for chart in (*own_charts(report, device), *device.timelines):
            charts[f"{number}-{chart.key}"] = chart
    return charts


def first_chart(report: Report) -> Chart | None:
    """What stands beside the answer: the throughput, of all devices where there are several."""
    charts = report.overview if len(report.devices) > 1 else report.devices[0].charts
    return next((chart for chart in charts if chart.key.endswith("throughput")), None)


def own_charts(report: Report, device: DeviceSection) -> list[Chart]:
    """The charts of a device that say more than those of all devices together."""
    shared = {"energy"} if len(report.devices) > 1 else set()
    return [chart for chart in device.charts if chart.key not in shared]


def chart_data(charts: dict[str, Chart]) -> str:
    """JSON that may stand inside a script element: no `<`, whatever the texts hold."""
    plain = {name: _slim(chart) for name, chart in charts.items()}
    text = msgspec.json.encode(plain).decode()
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def _slim(chart: Chart) -> dict[str, Any]:
    """A chart without what is empty, or what `charts.js` finds in the rest of it."""
    fields = msgspec.to_builtins(chart)
    if chart.x_ticks == chart.x:
        del fields["x_ticks"]
    fields["series"] = [
        {key: value for key, value in series.items() if value and key != "key"}
        for series in fields["series"]
    ]
    return {key: value for key, value in fields.items() if value and key not in UNUSED}


def environment(*first: Path) -> jinja2.Environment:
    """The templates.

    Args:
        first: folders in which a template is looked for before; a `base.html.jinja` there takes the
            place of the file's.
    """
    templates = jinja2.Environment(
        loader=jinja2.FileSystemLoader([*first, ASSETS.parent / "templates"]),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    helpers: dict[str, Any] = {
        "shapes": shapes,
        "epoch_blocks": epoch_blocks,
        "split_bars": split_bars,
        "first_chart": first_chart,
        "own_charts": own_charts,
        "chart_width": WIDTH,
        "chart_height": HEIGHT,
        "blocks_width": BLOCKS_WIDTH,
        "zip": zip,
        "flame_picture": flame.picture,
        "flame_width": flame.WIDTH,
        "flame_row": flame.ROW,
        "flame_title": title_of,
        "flame_notes": notes_of,
        "flame_kinds": kinds_of,
        "kind_of": lambda block: type(block).__name__,
        "chart_prefix": PREFIX,
    }
    templates.globals.update(helpers)
    return templates


def render_traces(page: TracePage, anatomies: Anatomies | None, name: str) -> str:
    """The whole file of what `analyze` found; the tab shows the same.

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
