"""The pictures of docs/: the stored CPU run as a report and in TensorBoard, without network.

    python scripts/screenshots.py

Writes docs/report-light.png, docs/report-dark.png and docs/tab.png. Needs the extra test-frameworks
and a Chromium.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from batchadvisor.advisor.advise import advise
from batchadvisor.reports.builder.run import build_report
from batchadvisor.reports.html.page import render
from batchadvisor.session.recording.event_files import write_run_events
from batchadvisor.session.recording.store import read_record
from PIL import Image
from playwright.sync_api import Browser, sync_playwright

ROOT = Path(__file__).parents[1]
RECORD = ROOT / "tests/data/records/char_gpt_cpu.json"
COLORS = 128


def take(browser: Browser, page: Path, scheme: str, first: str, last: str) -> bytes:
    """The part of the page from one element to another; charts live, one of them pointed at."""
    context = browser.new_context(
        viewport={"width": 1000, "height": 900},
        color_scheme="dark" if scheme == "dark" else "light",
        offline=True,
    )
    tab = context.new_page()
    tab.goto(page.as_uri())
    for figure in tab.locator("figure.chart").all():
        figure.scroll_into_view_if_needed()
        figure.locator(".uplot canvas").wait_for()
    tab.set_viewport_size({"width": 1000, "height": 4000})
    over = tab.locator("figure.chart[data-chart='0-throughput'] .u-over").bounding_box()
    if over is not None:
        tab.mouse.move(over["x"] + over["width"] * 0.55, over["y"] + over["height"] * 0.6)
    top, bottom = (tab.locator(selector).first.bounding_box() for selector in (first, last))
    assert top is not None
    assert bottom is not None
    begin, end = max(0.0, top["y"] - 10), bottom["y"] + bottom["height"] + 10
    clip = {"x": 0.0, "y": begin, "width": 1000.0, "height": end - begin}
    picture = tab.screenshot(clip=clip)  # type: ignore[arg-type]
    context.close()
    return picture


def take_tab(browser: Browser, folder: Path) -> bytes:
    """The tab in TensorBoard, with the run chosen."""
    run = folder / "batchadvisor-runs/char_gpt"
    run.mkdir(parents=True)
    shutil.copy(RECORD, run / "record.json")
    record = read_record(run)
    write_run_events(record, advise(record), run)
    command = [sys.executable, "-m", "batchadvisor", "view", str(run), "--port", "0"]
    command += ["--pytorch-profiler-tab", "off"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=folder) as server:
        try:
            assert server.stdout is not None
            server.stdout.readline()
            address = server.stdout.readline().split()[1]
            context = browser.new_context(viewport={"width": 1180, "height": 1180})
            tab = context.new_page()
            tab.goto(address)
            inner = tab.frame_locator("iframe")
            inner.locator("figure.chart .uplot canvas").first.wait_for()
            tab.wait_for_timeout(1500)
            picture = tab.screenshot()
            context.close()
        finally:
            server.terminate()
    return picture


def shrink(target: Path) -> None:
    """Fewer colours; says what is left."""
    with Image.open(target) as picture:
        picture.convert("RGB").quantize(COLORS).save(target, optimize=True)
    print(f"{target.relative_to(ROOT)}  {target.stat().st_size / 1000:.0f} kB")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--chromium", default="/usr/bin/chromium")
    options = parser.parse_args()
    record = read_record(RECORD)
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        page = Path(folder) / "report.html"
        page.write_text(render(build_report(record, advise(record))), encoding="utf-8")
        browser = playwright.chromium.launch(
            executable_path=options.chromium, args=["--no-sandbox"]
        )
        parts = {
            "light": ("header.page", "section.device .scroll"),
            "dark": ("section.device h2 >> nth=1", "figure.chart >> nth=2"),
        }
        for scheme, (first, last) in parts.items():
            target = ROOT / f"docs/report-{scheme}.png"
            target.write_bytes(take(browser, page, scheme, first, last))
            shrink(target)
        target = ROOT / "docs/tab.png"
        target.write_bytes(take_tab(browser, Path(folder)))
        shrink(target)
        browser.close()


if __name__ == "__main__":
    main()
