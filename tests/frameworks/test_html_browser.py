"""The HTML report in a real browser with the network cut off."""

import io
import json
import re
from pathlib import Path

import pytest
from batchadvisor.advisor.advise import advise
from batchadvisor.reports.builder.run import build_report
from batchadvisor.session.recording.store import read_record
from batchadvisor.session.report import rendered
from batchadvisor.units import GIB

from .. import needs
from ..reports import samples
from ..reports.test_markdown import comparison
from .visits import SCHEMES, Visit

needs.framework("playwright")

pytestmark = pytest.mark.frameworks

CPU = Path(__file__).parents[1] / "data/records/char_gpt_cpu.json"
BENCH = Path(__file__).parents[2] / "bench"
WIDTHS = (380, 1600)


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """The README's run on a CPU, the synthetic GPU, a comparison, eight synthetic GPUs."""
    folder = tmp_path_factory.mktemp("pages")
    record = read_record(CPU)
    reports = {"cpu": build_report(record, advise(record)), "gpu": build_report(*samples.gpu())}
    reports["two"] = comparison(samples.cpu(), samples.interrupted())
    reports["many"] = samples.several_gpus(300)
    for name, report in reports.items():
        (folder / f"{name}.html").write_text(rendered(report, "HTML"), encoding="utf-8")
    return folder, reports


@pytest.fixture
def visit(window, files):
    folder, _ = files
    opened = []

    def open_page(name, **options):
        opened.append(Visit(window, folder / f"{name}.html", **options))
        return opened[-1]

    yield open_page
    for one in opened:
        one.close()


EVERY = [
    *((name, width, scheme) for name in ("cpu", "gpu") for width in WIDTHS for scheme in SCHEMES),
    ("two", 380, "light"),
    ("two", 1600, "dark"),
    ("many", 380, "dark"),
]


@pytest.mark.parametrize(("name", "width", "scheme"), EVERY)
def test_it_is_whole_quiet_and_asks_nobody(visit, name, width, scheme):
    one = visit(name, width=width, scheme=scheme)
    one.all_charts()
    assert one.complaints == []
    assert len(one.asked) == 1  # the file itself
    assert one.asked[0].startswith("file://")
    # nothing sticks out of the window
    assert one.page.evaluate("document.documentElement.scrollWidth") <= width
    assert one.page.locator("figure.chart.on").count() == one.page.locator("figure.chart").count()
    assert crossed_names(one.page) == []


CROSSED = """() => Array.from(document.querySelectorAll("figure.chart")).flatMap(figure => {
  const taken = figure.querySelector(".live").plot.taken, px = uPlot.pxRatio;
  const names = taken.filter(one => one.name);
  const upright = taken.filter(one => !one.name && one.right - one.left < 3 * px);
  const across = (a, b) => a.left < b.right && b.left < a.right;
  const meet = (a, b) => across(a, b) && a.top < b.bottom && b.top < a.bottom;
  return names.flatMap(name => [...upright, ...names].filter(one => one !== name && meet(one, name))
    .map(one => figure.dataset.chart + ": " + name.name + " on " + (one.name || "a line")));
})"""


def crossed_names(page):
    """Names on live charts that cross a mark's line or another name."""
    return page.evaluate(CROSSED)


def test_the_policy_stops_what_is_not_ours(visit):
    one = visit("cpu")
    one.page.evaluate(
        "() => { const s = document.createElement('script'); s.textContent = 'window.evil = 1';"
        " document.body.append(s); const i = new Image(); i.src = 'https://example.org/x.png';"
        " document.body.append(i); }"
    )

    def blocked(what):
        return any("Content Security Policy" in text and what in text for text in one.complaints)

    one.wait_until(lambda: blocked("script") and blocked("example.org/x.png"))
    assert one.page.evaluate("window.evil") is None


def numbers(text):
    return [float(found) for found in re.findall(r"[-+]?\d+\.?\d*", text)]


def test_hovering_shows_the_records_numbers(visit, files):
    record = read_record(CPU)
    report = files[1]["cpu"]
    one = visit("cpu")
    rate, memory = one.chart("throughput"), one.chart("memory")
    measured = {one.batch_size: one for one in report.devices[0].sizes if one.samples_per_s}
    assert len(measured) >= 5
    for size, own in measured.items():
        rates = [
            one.samples_per_s.median
            for one in record.trials
            if one.batch_size == size and one.purpose != "tail" and one.samples_per_s
        ]
        rates += [
            size / seconds
            for one in record.trials
            if one.turns is not None and size in one.turns.sizes
            for row in one.turns.step_s
            if (seconds := row[one.turns.sizes.index(size)]) is not None
        ]
        rate.scroll_into_view_if_needed()
        one.hover(rate, size)
        legend = one.legend(rate)
        assert legend["batch size"] == str(size)
        value, half = numbers(legend["measured"].replace("±", " "))
        assert value == pytest.approx(own.samples_per_s.median, rel=0.03)
        wide = (own.samples_per_s.high - own.samples_per_s.low) / 2
        assert 0.9 * wide <= half <= 2 * wide  # one digit, rounded up
        assert min(rates) <= own.samples_per_s.median <= max(rates)
        # the cursors of all charts over sizes move together
        linked = one.legend(memory)
        assert linked["batch size"] == str(size)
        assert numbers(linked["measured peak"])[0] * GIB == pytest.approx(own.peak_bytes, rel=0.01)


@pytest.mark.parametrize("name", ["cpu", "gpu"])
def test_what_is_drawn_is_what_the_report_holds(visit, files, name):
    """The data inside the live charts, number by number."""
    one = visit(name)
    one.all_charts()
    for chart in files[1][name].devices[0].charts:
        live = one.chart(chart.key).locator(".live").element_handle()
        data = json.loads(live.evaluate("(one) => JSON.stringify(one.plot.data)"))
        assert data[0] == list(chart.x)
        if not chart.stacked:
            assert data[1:] == [list(series.values) for series in chart.series]
            continue
        parts = [list(series.values) for series in chart.series]
        tops = [sum(values) for values in zip(*parts, strict=True)]
        assert data[1] == pytest.approx(tops)  # the last part is drawn first, the whole height
        assert data[-1] == pytest.approx(parts[0])


@pytest.mark.parametrize("width", [390, 1024, 1440])
@pytest.mark.parametrize("name", ["cpu", "gpu", "two"])
def test_scripts_change_nothing_that_is_seen(visit, name, width):
    """Every figure, pixel by pixel, without scripts and with its chart alive."""
    plain, alive = visit(name, width=width, scripts=False), visit(name, width=width)
    for figure, same in zip(
        plain.page.locator("figure.chart").all(),
        alive.page.locator("figure.chart").all(),
        strict=True,
    ):
        same.scroll_into_view_if_needed()
        same.locator(".uplot canvas").wait_for()
        figure.scroll_into_view_if_needed()
        before, after = ink(figure.screenshot()), ink(same.screenshot())
        # A figure may begin half a pixel lower.
        moved = apart(before, after, far=1)
        assert moved <= 0.002 * len(before), figure.get_attribute("data-chart")


@pytest.mark.parametrize("name", ["cpu", "gpu", "two"])
def test_a_part_of_a_chart_is_drawn_on_the_same_ground(visit, name):
    """The canvas, as it is shown after zooming, beside the drawing of the whole chart."""
    one = visit(name)
    for figure in one.page.locator("figure.chart").all():
        figure.scroll_into_view_if_needed()
        figure.locator(".uplot canvas").wait_for()
        plot, live = figure.locator(".plot"), figure.locator(".live").element_handle()
        still = ink(plot.screenshot())
        live.evaluate("one => one.plot.redraw(false, true)")
        figure.evaluate("one => one.classList.add('partly')")
        assert not figure.locator("svg").is_visible()
        drawn = ink(plot.screenshot())
        figure.evaluate("one => one.classList.remove('partly')")
        assert apart(still, drawn) <= 0.05 * len(still), figure.get_attribute("data-chart")


def ink(picture):
    """Where a picture has another colour than its first pixel."""
    image = pytest.importorskip("PIL.Image").open(io.BytesIO(picture)).convert("L")
    wide, ground, data = image.width, image.getpixel((0, 0)), image.tobytes()
    return {(at % wide, at // wide) for at, one in enumerate(data) if abs(one - ground) > 60}


def apart(one, two, far=3):
    """How many pixels only one has, away from those of both: edges are not smoothed alike."""
    both, steps = one & two, range(-far, far + 1)
    return sum(
        all((x + right, y + down) not in both for right in steps for down in steps)
        for x, y in one ^ two
    )


def test_something_is_painted(visit):
    one = visit("gpu")
    canvas = one.chart("throughput").locator("canvas").element_handle()
    colors = canvas.evaluate(
        """(one) => {
          const data = one.getContext("2d").getImageData(0, 0, one.width, one.height).data;
          const seen = new Set();
          for (let at = 0; at < data.length; at += 4)
            if (data[at + 3] === 255) seen.add(`${data[at]},${data[at + 1]},${data[at + 2]}`);
          return [...seen];
        }"""
    )
    assert "31,111,235" in colors  # the first colour of the light palette
    assert "26,127,55" in colors  # the recommended size


def span(figure):
    live = figure.locator(".live").element_handle()
    return live.evaluate("(one) => [one.plot.scales.x.min, one.plot.scales.x.max]")


def test_dragging_zooms_all_charts_over_sizes_and_a_double_click_undoes_it(visit):
    one = visit("cpu")
    rate, memory = one.chart("throughput"), one.chart("memory")
    rate.scroll_into_view_if_needed()
    before = span(rate)
    one.hover(rate, 8)
    one.page.mouse.down()
    one.hover(rate, 64)
    one.page.mouse.up()
    low, high = span(rate)
    assert low == pytest.approx(8, rel=0.1)
    assert high == pytest.approx(64, rel=0.1)
    assert span(memory) == pytest.approx([low, high])
    assert not rate.locator("svg").is_visible(), "a part of it is drawn anew"
    rate.locator(".u-over").dblclick()
    assert span(rate) == pytest.approx(before)
    one.wait_until(rate.locator("svg").is_visible)


def test_what_is_read_is_the_nearest_point(visit):
    """Between two sizes too, where the cursor's line stands at neither."""
    one = visit("cpu")
    rate = one.chart("throughput")
    for place, size in ((30, "32"), (26, "32"), (90, "64"), (92, "128")):
        one.hover(rate, place)
        assert one.legend(rate)["batch size"] == size


def test_a_line_goes_and_comes_by_its_name(visit):
    one = visit("two")
    figure = one.page.locator("figure.chart[data-chart='c-throughput']")
    figure.scroll_into_view_if_needed()
    figure.locator(".uplot canvas").wait_for()
    second = figure.locator(".keys [role=button]").nth(1)
    second.focus()
    one.page.keyboard.press("Enter")
    assert second.get_attribute("aria-pressed") == "false"
    one.wait_until(lambda: not figure.locator("svg").is_visible())
    second.click()
    assert second.get_attribute("aria-pressed") == "true"
    one.wait_until(figure.locator("svg").is_visible)


def test_colours_follow_the_system_while_the_page_is_open(visit):
    one = visit("cpu", scheme="light")
    figure = one.chart("throughput")
    body = "getComputedStyle(document.body).backgroundColor"
    light = one.page.evaluate(body)
    pixels = "one => one.plot.ctx.canvas.toDataURL()"
    live = figure.locator(".live").element_handle()
    picture = live.evaluate(pixels)
    one.page.emulate_media(color_scheme="dark")
    one.wait_until(lambda: one.page.evaluate(body) != light)
    one.wait_until(lambda: live.evaluate(pixels) != picture)


@pytest.mark.parametrize("width", WIDTHS)
def test_without_scripts_the_drawings_are_there(visit, files, width):
    one = visit("cpu", width=width, scripts=False)
    charts = files[1]["cpu"].devices[0].charts
    drawings = one.page.locator("figure.chart svg")
    assert drawings.count() == len(charts)
    assert all(drawing.is_visible() for drawing in drawings.all())
    titles = one.page.locator("figure.chart svg circle title").all_text_contents()
    assert "measured, batch size 40: 533 ±7" in titles
    assert one.page.locator("text=Use batch size 40").first.is_visible()


def test_on_paper_the_drawings_come_back_in_dark_on_white(visit):
    one = visit("cpu", scheme="dark")
    one.all_charts()
    one.page.emulate_media(media="print")
    assert one.page.evaluate("getComputedStyle(document.body).backgroundColor") == (
        "rgb(255, 255, 255)"
    )
    assert all(drawing.is_visible() for drawing in one.page.locator("figure.chart svg").all())
    assert not any(live.is_visible() for live in one.page.locator("figure.chart .live").all())
    assert one.page.pdf().startswith(b"%PDF")
