"""The pages of docs/ as they are built: a folder that opens in a browser without a network."""

import os
import subprocess
import sys

import pytest

from .. import needs, pages

needs.framework("playwright")
needs.framework("mkdocs")

pytestmark = pytest.mark.frameworks

WIDTHS = (390, 1400)


def build(folder, *options):
    # Without -q: it would hide warnings from --strict as well.
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", *options]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    return subprocess.run(
        [*command, "--site-dir", str(folder)],
        cwd=pages.ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    done = build(folder)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture(scope="module")
def window():
    with needs.window() as opened:
        yield opened


@pytest.fixture
def visit(window):
    """Opens a page, with all that it asks for and complains of."""
    opened = []

    def open_page(path, width=1400):
        page = window.new_page()
        opened.append(page)
        page.set_viewport_size({"width": width, "height": 900})
        asked, complaints = [], []
        page.on("request", lambda request: asked.append(request.url))
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.goto(path.as_uri())
        return page, asked, complaints

    yield open_page
    for page in opened:
        page.close()


@pytest.mark.parametrize("width", WIDTHS)
def test_every_page_is_whole_and_asks_nobody(site, visit, width):
    shown = sorted(path for path in site.glob("*.html") if path.name != "404.html")
    assert len(shown) == len(pages.paths())
    page, asked, complaints = visit(shown[0], width)
    for path in shown:
        page.goto(path.as_uri())
        assert complaints == [], path.name
        # nothing sticks out of the window
        assert page.evaluate("document.documentElement.scrollWidth") <= width, path.name
        assert page.evaluate(BROKEN) == [], path.name
    assert [url for url in asked if not url.startswith("file://")] == []
    assert len(asked) > len(shown)


BROKEN = "Array.from(document.images).filter(one => !one.naturalWidth).map(one => one.src)"


def test_a_word_is_looked_for_without_a_server(site, visit):
    page, asked, complaints = visit(site / "index.html")
    page.locator(".md-search__input").fill("square root")
    page.locator(".md-search-result__item").first.wait_for()
    assert page.locator(".md-search-result__item a").first.get_attribute("href")
    assert [url for url in asked if not url.startswith("file://")] == []
    assert complaints == []


def test_a_raw_result_is_in_the_site(site, visit):
    page, _, _ = visit(site / "traces.html")
    page.get_by_role("link", name="result", exact=True).click()
    page.wait_for_url("**/source/bench/results/verdicts.txt")
    text = (pages.ROOT / "bench/results/verdicts.txt").read_text()
    assert text.splitlines()[0] in page.inner_text("body")


COPIED = ("README.md", "CONTRIBUTING.md", "mkdocs.yml", "scripts", "bench", "examples")
BROKEN_LINKS = ("gone.md", "run.md#gone", "../bench/gone.py")


def test_a_broken_link_ends_the_build(tmp_path):
    """As a page of the site would have it, in a copy of what the site is built from."""
    for name in COPIED:
        (tmp_path / name).symlink_to(pages.ROOT / name)
    (tmp_path / "docs").mkdir()
    for path in (pages.ROOT / "docs").iterdir():
        (tmp_path / "docs" / path.name).symlink_to(path)
    page = tmp_path / "docs/run.md"
    text = page.read_text()
    page.unlink()
    links = "\n\n".join(f"[a link]({link})" for link in (*BROKEN_LINKS, "reading.md"))
    page.write_text(f"{text}\n{links}\n")
    done = build(tmp_path / "site", "-f", str(tmp_path / "mkdocs.yml"))
    assert done.returncode == 1, done.stderr
    # Each of them would end it alone: strict is not to have a single warning.
    assert f"Aborted with {len(BROKEN_LINKS)} warnings in strict mode" in done.stdout
    warnings = [line for line in done.stderr.splitlines() if line.startswith("WARNING")]
    named = [line.partition(" a link '")[2].partition("'")[0] for line in warnings]
    assert sorted(named) == sorted(BROKEN_LINKS)
