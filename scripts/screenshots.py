"""The pictures of docs/: stored runs as reports, in TensorBoard and step by step, without network.

    python scripts/screenshots.py
    python scripts/screenshots.py --steps

Writes docs/report-light.png, docs/report-dark.png, docs/tab.png and docs/step-*.png, with `--steps`
only the last. Needs the extra test-frameworks and a Chromium.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from batchadvisor.advisor.advise import advise
from batchadvisor.reports.builder.run import build_report
from batchadvisor.reports.html.page import render
from batchadvisor.session.analyze import write_page
from batchadvisor.session.recording.event_files import write_run_events
from batchadvisor.session.recording.store import read_record
from PIL import Image
from playwright.sync_api import Browser, sync_playwright

ROOT = Path(__file__).parents[1]
RECORD = ROOT / "tests/data/records/char_gpt_cpu.json"
STEPS = ROOT / "tests/data/h100/imagenet_256.pt.trace.json.gz"
"""Recorded on an H100."""
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


def made_ranks(folder: Path) -> Path:
    """Traces on paper of four ranks; the third loads for longer, and the others wait for it.

    Nothing of it was measured on any device.
    """
    target = folder / "ranks"
    target.mkdir()
    loads_us = (300, 420, 2100, 260)
    for rank, load in enumerate(loads_us):
        events: list[dict[str, Any]] = []
        for step in range(3):
            begin = step * 9000
            events += _made_step(step, begin, load, begin + max(loads_us))
        about = {"backend": "nccl", "rank": rank, "world_size": len(loads_us)}
        document = {"traceEvents": events, "distributedInfo": about}
        (target / f"rank{rank}.json").write_text(json.dumps(document))
    return target


def _made_step(step: int, begin: int, load: int, latest: int) -> list[dict[str, Any]]:
    events = []

    def add(cat: str, name: str, start: float, end: float, tid: int = 1, **args: Any) -> None:
        place = {"pid": 0 if cat == "kernel" else 1, "tid": tid, "ts": start, "dur": end - start}
        events.append({"ph": "X", "cat": cat, "name": name, "args": args, **place})

    add("user_annotation", f"ProfilerStep#{step}", begin, begin + 8900)
    add("user_annotation", "enumerate(DataLoader)#_Iter.__next__", begin, begin + load)
    now, free = begin + load, 0.0
    for number in range(24):
        link = {"correlation": 100 * step + number}
        collective = number % 8 == 7
        add("cpu_op", "c10d::allreduce_" if collective else "aten::conv2d", now, now + 60)
        add("cuda_runtime", "cudaLaunchKernel", now + 40, now + 48, **link)
        start = max(now + 55, free)
        name = "ncclDevKernel_AllReduce_Sum_f32(args)" if collective else "conv_kernel"
        # All leave a collective when the last has come, which began so much later.
        wait = latest - begin - load if number == 7 else 0
        free = start + wait + (280 if collective else 170)
        stream = 20 if collective else 7
        add("kernel", name, start, free, stream, device=0, stream=stream, **link)
        now += 75
    return events


def take_steps(browser: Browser, folder: Path) -> dict[str, bytes]:
    """The anatomy of steps: wide and light with a block pointed at, dark and zoomed by keyboard, on
    a telephone without scripts, on paper, and ranks under each other."""
    page, ranks = folder / "steps.html", folder / "ranks.html"
    write_page([STEPS], page)
    write_page([made_ranks(folder)], ranks)
    pictures = {}
    for name, file, width, scheme, scripts in (
        ("light", page, 1440, "light", True),
        ("dark", page, 1024, "dark", True),
        ("phone", page, 390, "dark", False),
        ("paper", page, 760, "light", True),
        ("ranks", ranks, 1024, "light", True),
    ):
        context = browser.new_context(
            viewport={"width": width, "height": 1000},
            color_scheme="dark" if scheme == "dark" else "light",
            java_script_enabled=scripts,
            offline=True,
        )
        tab = context.new_page()
        tab.goto(file.as_uri())
        shown = tab.locator("section.anatomies")
        if scripts:
            tab.locator("figure.anatomy").first.scroll_into_view_if_needed()
            tab.locator("figure.anatomy .a-tools").first.wait_for()
        if name == "light":
            tab.set_viewport_size({"width": width, "height": 3000})
            box = tab.locator(".a-lane", has_text="stream 7").first.bounding_box()
            assert box is not None
            tab.mouse.move(box["x"] + box["width"] * 0.7, box["y"] + 22)
        elif name == "dark":
            tab.locator(".a-view").first.focus()
            for key in ("ArrowDown", *(["."] * 3), "+", "+", "+", *(["ArrowDown"] * 9)):
                tab.keyboard.press(key)
            shown = tab.locator("figure.anatomy").first
        elif name == "paper":
            tab.emulate_media(media="print")
        elif name in ("phone", "ranks"):
            shown = tab.locator("figure.anatomy").first
        pictures[name] = shown.screenshot()
        context.close()
    return pictures


def shrink(target: Path) -> None:
    """Fewer colours; says what is left."""
    with Image.open(target) as picture:
        picture.convert("RGB").quantize(COLORS).save(target, optimize=True)
    print(f"{target.relative_to(ROOT)}  {target.stat().st_size / 1000:.0f} kB")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--chromium", default="/usr/bin/chromium")
    parser.add_argument("--steps", action="store_true")
    options = parser.parse_args()
    record = read_record(RECORD)
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        page = Path(folder) / "report.html"
        page.write_text(render(build_report(record, advise(record))), encoding="utf-8")
        browser = playwright.chromium.launch(
            executable_path=options.chromium, args=["--no-sandbox"]
        )
        for name, picture in take_steps(browser, Path(folder)).items():
            target = ROOT / f"docs/step-{name}.png"
            target.write_bytes(picture)
            shrink(target)
        if options.steps:
            browser.close()
            return
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
