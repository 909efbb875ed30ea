"""The fresh process may put the recommended size before the fastest of the search: no page says
both that one is the fastest and that the other reaches more than its throughput."""

import msgspec
import pytest
from batchadvisor.advisor.advise import advise
from batchadvisor.advisor.choose.decision import Because
from batchadvisor.advisor.explain.ratios import beside
from batchadvisor.records import Goal, Turns
from batchadvisor.reports.builder.run import build_report
from batchadvisor.reports.builder.sizes.rows import size_rows

from ..on_paper import numbered, record_of, trial_of
from .small_search import CONFIRMED, search_of

NOISY = (1.4, 1.0, 1.35, 1.0, 1.5, 1.1, 1.0, 1.4) * 2
"""Throughput of 32 over that of 64, round by round."""


def answered(ratios, goal=None):
    """The search reads 200 and 210 samples/s at 32 and 64; then they take turns."""
    rows = tuple((0.16 / ratio, 0.32) for ratio in ratios)
    turns = Turns(sizes=(32, 64), step_s=rows)
    trial = trial_of(64, kind="turns", purpose="confirm", worker=1, turns=turns)
    record = record_of(numbered(*search_of(), *CONFIRMED[:2], trial), goal=goal)
    cpu = msgspec.structs.replace(record.device, kind="cpu")
    record = msgspec.structs.replace(record, device=cpu)
    return record, advise(record)


def marked(record, advice):
    return [row.batch_size for row in size_rows(record, advice) if "fastest" in row.marks]


def test_two_that_noise_cannot_tell_apart_are_said_to_be_so():
    record, advice = answered(NOISY)
    assert advice.recommended.batch_size == 32
    assert advice.reason.startswith(
        "The smallest size that reaches 95% of the best: in turn it and 64 cannot be told apart (9"
    )
    assert advice.fastest.batch_size == 64  # of the search: JSON has it, and what speaks against it
    assert advice.fastest_is_open
    assert marked(record, advice) == []


def test_the_chart_names_the_search():
    (section,) = build_report(*answered(NOISY)).devices
    throughput = next(chart for chart in section.charts if chart.key == "throughput")
    assert [band.label for band in throughput.bands] == ["within 5% of the fastest of the search"]


def test_one_that_is_surely_faster_in_turn_keeps_its_number():
    record, advice = answered([1.05] * 16)
    assert "104.4% of the throughput of 64 (measured in turn, 102.9% to 106.0%)" in advice.reason
    assert marked(record, advice) == []


@pytest.mark.parametrize("ratios", [[0.97] * 16, [1.0, 0.95, 0.98, 1.02] * 4])
def test_one_that_is_no_faster_in_turn_leaves_the_mark(ratios):
    record, advice = answered(ratios)
    assert not advice.fastest_is_open
    assert marked(record, advice) == [64]
    assert "cannot be told apart" not in advice.reason


def test_the_fastest_itself_is_not_open():
    record, advice = answered([0.9] * 16, Goal(kind="throughput"))
    assert advice.recommended.batch_size == 64
    assert marked(record, advice) == [64]


def test_what_was_not_measured_again_is_not_said():
    assert beside(Because("within the tolerance"), "the throughput of 128") == ""
