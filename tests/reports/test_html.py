"""The HTML file as text: it asks nobody, obeys nothing, and holds what the report says.

What a browser makes of it is tested in tests/frameworks/test_html_browser.py.
"""

import base64
import hashlib
import html
import itertools
import json
import re
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from batchadvisor.records import Fault, FileTouched, Finding
from batchadvisor.reports.builder.run import build_report
from batchadvisor.reports.html.frame import WIDTH
from batchadvisor.reports.html.labels import Place
from batchadvisor.reports.html.svg import nice_ticks, shapes
from batchadvisor.session.report import rendered
from msgspec.structs import replace

from . import samples
from .test_markdown import comparison

EVERY = [samples.cpu, samples.gpu, samples.nothing_fits, samples.interrupted]
BENCH = Path(__file__).parents[2] / "bench"
MAX_BYTES = 430_000


def render(report):
    return rendered(report, "HTML")


@pytest.fixture(scope="module")
def many():
    """The synthetic record of the bench: 12 sizes on 8 GPUs."""
    return samples.several_gpus(1200)


def page(sample):
    return render(build_report(*sample()))


def scripts(text):
    return re.findall(r"<script[^>]*>(.*?)</script>", text, flags=re.DOTALL)


def digest(text):
    return "'sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() + "'"


@pytest.mark.parametrize("sample", EVERY, ids=lambda sample: sample.__name__)
def test_the_policy_allows_exactly_what_stands_in_the_file(sample):
    text = page(sample)
    policy = html.unescape(
        re.search(r'<meta http-equiv="Content-Security-Policy" content="([^"]+)"', text)[1]
    )
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    assert rules["default-src"] == "'none'"
    (style,) = re.findall(r"<style>(.*?)</style>", text, flags=re.DOTALL)
    data, script = scripts(text)
    assert rules["style-src"] == digest(style)
    assert rules["script-src"] == digest(script)
    assert "unsafe" not in policy
    json.loads(data)


@pytest.mark.parametrize("sample", EVERY, ids=lambda sample: sample.__name__)
def test_no_address_is_fetched(sample):
    text = page(sample)
    body = re.sub(r"<(script|style)\b.*?</\1>", "", text, flags=re.DOTALL)
    assert not re.search(r"\b(src|href|srcset|action|poster|data)=", body)
    assert not re.search(r"\bstyle=|\bon\w+=", body)
    (style,) = re.findall(r"<style>(.*?)</style>", text, flags=re.DOTALL)
    assert "url(" not in style
    assert "@import" not in style


def test_hostile_texts_are_escaped_everywhere():
    record, advice = samples.cpu()
    evil = "</script><script>alert(1)</script><img src=x onerror=alert(2)>\"'&\u2028{{7*7}}"
    trials = [replace(trial, detail=evil, outcome="exception") for trial in record.trials]
    record = replace(
        record,
        trials=(*record.trials, *[replace(trials[0], batch_size=7)]),
        command=(evil,),
        files=(FileTouched(path=evil, action="write"),),
        faults=(Fault(outcome="exception", detail=evil, worker=0, log=evil),),
        device=replace(record.device, name=evil),
        stop_reason=evil,
    )
    advice = replace(
        advice,
        headline=evil,
        reason=evil,
        change=evil,
        findings=(Finding(rule="r", severity="error", message=evil, remedy=evil),),
    )
    twice = [(evil, record, advice, ())] * 2
    for report in (
        build_report(record, advice),
        build_report(record, advice, devices=twice),
        comparison((record, advice), (record, replace(advice, headline=f"{evil}."))),
    ):
        text = render(report)
        assert "alert(1)" in text
        assert "<script>alert" not in text
        assert "<img" not in text
        assert "{{7*7}}" in text
        assert len(scripts(text)) == 2
        json.loads(scripts(text)[0])
        ET.fromstring(re.search(r"<main>.*</main>", text, flags=re.DOTALL)[0].replace("<br>", ""))


@pytest.mark.parametrize("sample", EVERY, ids=lambda sample: sample.__name__)
def test_all_that_the_report_says_is_readable_without_scripts(sample):
    report = build_report(*sample())
    body = re.sub(r"<script\b.*?</script>", "", render(report), flags=re.DOTALL)
    shown = html.unescape(re.sub(r"<[^>]+>", "\x00", body))
    texts = [report.headline, report.reason, *report.notices]
    texts += [fact.text for fact in (*report.circumstances, *report.training, *report.identity)]
    texts += [finding.message for finding in report.findings] + [
        fact.text for fact in report.estimates
    ]
    texts += [cell for row in report.devices[0].table.rows for cell in row.cells]
    texts += [
        value for chart in report.devices[0].charts for s in chart.series for value in s.texts
    ]
    for text in filter(None, texts):
        assert text in shown
    assert body.count("<svg viewBox") == len(report.devices[0].charts) + (
        report.tail is not None and bool(report.tail.ranks)
    )


def test_many_sizes_and_gpus_stay_small(many):
    text = render(many)
    assert len(text.encode()) < MAX_BYTES
    body = re.search(r"<main>.*</main>", text, flags=re.DOTALL)[0].replace("<br>", "")
    tree = ET.fromstring(body)
    assert len(tree.findall(".//figure")) == 3 + 8 * (4 + 3)
    assert 'data-chart="all-all_throughput"' in text.partition("<main>")[0], "beside the answer"
    assert [heading.text for heading in tree.findall(".//section[@class='device']/h2")] == [
        f"GPU {index}" for index in range(8)
    ]
    assert "rank 0" in text


@pytest.mark.parametrize("sample", EVERY, ids=lambda sample: sample.__name__)
def test_the_throughput_stands_once_beside_the_answer(sample):
    text = page(sample)
    first, rest = text.split("<main>")
    timed = any(chart.key == "throughput" for chart in build_report(*sample()).devices[0].charts)
    assert first.count('data-chart="0-throughput"') == timed
    assert 'data-chart="0-throughput"' not in rest


def test_a_comparison_shows_both():
    text = render(comparison(samples.cpu(), samples.gpu()))
    body = re.search(r"<main>.*</main>", text, flags=re.DOTALL)[0].replace("<br>", "")
    tree = ET.fromstring(body)
    # Throughput and memory; a GPU's busy share and a CPU's share inside operators are not one.
    assert len(tree.findall(".//figure")) == 2
    assert "limit 78 GiB" not in text, "the limit of one device"
    assert "Two devices" in text
    assert "different devices: speed, memory" in text
    assert "not comparable as an effect of a change" in text
    same = render(comparison(samples.gpu(), samples.gpu()))
    assert same.count("<figure") == 4, "throughput, memory, shares, energy"
    assert "limit 78 GiB" in same
    assert "not comparable" not in same


def test_a_comparison_lists_only_what_differs():
    same = comparison(samples.gpu(), samples.gpu())
    assert same.circumstances.rows == ()
    assert same.circumstances.title == "Nothing differs"
    assert same.circumstances.notes == ("The same in both: answer, Measured on, Goal, Run.",)
    assert same.charts[0].series[1].dashed
    assert not same.charts[0].series[0].dashed
    other = comparison(samples.gpu(), samples.interrupted())
    for row in other.circumstances.rows:
        assert row.cells[1] != row.cells[2]
    assert "Measured on" in {row.cells[0] for row in other.circumstances.rows}
    twice = comparison(samples.cpu(), samples.cpu())
    (said,) = [text for text in twice.cautions if "on a CPU" in text]
    assert said.startswith("Both runs: ")


def test_two_scripts_are_not_compared():
    """The same one under another path is."""
    record, advice = samples.cpu()
    record = replace(record, script=replace(record.script, digest="0123456789abcdef"))
    moved = replace(record.script, path="another.py")
    same = replace(record, script=moved)
    compared = comparison((record, advice), (same, advice))
    assert "Not comparable" not in compared.headline
    assert not [row for row in compared.circumstances.rows if row.cells[0] == "script"]
    other = replace(record, script=replace(moved, digest=""))
    text = render(comparison((record, advice), (other, advice)))
    headline = re.search(r"<h1>(.*?)</h1>", text)[1]
    assert headline.startswith("Not comparable: two scripts")
    rows = re.findall(r"<tr class=.*?</tr>", text.split("Size by size")[-1], flags=re.DOTALL)
    assert sum("not comparable" in row for row in rows) >= 2
    assert not [row for row in rows if ">faster<" in row or ">slower<" in row]
    assert "peak memory and batch sizes are not comparable" in text


def test_the_licence_of_uplot_is_in_the_file():
    assert "Copyright (c) 2022 Leon Sorokin" in page(samples.cpu)


def bare_tables(text):
    """What a screen reader misses: tables without a caption, head cells without a scope."""
    tables = re.findall(r"<table.*?</table>", text, flags=re.DOTALL)
    assert tables
    heads = [head for table in tables for head in re.findall(r"<th\b[^>]*>", table)]
    rows = [row for table in tables for row in re.findall(r"<tr[^>]*><td", table)]
    return [
        *(table for table in tables if not re.search(r"<caption[^>]*>\s*[^<\s]", table)),
        *(head for head in heads if ' scope="' not in head),
        *rows,
    ]


@pytest.mark.parametrize("sample", [samples.cpu, samples.gpu, samples.interrupted])
def test_tables_have_captions_and_their_heads_a_scope(sample):
    assert bare_tables(page(sample)) == []
    assert bare_tables(render(comparison(samples.cpu(), sample()))) == []


def box_of(shape):
    """What a text of the picture takes."""
    (anchor,) = {"middle", "end"} & set(shape.attributes["class"].split()) or {"start"}
    place = Place(float(shape.attributes["x"]), float(shape.attributes["y"]), anchor)
    return place.box(shape.text)


@pytest.mark.parametrize(
    ("low", "high", "ticks"),
    [
        (0, 1e-6, [0, 2e-7, 4e-7, 6e-7, 8e-7, 1e-6]),
        (0, 7.2, [0, 2, 4, 6]),
        (0, 12345.0, [0, 5000, 10000]),
        (0, 3e9, [0, 1e9, 2e9, 3e9]),
        (-120, 20, [-100, -50, 0]),
        (19.3, 20.1, [19.4, 19.6, 19.8, 20.0]),
        (0, 0, [0]),
        (0, float("inf"), [0]),
    ],
)
def test_ticks_are_few_and_round(low, high, ticks):
    assert nice_ticks(low, high) == pytest.approx(ticks)


class TestPicture:
    def test_long_numbers_of_the_axes_stay_in_the_picture(self):
        report = build_report(*samples.gpu())
        chart = next(chart for chart in report.devices[0].charts if chart.key == "throughput")
        name = {"x_ticks": chart.x_ticks[-1:], "x_names": ("2097152",)}
        series = tuple(
            replace(one, values=tuple(y and 1e5 * y for y in one.values), low=(), high=())
            for one in chart.series
        )
        drawn = shapes(replace(chart, **name, series=series, marks=(), bands=()))
        dim = [shape for shape in drawn if "dim" in shape.attributes.get("class", "").split()]
        assert "2097152" in [shape.text for shape in dim]
        assert any(shape.text.endswith("M") for shape in dim)
        for shape in dim:
            box = box_of(shape)
            assert box.left >= 0, shape.text
            assert box.right <= WIDTH, shape.text

    def test_points_lie_where_their_values_are(self):
        report = build_report(*samples.gpu())
        chart = next(chart for chart in report.devices[0].charts if chart.key == "throughput")
        shown = [shape for shape in shapes(chart) if shape.tag == "circle"]
        assert len(shown) == 5
        xs = [float(shape.attributes["cx"]) for shape in shown]
        assert xs == sorted(xs)
        # 2, 16, 64, 128, 256: the steps of the log scale are 3, 2, 1, 1
        steps = [b - a for a, b in itertools.pairwise(xs)]
        assert steps == pytest.approx([3 * steps[3], 2 * steps[3], steps[3], steps[3]], abs=0.4)
        ys = [float(shape.attributes["cy"]) for shape in shown]
        assert ys == sorted(ys, reverse=True)

    def test_bars_stand_on_each_other(self):
        report = build_report(*samples.cpu())
        chart = next(chart for chart in report.devices[0].charts if chart.key == "step_time")
        bars = [shape.attributes for shape in shapes(chart) if shape.tag == "rect"]
        first = [bar for bar in bars if bar["x"] == bars[0]["x"]]
        for below, above in itertools.pairwise(first):
            assert float(above["y"]) + float(above["height"]) == pytest.approx(
                float(below["y"]), abs=0.2
            )

    def test_the_chosen_bar_is_framed(self):
        report = build_report(*samples.cpu())
        chart = next(chart for chart in report.devices[0].charts if chart.key == "step_time")
        (frame,) = (shape for shape in shapes(chart) if "frame" in shape.attributes["class"])
        left, right = (
            float(number) for number in re.findall(r"[ML]([\d.]+) ", frame.attributes["d"])[1:3]
        )
        inside = [
            shape for shape in shapes(chart)
            if shape.tag == "rect" and left < float(shape.attributes["x"]) < right
        ]  # fmt: skip
        assert {shape.title.partition(":")[0] for shape in inside} == {"128"}

    @pytest.mark.parametrize("sample", [samples.cpu, samples.gpu, samples.interrupted])
    def test_names_of_marks_cross_neither_lines_nor_each_other(self, sample):
        charts = build_report(*sample()).devices[0].charts
        record, advice = sample()
        for size in (4, 16, 48, 96):  # wherever the estimate falls
            law = advice.memory_law and replace(advice.memory_law, largest_estimate=size * 64)
            moved = build_report(record, replace(advice, memory_law=law))
            charts += moved.devices[0].charts
        for chart in charts:
            shown = shapes(chart)
            lines = [shape for shape in shown if shape.attributes["class"].startswith("mark")]
            upright = [
                float(x)
                for shape in lines if "frame" not in shape.attributes["class"]
                for x, x_end in [re.findall(r"[ML]([\d.]+) ", shape.attributes["d"])]
                if x == x_end
            ]  # fmt: skip
            words = {mark.label for mark in chart.marks} | {band.label for band in chart.bands}
            names = [box_of(shape) for shape in shown if shape.text in words]
            assert len(names) == len([*chart.marks, *chart.bands])
            for name, other in itertools.combinations(names, 2):
                assert not name.meets(other), chart.title
            for name, x in itertools.product(names, upright):
                assert not name.left < x < name.right, chart.title
