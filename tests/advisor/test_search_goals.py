"""The search under what a goal and a script ask for: sizes, limits, effective batch, last steps."""

import msgspec
import pytest
from batchadvisor.advisor.search.next_trial import Done, expected, next_trial
from batchadvisor.records import Goal, NormLayers

from ..on_paper import GIB, discovery_of, loader_of, record_of
from .machine import Machine
from .random_machines import random_machine


class TestGoals:
    def test_sizes_are_tried_exactly(self):
        result = Machine().search(Goal(sizes=(48, 7, 48, 100)))
        assert result.tried == [7, 48, 100]
        assert result.size in (7, 48, 100)
        assert result.stop.reason == "all sizes of --sizes were tried"

    def test_sizes_above_one_that_failed_are_left_out(self):
        machine = Machine(memory=lambda size: 10 * GIB * size)
        result = machine.search(Goal(sizes=(4, 16, 64)))
        assert result.tried == [4, 16]
        assert result.size == 4

    def test_sizes_all_too_large(self):
        result = Machine(memory=lambda size: 10 * GIB * size).search(Goal(sizes=(16, 64)))
        assert result.size is None
        assert result.tried == [16]

    def test_sizes_above_the_data_are_said_to_be_so(self):
        loader = loader_of(4001, batch_size=16)
        discovery = discovery_of(native=16, loader=loader)
        result = Machine(memory=lambda _: GIB, discovery=discovery).search(Goal(sizes=(5000, 6000)))
        assert result.size is None
        assert result.advice.reason.startswith("The dataset has 4001 samples")
        assert "a batch of 5000 or more" in result.advice.reason

    @pytest.mark.parametrize(("native", "micro"), [(16, 4), (12, 1), (7, 1), (60, 2)])
    def test_keep_effective_batch_tries_divisors(self, native, micro):
        whole = native * micro
        for seed in range(5):
            machine = random_machine(seed)
            machine.discovery = discovery_of(native=native, micro_batches=micro)
            for kind in ("knee", "throughput", "memory"):
                result = machine.search(Goal(kind=kind, keep_effective_batch=True))
                sizes = {
                    request.batch_size for request in result.requests if request.purpose != "tail"
                }
                assert [size for size in sizes if whole % size] == []
                assert result.finished
                if result.size is not None:
                    assert result.advice.training.effective_after == whole

    @pytest.mark.parametrize("bound", [{"max_batch": 10}, {"start": 10}])
    @pytest.mark.parametrize("kind", ["knee", "throughput", "memory"])
    def test_keep_effective_batch_within_a_bound_that_is_no_divisor(self, kind, bound):
        machine = Machine(discovery=discovery_of(native=16))
        result = machine.search(Goal(kind=kind, keep_effective_batch=True, **bound))
        sizes = {request.batch_size for request in result.requests if request.purpose != "tail"}
        assert [size for size in sizes if 16 % size or size > bound.get("max_batch", 16)] == []
        assert result.finished
        assert result.advice.training.effective_after == 16

    def test_start(self):
        result = Machine().search(Goal(start=20))
        assert result.tried[0] == 20
        assert 8 not in result.tried[:1]

    def test_max_batch_below_the_own_size(self):
        result = Machine(discovery=discovery_of(native=32)).search(Goal(max_batch=10))
        assert max(result.tried) == 10
        assert result.size <= 10

    def test_small_data(self):
        """No size above the data, and none that makes no step under drop_last."""
        loader = loader_of(37, batch_size=8, drop_last=True)
        result = Machine(discovery=discovery_of(native=8, loader=loader)).search()
        assert max(result.tried) <= 37
        assert result.size <= 37

    def test_batch_norm_is_not_run_with_one_sample(self):
        discovery = discovery_of(native=8, norm_layers=NormLayers(batch_norm=2))
        machine = Machine(time_s=lambda size: 0.001 * size, discovery=discovery)
        result = machine.search()
        assert (
            min(request.batch_size for request in result.requests if request.purpose == "search")
            == 2
        )
        # The smallest size is as fast as any, yet 8 is the least for steady statistics.
        assert result.size == 8

    def test_profile_is_asked_for_in_the_search_alone(self):
        requests = Machine().search().requests
        assert {request.profile for request in requests if request.purpose == "search"} == {True}
        assert {request.profile for request in requests if request.purpose != "search"} == {False}
        assert not any(
            request.profile for request in Machine().search(Goal(profile=False)).requests
        )

    def test_confirmation_runs_in_one_fresh_process_in_turn(self):
        result = Machine(noise=0.002).search()
        series = [request for request in result.requests if request.purpose == "confirm"]
        assert [request.fresh_process for request in series] == [True] + [False] * (len(series) - 1)
        sizes = [request.batch_size for request in series]
        assert sizes == [result.size, max(sizes)] * 2
        tail = result.requests[-1]
        assert (tail.purpose, tail.batch_size) == ("tail", 15625 % result.size)

    @pytest.mark.parametrize(
        ("norms", "iterable", "length", "asked"),
        [
            (NormLayers(batch_norm=1), True, None, 1),
            (NormLayers(layer_norm=1), True, None, None),
            (NormLayers(batch_norm=1), False, 16_000_000_000, None),
        ],
    )
    def test_one_sample_is_tried_where_batch_norm_could_meet_it(
        self, norms, iterable, length, asked
    ):
        loader = loader_of(length, iterable=iterable, batch_size=8)
        discovery = discovery_of(native=8, loader=loader, norm_layers=norms)
        requests = Machine(noise=0.0, discovery=discovery).search(Goal(sizes=(8, 64))).requests
        tails = [request.batch_size for request in requests if request.purpose == "tail"]
        assert tails == ([] if asked is None else [asked])

    def test_expected_steps(self):
        assert expected(record_of(goal=Goal(sizes=(1, 2, 3)))).num_sizes == 3
        for kind in ("knee", "throughput", "memory"):
            goal = Goal(kind=kind, budget_s=1e9)
            steps = expected(record_of(goal=goal)).num_steps
            real = sum(
                3 if request.kind == "fit" else 14
                for request in Machine()
                .search(msgspec.structs.replace(goal, budget_s=1e9))
                .requests
            )
            assert real / 4 <= steps <= real * 4

    def test_long_steps_are_said_before_the_search(self):
        """Steps of 15 s: a window of four takes a minute, a larger size's may take longer."""
        discovery = discovery_of(native_step_s=15.0)
        plan = expected(record_of(goal=Goal(budget_s=200.0), discovery=discovery))
        assert (plan.window_s, plan.least, plan.num_sizes, plan.fits) == (60.0, 1, 2, False)
        assert plan.enough_s is None
        plan = expected(record_of(goal=Goal(budget_s=100.0), discovery=discovery))
        assert (plan.num_sizes, plan.enough_s) == (1, 250.0)

    def test_the_own_size_comes_first_and_a_much_larger_one_then(self):
        machine = Machine(time_s=lambda size: 6 + 0.05 * size, discovery=discovery_of(native=64))
        result = machine.search(Goal(budget_s=200))
        assert result.tried[0] == 64
        assert result.requests[0].min_timed_steps == 3
        assert not result.requests[0].profile
        assert Machine(discovery=discovery_of(native=64)).search().tried[:3] == [64, 256, 8]

    @pytest.mark.parametrize(("worst_case", "num"), [(False, 1), (True, 3)])
    def test_no_step_of_the_longest_samples_is_timed(self, worst_case, num):
        machine = Machine(time_s=lambda size: 6 + 0.05 * size, discovery=discovery_of(native=64))
        (first, *_) = machine.search(Goal(budget_s=200, worst_case=worst_case)).requests
        assert (first.min_warmup_steps, first.min_timed_steps) == (num, 3)

    def test_done_at_once_when_all_is_measured(self):
        result = Machine().search()
        assert isinstance(next_trial(result.record), Done)
