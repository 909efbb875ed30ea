"""Transfer against waiting, by arithmetic on paper."""

from __future__ import annotations

import pytest
from batchadvisor.probes.trace.metrics import Analysis
from batchadvisor.probes.trace.ranks import collectives_of, compare
from batchadvisor.probes.trace.reader import read_trace
from hypothesis import given
from hypothesis import strategies as st

from .traces import kernel, launch, rank_of, save, step


def keys(*durations, name="ncclAllReduce", step_name="ProfilerStep#0"):
    """Durations in microseconds."""
    return {
        (step_name, name, position): 1000 * microseconds
        for position, microseconds in enumerate(durations)
    }


def test_the_quickest_rank_shows_the_transfer():
    collectives = compare({0: keys(100, 70), 1: keys(40, 90), 2: keys(60, 80)}, 3)
    zero, one, two = collectives.ranks
    assert (collectives.num_matched, collectives.num_unmatched, collectives.world_size) == (2, 0, 3)
    assert [rank.transfer_s for rank in collectives.ranks] == [pytest.approx(110e-6)] * 3
    assert zero.wait_s == pytest.approx(60e-6)
    assert one.wait_s == pytest.approx(20e-6)
    assert two.wait_s == pytest.approx(30e-6)
    assert (zero.caused_s, one.caused_s) == (pytest.approx(30e-6), pytest.approx(80e-6))
    assert (zero.num_last, one.num_last, two.num_last) == (1, 1, 0)
    assert collectives.wait_share == pytest.approx(110 / 440)


def test_ranks_that_come_together_are_not_last():
    """Kernels that differ by less than the clock's noise, or by a few percent, prove no order."""
    near = compare({0: keys(10.0, 1000, 100), 1: keys(10.9, 1040, 300), 2: keys(90, 2000, 200)})
    assert [rank.num_last for rank in near.ranks] == [1, 0, 0]
    zero, one, _ = near.ranks
    assert one.caused_s == pytest.approx((80.9 + 1040) / 2 * 1e-6)
    assert zero.caused_s == pytest.approx(one.caused_s + 300e-6)


def test_the_straggler_is_named_where_one_stands_out():
    collectives = compare(
        {rank: keys(*([10] * 5 if rank == 7 else [500] * 5)) for rank in range(8)}
    )
    assert (collectives.straggler, collectives.straggler_share) == (7, 1.0)


@pytest.mark.parametrize(
    "ranks",
    [
        {0: keys(100, 100), 1: keys(99, 99)},  # hardly any waiting
        {0: keys(10, 90), 1: keys(90, 10)},  # each waits for the other
        {0: keys(50), 1: keys(50)},  # none at all
        {0: keys(0), 1: keys(0)},
    ],
)
def test_nobody_is_named_without_cause(ranks):
    collectives = compare(ranks)
    assert (collectives.straggler, collectives.straggler_share) == (None, None)


def test_what_not_all_have_is_left_out():
    first = keys(5, 5) | keys(7, name="ncclAllGather")
    second = keys(6, 6) | keys(8, 8, name="ncclAllGather")
    collectives = compare({0: first, 1: second})
    assert (collectives.num_matched, collectives.num_unmatched) == (2, 3)


def test_reasons():
    assert "two or more" in compare({0: keys(1)})
    other = {0: keys(1), 1: keys(1, step_name="ProfilerStep#9")}
    assert "no collective" in compare(other)


@given(st.lists(st.lists(st.integers(0, 10**9), min_size=3, max_size=3), min_size=2, max_size=6))
def test_laws(durations):
    collectives = compare({rank: keys(*own) for rank, own in enumerate(durations)})
    waited = sum(rank.wait_s for rank in collectives.ranks)
    assert sum(rank.caused_s for rank in collectives.ranks) == pytest.approx(waited)
    assert sum(rank.num_last for rank in collectives.ranks) <= collectives.num_matched
    for rank, own in zip(collectives.ranks, durations, strict=True):
        assert rank.transfer_s + rank.wait_s == pytest.approx(sum(own) / 1e6)
        assert rank.wait_s >= 0
    assert 0 <= collectives.wait_share <= 1


def test_collectives_are_told_apart_by_step_name_and_position(tmp_path):
    names = ["ncclAllReduce(a)", "ncclAllReduce(b)", "ncclAllGather(c)"]
    document = rank_of(0, [10, 20, 30], names=names, num_steps=2)
    collectives = collectives_of(Analysis(read_trace(save(tmp_path / "t.json", document))))
    assert collectives["ProfilerStep#1", "ncclAllReduce", 1] == 20_000
    assert len(collectives) == 6


def test_kernels_from_before_the_trace_are_nobodys(tmp_path):
    events = [step(3, 0, 100), launch(1, 1), kernel(10, 5, 1, name="ncclX")]
    events.append(kernel(2, 5, 99, name="ncclX"))
    path = save(tmp_path / "t.json", events)
    assert collectives_of(Analysis(read_trace(path))) == {("ProfilerStep#3", "ncclX", 0): 5000}


def test_without_steps_the_trace_is_one_sequence(tmp_path):
    events = [kernel(10 * n, 5, n, name="ncclX") for n in range(3)]
    collectives = collectives_of(Analysis(read_trace(save(tmp_path / "t.json", events))))
    assert [position for _, _, position in collectives] == [0, 1, 2]
