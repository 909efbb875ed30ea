"""How large the HTML report is and how fast a browser draws it, for many sizes and many GPUs.

    python bench/report_html.py --sizes 12 --gpus 8 --repeats 6

The record is synthetic (`synthetic_records.py`). The file is opened in headless Chromium with the
network cut off, a new profile each time. Two times are taken inside the page: until the document is
parsed and painted with its drawings (`first paint`), and until every chart is live, in view or not
(`all charts live`). Needs Playwright and a Chromium (`--chromium`). Prints a table and, with
`--save`, writes it to `bench/results/`.
"""

from __future__ import annotations

import argparse
import platform
import statistics
import tempfile
import time
from pathlib import Path

import synthetic_records
from batchadvisor.advisor.advise import advise
from batchadvisor.reports.builder.run import build_report
from batchadvisor.reports.html.page import render
from painted import painted

HERE = Path(__file__).parent
MAX_KB = 400
MAX_MS = 300
DRAW_ALL = """() => {
  const begin = performance.now();
  const charts = JSON.parse(document.getElementById("charts").textContent);
  for (const figure of document.querySelectorAll("figure.chart")) {
    if (figure.classList.contains("on")) continue;
    figure.classList.add("on");
    const live = figure.querySelector(".live");
    BatchAdvisorCharts.draw(live, charts[figure.dataset.chart], figure.dataset.group);
  }
  return performance.now() - begin;
}"""


def page(num_sizes: int, num_gpus: int) -> tuple[str, float]:
    """The report's text and the seconds that rendering it took."""
    parts = []
    for index in range(num_gpus):
        record = synthetic_records.run(num_sizes, index=index, strength=1 - 0.03 * index)
        rows = synthetic_records.samples(index=index)
        parts.append((f"Synthetic GPU {index}", record, advise(record), rows))
    first = parts[0]
    started = time.perf_counter()
    several = parts if num_gpus > 1 else ()
    report = build_report(first[1], first[2], samples=first[3], devices=several)
    text = render(report)
    return text, time.perf_counter() - started


def drawn(path: Path, chromium: str) -> tuple[float, float, int]:
    """Milliseconds to the first paint, to all live charts, and the number of charts."""
    with painted(path, chromium, 1600) as (tab, paint):
        live = tab.evaluate(DRAW_ALL)
        charts = tab.locator("figure.chart.on .uplot canvas").count()
    return paint, live, charts


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", type=int, default=12)
    parser.add_argument("--gpus", type=int, default=8)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--chromium", default="/usr/bin/chromium")
    parser.add_argument("--save", action="store_true")
    options = parser.parse_args()

    text, rendering_s = page(options.sizes, options.gpus)
    num_bytes = len(text.encode())
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "report.html"
        path.write_text(text, encoding="utf-8")
        rows = [drawn(path, options.chromium) for _ in range(options.repeats)]
    paint = statistics.median(row[0] for row in rows)
    live = statistics.median(row[1] for row in rows)
    what = f"{options.sizes} sizes, {options.gpus} GPUs (synthetic), {rows[0][2]} charts"
    lines = [
        f"{what}, median of {options.repeats} loads, {platform.machine()}",
        f"file             {num_bytes / 1000:.0f} kB  (limit {MAX_KB} kB)",
        f"rendering        {rendering_s * 1e3:.0f} ms",
        f"first paint      {paint:.0f} ms  (limit {MAX_MS} ms)",
        f"all charts live  {live:.0f} ms after it",
    ]
    print("\n".join(lines))
    if options.save:
        (HERE / "results/report_html.txt").write_text("\n".join(lines) + "\n")
    return int(num_bytes > MAX_KB * 1000 or paint > MAX_MS)


if __name__ == "__main__":
    raise SystemExit(main())
