"""Where the memory goes, in every format."""

import gzip
import itertools
from pathlib import Path

import msgspec
import pytest
from batchadvisor.advisor.advise import advise
from batchadvisor.features.board.html.pages import show_devices
from batchadvisor.features.estimate.page import build_estimate
from batchadvisor.records import (
    ExplainedSize,
    MemoryCurve,
    MemoryExplained,
    OperatorTime,
    PeakSource,
    RunRecord,
)
from batchadvisor.reports.blocks import Charts
from batchadvisor.reports.builder.run import build_report
from batchadvisor.reports.builder.sections.memory import memory_page
from batchadvisor.reports.builder.sections.step_memory import step_section
from batchadvisor.reports.builder.text import build_text
from batchadvisor.reports.html.document import render as memory_html
from batchadvisor.reports.html.page import chart_data, charts_of
from batchadvisor.reports.html.page import render as html
from batchadvisor.reports.html.svg import shapes
from batchadvisor.reports.markdown.document import render as memory_markdown
from batchadvisor.reports.markdown.page import render as markdown
from batchadvisor.reports.terminal.answer import render as terminal
from batchadvisor.units import GIB
from msgspec.structs import replace

from . import samples
from .explained_samples import HOSTILE, estimate, explained, step
from .golden import agrees

H100 = Path(__file__).parents[1] / "data/h100/char_gpt.json.gz"


@pytest.fixture
def run():
    record, advice = samples.cpu()[:2]
    size = advice.recommended.batch_size
    return explained(record, (size, "recommended"), (2 * size, "out of memory")), advice, size


def shown(record, advice):
    text = build_text(record, advice)
    return terminal(text, files=(), next_command="", width=100, color=False)


CURVE = MemoryCurve(
    device=0,
    step="ProfilerStep#4",
    step_ns=1000,
    time_ns=(0, 250, 500),
    allocated_bytes=(GIB, 3 * GIB, 2 * GIB),
    reserved_bytes=(4 * GIB, 4 * GIB, 4 * GIB),
    num_events=2,
    peak_bytes=3 * GIB,
    peak_ns=250,
    peak_operator="aten::mm",
    peak_reserved_bytes=4 * GIB,
)


def test_a_profile_with_allocations_shows_memory_over_the_step():
    record, advice = samples.cpu()[:2]
    size = advice.recommended.batch_size
    operator = OperatorTime(name="aten::mm", num_calls=1, self_s=0.1)
    trials = tuple(
        replace(trial, profile=replace(trial.profile, memory=(CURVE,), operators=(operator,)))
        if trial.batch_size == size and trial.profile is not None
        else trial
        for trial in record.trials
    )
    record = replace(record, trials=trials)
    (section,) = build_report(record, advice).memory
    assert section.name == f"batch {size}, one profiled step"
    assert [fact.label for fact in section.facts] == ["measured", "limit"]
    (chart,) = section.charts
    assert chart.unit == "GiB"
    assert chart.y_high == 0.0, "the limit is a number beside the chart"
    assert section.tables[0].rows[0].cells == (
        "GPU 0", "ProfilerStep#4", "1.00 GiB", "2.00 GiB", "3.00 GiB", "25%", "aten::mm",
        "4.00 GiB",
    )  # fmt: skip
    page = html(build_report(record, advice))
    assert 'data-chart="mem-profiled_memory_0"' in page
    assert "Peak 3.00 GiB at 25% of ProfilerStep#4, inside aten::mm." in page


def test_tensors_of_which_nobody_knows_what_they_are_for():
    source = PeakSource(name="Block", roles={}, num_tensors=1)
    section = step_section(replace(step(2), modules=(source,)), name="", key="")
    assert section.tables[1].rows[0].cells == ("0 B", "0%", "1", "Block", "")


class TestARun:
    def test_each_size_has_its_tables_and_a_timeline(self, run):
        record, advice, _ = run
        agrees("memory.md", memory_markdown(memory_page(record, advice.recommended)))
        first, _ = build_report(record, advice).memory
        (chart,) = first.charts
        assert chart.areas
        assert [mark.label for mark in chart.marks] == ["forward", "backward", "optimizer"]
        assert [series.key for series in chart.series] == ["parameters", "gradients", "activations"]

    def test_a_size_is_headed_recommended_only_if_the_answer_recommends_it(self, run):
        """Memory is explained before the run is over; the answer may be another by then."""
        record, advice, size = run
        assert advice.recommended.batch_size == size
        unanswered = replace(advice, recommended=None)
        names = [build_report(record, each).memory[0].name for each in (advice, unanswered)]
        assert names == [f"batch {size}, recommended", f"batch {size}"]

    def test_the_measured_step_stands_beside_its_estimate(self):
        """One step on an H100, recorded by torch."""
        record = msgspec.json.decode(gzip.decompress(H100.read_bytes()), type=RunRecord)
        report = build_report(record, advise(record))
        first, recorded = report.memory
        estimate, measured = first.charts
        assert "(estimate)" in estimate.title
        assert "measured by torch's recorder" in measured.title
        assert (measured.unit, measured.y_high) == (estimate.unit, estimate.y_high)
        most = record.explained.recorded.devices[0].peak.num_bytes
        assert max(measured.series[0].values) * GIB == pytest.approx(most, rel=1e-4)
        assert measured.y_high == max(measured.series[0].values)
        assert recorded.charts == ()
        assert {fact.label: fact.text for fact in first.facts}["limit"].startswith("78.45 GiB")

    def test_areas_lie_on_each_other(self, run):
        record, advice, _ = run
        chart = build_report(record, advice).memory[0].charts[0]
        areas = [shape for shape in shapes(chart) if shape.title]
        assert [area.title for area in areas] == [series.label for series in chart.series]

        def corners(area):
            pairs = area.attributes["d"].strip("MZ").split("L")
            return [tuple(map(float, pair.split())) for pair in pairs]

        num = len(chart.x)
        for below, above in itertools.pairwise(areas):
            assert corners(below)[:num] == corners(above)[num:][::-1]

    def test_the_terminal_is_short(self, run):
        record, advice, size = run
        text = shown(record, advice)
        part = text.partition("Where the memory goes\n")[2].partition("\n\n")[0]
        assert f"At batch {size} tensors take" in part
        assert "activations 768 MiB (79%)" in part
        assert "model.py:41  activations" in part
        assert len(part.splitlines()) <= 4

    def test_every_page_has_the_charts_and_their_data(self, run):
        """The tab too."""
        record, advice, size = run
        report = build_report(record, advice)
        names = [name for name in charts_of(report) if name.startswith("mem-")]
        assert names == [f"mem-step_memory_{size}", f"mem-step_memory_{2 * size}"]
        for page in (html(report), show_devices(report)):
            for name in names:
                assert f'data-chart="{name}"' in page
                assert f'"{name}":{{' in page
        assert '"kind":"area"' in chart_data(charts_of(report))
        for text in (markdown(report), show_devices(report)):
            assert "Where the memory goes" in text

    def test_what_is_not_known_says_why_or_stays_away(self, run):
        record, advice, _ = run
        why = "a shape depends on values"
        unknown = replace(record, explained=MemoryExplained(reason=why))
        report = build_report(unknown, advice)
        assert f"unavailable: {why}" in shown(unknown, advice)
        assert why in html(report)
        assert why in markdown(report)
        known, refused = record.explained.sizes
        gone = ExplainedSize(batch_size=refused.batch_size, why=refused.why, reason="no time")
        some = replace(record, explained=MemoryExplained(sizes=(known, gone)))
        first, second = build_report(some, advice).memory
        assert first.tables
        assert [fact.text for fact in second.facts] == ["no time"]
        nobody_looked = replace(record, explained=None)
        assert build_report(nobody_looked, advice).memory == ()
        assert "Where the memory goes" not in shown(nobody_looked, advice)


class TestHostileNames:
    def test_of_modules_and_lines(self):
        record, advice = samples.cpu()[:2]
        named = explained(record, (64, "recommended"), name=HOSTILE, line=HOSTILE)
        report = build_report(named, advice)
        for page in (html(report), memory_html(memory_page(named, advice.recommended))):
            assert "<script>alert" not in page
            assert "&lt;script&gt;alert(1)" in page
        for page in (markdown(report), memory_markdown(memory_page(named, advice.recommended))):
            assert "<script>alert" not in page
            assert "\\<script\\>alert" in page
        for text in (shown(named, advice), html(report), markdown(report)):
            assert "\x1b" not in text

    def test_of_gpus(self):
        report = build_estimate(estimate(), "batchadvisor run 'a&b.py'")
        page = memory_html(report)
        assert "<script>alert" not in page
        assert "a&amp;b.py" in page
        assert "<script>alert" not in memory_markdown(report)


class TestPagesOfTheirOwn:
    def test_an_estimate(self):
        report = build_estimate(estimate())
        page = memory_html(report)
        for text in (
            "Largest batch that should fit",
            "165 to 186",
            "by module",
            "model.py:41",
            "on a GPU only the memory of three trainings was checked",
        ):
            assert text in page
        assert 'data-chart="c-step_memory"' in page

    def test_a_run_out_of_memory(self):
        record, advice = samples.nothing_fits()[:2]
        size = min(trial.batch_size for trial in record.trials if trial.outcome == "out_of_memory")
        report = memory_page(explained(record, (size, "out of memory")), None)
        assert report.headline.startswith(f"Batch {size} ran out of memory: the script can have")
        assert advise(record).recommended is advice.recommended is None
        assert any(isinstance(block, Charts) for block in report.walk())
        assert report.kind == "where the memory goes"
