"""A report shows what was predicted of memory: the law, its corrections, the limit, each size."""

import msgspec
import pytest
from batchadvisor.advisor.advise import advise
from batchadvisor.records import Goal, MemoryPrior
from batchadvisor.reports.builder.run import build_report
from batchadvisor.reports.data import report as data
from batchadvisor.reports.html.page import render as html
from batchadvisor.reports.markdown.page import render as markdown
from batchadvisor.units import GIB, MIB

from ..on_paper import failure_of, numbered, record_of, trial_of
from .golden import agrees
from .terminal_text import shown

LIMIT = 20 * GIB
PEAKS = {size: GIB + size * 32 * MIB for size in (2, 8, 32, 128, 512)}
TRIALS = numbered(
    trial_of(8, peak=2 * GIB, predicted_bytes=PEAKS[8]),
    trial_of(128, peak=7 * GIB, predicted_bytes=6 * GIB),
    failure_of(512, predicted_bytes=22 * GIB),
    trial_of(256, peak=13 * GIB, predicted_bytes=12 * GIB),
    trial_of(256, peak=13 * GIB, predicted_bytes=13 * GIB, purpose="confirm"),
)


def answered(trials=TRIALS, **changes):
    prior = MemoryPrior(peaks=PEAKS, kind="segments")
    record = record_of(
        trials, goal=Goal(kind="memory"), capacity=LIMIT, **{"prior": prior, **changes}
    )
    return record, advise(record)


@pytest.fixture(scope="module")
def answer():
    return answered()


def test_the_text_has_the_law_its_corrections_and_a_column(answer):
    """What was expected before a size ran first: a later trial knows its own peak."""
    agrees("predicted-100.txt", shown(answer))


def test_pages_and_data_have_the_same(answer):
    report = build_report(*answer)
    for page in (html(report), markdown(report)):
        assert "fit into 19.00 GiB (estimate)" in page
        assert "predicted" in page
        assert "12.0" in page
    whole = msgspec.json.decode(data.render(report))
    sizes = {size["batch_size"]: size for size in whole["devices"][0]["sizes"]}
    assert sizes[128]["predicted_bytes"] == 6 * GIB
    assert sizes[512]["predicted_bytes"] == 22 * GIB
    assert sizes[512]["peak_bytes"] is None
    assert whole["advice"]["prior_law"]["target_bytes"] == 19 * GIB
    assert whole["advice"]["prior_law"]["corrected_by"] == [8, 256]


def memory_chart(answer):
    (section,) = build_report(*answer).devices
    return next(chart for chart in section.charts if chart.key == "memory")


def test_the_chart_draws_the_corrected_law_up_to_the_limit():
    answer = answered(TRIALS[:2])  # two peaks: no law of measured peaks yet
    chart, law = memory_chart(answer), answer[1].prior_law
    series = next(series for series in chart.series if series.key == "prior_law")
    assert series.kind == "estimate"
    drawn = dict(zip(chart.x, series.values, strict=True))
    assert drawn[8] == pytest.approx(2, rel=0.01)
    assert drawn[128] == pytest.approx(7, rel=0.01)
    assert max(chart.x) == law.largest_estimate
    assert drawn[law.largest_estimate] == pytest.approx(19, rel=0.01)
    assert f"{law.largest_estimate} fit (estimate)" in [mark.label for mark in chart.marks]
    assert "corrected it. An estimate." in " ".join(chart.notes)


def test_with_enough_peaks_both_laws_are_drawn(answer):
    chart = memory_chart(answer)
    assert {"peak", "memory_law", "prior_law"} == {series.key for series in chart.series}


def test_before_any_peak_nothing_corrects_the_law():
    record, advice = answered(trials=())
    assert "no measured peak corrects it" in " ".join(shown((record, advice)).split())


def test_a_run_that_predicted_nothing_has_no_such_column():
    trials = numbered(trial_of(8, peak=2 * GIB))
    text = shown(answered(trials, prior=None))
    assert "predicted" not in text
