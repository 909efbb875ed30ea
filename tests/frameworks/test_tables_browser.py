"""Long tables and flame graphs in a real browser with the network cut off."""

import pytest

from .. import needs
from ..reports.test_flame_report import page, planted
from ..trace.test_launchers import PLANTED
from ..trace.test_metrics import kernel, span
from .visits import SCHEMES, Visit

needs.framework("playwright")

pytestmark = pytest.mark.frameworks

WIDTHS = (390, 1024, 1440)
MANY = [
    event
    for number in range(20)
    for event in (
        span("cpu_op", f"aten::op{number:02d}", 30 + number / 2, 30.4 + number / 2),
        span("cuda_runtime", "cudaLaunchKernel", 30.1 + number / 2, 30.2 + number / 2,
             correlation=100 + number),
        kernel(f"kernel_{number:02d}" + "<long>" * 20, 100 + number, 100.5 + number,
               100 + number, 8),
    )
]  # fmt: skip


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    """A run with 23 kernels, 20 of them with long names, and stacks."""
    run = planted(tmp_path_factory.mktemp("tables") / "run", PLANTED + MANY)
    page(run)
    return run / "report.html"


@pytest.fixture
def visit(window, path):
    opened = []

    def open_page(**options):
        opened.append(Visit(window, path, **options))
        return opened[-1]

    yield open_page
    for one in opened:
        one.close()


def names(long, *, shown=True):
    """First cells of the rows, from above."""
    rows = long.locator("tbody tr:not([hidden])" if shown else "tbody tr").all()
    return [row.locator("th").inner_text() for row in rows]


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("scheme", SCHEMES)
def test_it_is_whole_quiet_and_asks_nobody(visit, width, scheme):
    one = visit(width=width, scheme=scheme)
    for part in one.page.locator(".long, figure.flame").all():
        part.scroll_into_view_if_needed()
        one.wait_until(part.locator(".find").is_visible)
    assert one.complaints == []
    assert len(one.asked) == 1
    assert one.page.evaluate("document.documentElement.scrollWidth") <= width


def test_a_click_sorts_and_a_second_turns_the_order_round(visit):
    one = visit()
    table = one.page.locator(".long").first
    head = table.locator("th", has_text="calls")
    before = names(table)
    head.locator("button").click()
    assert head.get_attribute("aria-sort") == "descending"
    assert names(table)[0] == "gemm", "two calls, all others one"
    head.locator("button").click()
    assert head.get_attribute("aria-sort") == "ascending"
    assert names(table)[-1] == "gemm"
    table.locator("thead button").first.click()
    assert head.get_attribute("aria-sort") is None
    assert names(table) == sorted(before, key=str.lower)


def test_what_says_nothing_comes_last_either_way(visit):
    table = visit().page.locator(".long").first
    head = table.locator("thead th", has_text="launched in").locator("button")
    for _ in range(2):
        head.click()
        assert names(table)[-1] == "orphan", "nobody launched it"


def test_words_filter_rows(visit):
    one = visit()
    table = one.page.locator(".long").first
    table.locator("input").fill("kernel_1 OP12")
    assert [name[:9] for name in names(table)] == ["kernel_12"]
    assert table.locator("[role=status]").inner_text() == "1 of 23 rows"
    table.locator("input").fill("nothing of this")
    assert names(table) == []
    table.locator("input").fill("")
    assert len(names(table)) == 23


def test_a_flame_graph_zooms_and_finds(visit):
    one = visit()
    flame = one.page.locator("figure.flame").nth(1)
    flame.scroll_into_view_if_needed()
    block = flame.locator("rect", has=one.page.locator("title", has_text="backward pass:"))
    narrow = block.bounding_box()["width"]
    reset = flame.locator("button")
    assert reset.is_disabled()
    block.click()
    whole = flame.locator("svg").bounding_box()["width"]
    assert block.bounding_box()["width"] == pytest.approx(whole, rel=0.01)
    assert narrow < 0.9 * whole
    gone = flame.locator("rect", has=one.page.locator("title", has_text="orphan"))
    assert not gone.is_visible()
    reset.click()
    assert block.bounding_box()["width"] == pytest.approx(narrow, rel=0.01)
    flame.locator("input").fill("gemm")
    share = flame.locator("[role=status]").inner_text()
    assert share.startswith("in ")
    assert pytest.approx(float(share[3:].split("%")[0]), abs=1) == 100 * 30 / 45
    assert one.complaints == []


def test_without_scripts_all_rows_are_there(visit):
    one = visit(scripts=False)
    table = one.page.locator(".long").first
    assert len(names(table)) == 23
    assert one.page.locator(".long button, .long input").count() == 0
    assert one.page.locator("figure.flame svg text").count() > 5


def test_on_paper_nothing_is_cut(visit):
    one = visit(width=1024)
    one.page.emulate_media(media="print")
    table = one.page.locator(".long").first
    assert table.locator(".tall").evaluate("e => e.scrollHeight <= e.clientHeight + 1")
    assert not table.locator(".find").is_visible()
