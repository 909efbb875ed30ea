"""A page in Chromium without a network, and how long it took until it was painted."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

PAINT = """() => Math.max(...performance.getEntriesByType("paint").map((one) => one.startTime))"""


@contextmanager
def painted(path: Path, chromium: str, width: int) -> Iterator[tuple[Page, float]]:
    """The page, and milliseconds until it was painted.

    Args:
        chromium: path of the browser.
        width: of the window, pixels.
    """
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        context = browser.new_context(offline=True, viewport={"width": width, "height": 1000})
        tab = context.new_page()
        tab.goto(path.as_uri())
        while not tab.evaluate("performance.getEntriesByType('paint').length"):
            time.sleep(0.02)  # the page's policy forbids what Playwright would wait with
        yield tab, float(tab.evaluate(PAINT))
        browser.close()
