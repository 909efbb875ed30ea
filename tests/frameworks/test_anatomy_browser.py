"""The pictures of steps in a real browser with the network cut off."""

import re

import pytest
from batchadvisor.session.analyze import write_page

from .. import needs
from ..trace.test_anatomy import CAUSES, many
from ..trace.test_metrics import kernel, span
from .visits import SCHEMES, Visit

needs.framework("playwright")

pytestmark = pytest.mark.frameworks

WIDTHS = (390, 1024, 1440)
PATHS = """(view) => Array.from(view.querySelectorAll(".a-blocks path"), (path) => {
  const stretches = [];
  let pen = 0;
  for (const [, letter, first] of path.getAttribute("d").matchAll(/([MmhH])(-?[0-9.]+)/g)) {
    const value = Number(first);
    if (letter === "M") pen = value;
    if (letter === "m") pen += value;
    if (letter === "h") { stretches.push([pen, pen + value]); pen += value; }
    if (letter === "H") { stretches.push([pen, value]); pen = value; }
  }
  return [path.getAttribute("class"), stretches];
})"""


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """One small step, a merged one beside others, and ranks where the recorded traces are."""
    import json

    from ..trace.test_reference import TRACES

    folder = tmp_path_factory.mktemp("pictures")
    late = [
        span("cuda_runtime", "cudaLaunchKernel", 75_190, 75_195, correlation=99_999),
        kernel("late", 75_300, 77_000, 99_999, 50),
    ]
    made = {"one": CAUSES, "merged": [*many(2_500, steps=3, streams=2), *late]}
    for name, events in made.items():
        trace = folder / f"{name}.json"
        trace.write_text(json.dumps({"traceEvents": events}))
        write_page([trace], folder / f"{name}.html")
    if TRACES.is_dir():
        write_page([TRACES / "v100_8rank_dlrm"], folder / "ranks.html")
        stacks = TRACES / "h100_launchbound_transformer/steps1-3.pt.trace.json.gz"
        write_page([stacks], folder / "stacks.html")
    return folder


@pytest.fixture
def visit(window, pages):
    opened = []

    def open_page(name, **options):
        if not (pages / f"{name}.html").exists():
            pytest.skip("the recorded traces are missing")
        opened.append(Visit(window, pages / f"{name}.html", **options))
        return opened[-1]

    yield open_page
    for one in opened:
        one.close()


def picture(one, number=0):
    """A picture that the script has taken up."""
    figure = one.page.locator("figure.anatomy").nth(number)
    figure.scroll_into_view_if_needed()
    figure.locator(".a-tools").wait_for()
    return figure


def over(one, figure, lane, share, row=0):
    """Points at a place of a lane."""
    found = figure.locator(".a-lane", has_text=re.compile(f"^{lane}")).first
    box = found.locator(".a-track").first.bounding_box()
    one.page.mouse.move(box["x"] + share * box["width"], box["y"] + 11 * row + 5)
    return figure.locator(".a-tip")


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", ["merged", "ranks"])
def test_it_is_whole_quiet_and_asks_nobody(visit, name, width, scheme):
    one = visit(name, width=width, scheme=scheme)
    for number in range(one.page.locator("figure.anatomy").count()):
        picture(one, number)
    assert one.complaints == []
    assert len(one.asked) == 1  # the file itself
    assert one.page.evaluate("document.documentElement.scrollWidth") <= width


def test_without_javascript_the_drawing_is_there(visit):
    one = visit("merged", scripts=False)
    lanes = one.page.locator("figure.anatomy").first.locator(".a-lane")
    assert lanes.count() >= 5
    for lane in lanes.all():
        box = lane.locator(".a-track").first.bounding_box()
        assert box["width"] > 300
        assert box["height"] >= 11
    assert one.page.locator(".a-tools").count() == 0
    assert one.page.locator(".a-blocks path.a-compute").count() > 0


def test_on_paper_it_stays_and_the_buttons_go(visit):
    one = visit("merged")
    figure = picture(one)
    one.page.emulate_media(media="print")
    assert figure.locator(".a-track").first.is_visible()
    assert not figure.locator(".a-tools").is_visible()
    assert len(one.page.pdf()) > 10_000


def test_the_script_draws_what_the_file_holds(visit):
    """Zoomed out again, every path covers the same stretches as the drawing in the file."""
    one = visit("merged")
    for number in range(2):
        figure = picture(one, number)
        before = figure.locator(".a-view").evaluate(PATHS)
        figure.get_by_label("zoom in", exact=True).click()
        assert figure.locator(".a-view").evaluate(PATHS) != before
        figure.get_by_label("see all again", exact=True).click()
        after = figure.locator(".a-view").evaluate(PATHS)
        assert sorted(after) == sorted(before)


def test_a_block_says_what_it_is(visit):
    one = visit("one")
    figure = picture(one)
    tip = over(one, figure, "stream 7", 75 / 200)
    assert tip.inner_text().splitlines() == [
        "first",
        "computing",
        "30 µs, from 60 µs on, 15% of the picture",
        "operator: aten::mm",
        "lane: stream 7",
    ]
    tip = over(one, figure, "GPU idle", 30 / 200)
    assert tip.inner_text().splitlines() == [
        "Python, dispatch",
        "30 µs, from 20 µs on, 15% of the picture",
        "the GPU waits for: first",
        "operator: aten::mm",
        "lane: GPU idle, by cause",
    ]
    over(one, figure, "stream 7", 115 / 200)
    assert not figure.locator(".a-tip").is_visible(), "nothing ran there"


def test_a_kernel_names_its_operator_and_the_line_of_code(visit):
    one = visit("stacks", width=1440)
    figure = picture(one)
    lane = figure.locator(".a-lane", has_text="stream 7").locator(".a-track").first
    box, tips = lane.bounding_box(), set()
    for step in range(0, int(box["width"]), 2):
        one.page.mouse.move(box["x"] + step, box["y"] + 5)
        if figure.locator(".a-tip").is_visible():
            tips.add(figure.locator(".a-tip").inner_text())
    assert any("operator: aten::addmm" in tip and "code: torch_prof.py(36): forward" in tip
               for tip in tips)  # fmt: skip


def test_dragging_zooms_and_a_double_click_shows_all(visit):
    one = visit("one")
    figure = picture(one)
    box = figure.locator(".a-axis").bounding_box()
    y = box["y"] + 60
    one.page.mouse.move(box["x"] + 0.25 * box["width"], y)
    one.page.mouse.down()
    one.page.mouse.move(box["x"] + 0.5 * box["width"], y, steps=4)
    assert figure.locator(".a-band").is_visible()
    one.page.mouse.up()
    assert figure.locator(".a-range").inner_text() == "50 µs to 100 µs"
    one.page.mouse.dblclick(box["x"] + 10, y)
    assert figure.locator(".a-range").inner_text() == ""


def test_the_keyboard_does_it_all(visit):
    one = visit("one")
    figure = picture(one)
    view, shown = figure.locator(".a-view"), figure.locator(".a-range")
    view.focus()
    press = one.page.keyboard.press
    press("+")
    assert shown.inner_text() == "37.5 µs to 162.5 µs"
    press("ArrowRight")
    assert shown.inner_text() == "62.5 µs to 187.5 µs"
    press("Home")
    assert shown.inner_text() == ""
    press("ArrowDown")
    tip = figure.locator(".a-tip")
    assert "lane: critical path" in tip.inner_text()
    press("ArrowDown")
    assert "lane: GPU idle, by cause" in tip.inner_text()
    assert tip.inner_text().startswith("DataLoader")
    press(".")
    assert tip.inner_text().startswith("Python, dispatch")
    press(",")
    assert tip.inner_text().startswith("DataLoader")
    press("Enter")
    assert shown.inner_text() == "0 ns to 30.05 µs"
    press("Escape")
    assert not tip.is_visible()
    assert tip.get_attribute("role") == "status"
    assert one.complaints == []


def test_names_of_blocks_are_texts(window, pages, tmp_path):
    import json

    evil = "<img src=x onerror=alert(1)>"
    events = [event | {"name": evil} if event["cat"] == "kernel" else event for event in CAUSES]
    trace = tmp_path / "evil.json"
    trace.write_text(json.dumps({"traceEvents": events}))
    write_page([trace], tmp_path / "evil.html")
    with Visit(window, tmp_path / "evil.html") as one:
        figure = picture(one)
        figure.get_by_label("zoom in", exact=True).click()
        assert over(one, figure, "stream 7", 0.35).inner_text().startswith(evil)
        assert one.page.locator("img").count() == 0
        assert one.complaints == []


def test_the_straggler_is_marked(visit):
    one = visit("ranks")
    figure = picture(one)
    assert figure.locator(".a-lane").count() == 8
    marked = figure.locator(".a-straggler")
    assert marked.count() == 1
    assert marked.inner_text().startswith("rank 7")
