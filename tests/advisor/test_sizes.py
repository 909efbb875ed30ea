"""Which sizes may be tried."""

import pytest
from batchadvisor.advisor.measured.measurements import Measurements
from batchadvisor.advisor.measured.sizes import (
    allowed,
    bound_by_steps,
    effective_batch,
    largest_allowed,
    round_size,
    smallest_allowed,
    smallest_sound,
)
from batchadvisor.records import Goal, NormLayers
from hypothesis import given
from hypothesis import strategies as st

from ..on_paper import discovery_of, loader_of, record_of, trial_of


class TestRounding:
    @given(st.floats(0.01, 1e6))
    def test_round_size(self, size):
        rounded = round_size(size)
        assert rounded >= 1
        step = 8 if size >= 30 else 4 if size >= 15 else 1
        assert rounded % step == 0
        assert abs(rounded - size) <= step / 2 or rounded == 1

    @given(st.floats(0.01, 1e6), st.floats(0.01, 1e6))
    def test_order_is_kept(self, first, second):
        low, high = sorted((first, second))
        assert round_size(low) <= round_size(high)


class TestAllowed:
    def test_bounds(self):
        memory = Goal(kind="memory")
        assert largest_allowed(Measurements.of(record_of(goal=memory))) == 15625
        assert largest_allowed(Measurements.of(record_of(goal=Goal(max_batch=100)))) == 100
        endless = discovery_of(loader=loader_of(None))
        assert largest_allowed(Measurements.of(record_of(discovery=endless))) == 1 << 24
        kept = discovery_of(native=16, micro_batches=4)
        assert effective_batch(Measurements.of(record_of(discovery=kept))) == 64
        goal = Goal(kind="memory", keep_effective_batch=True)
        assert largest_allowed(Measurements.of(record_of(discovery=kept, goal=goal))) == 64

    @pytest.mark.parametrize(
        ("num_samples", "native", "micro", "bound"),
        [
            (1000, 8, 1, 100),
            (1000, 8, 4, 25),
            (1000, 300, 1, 300),
            (5, 2, 1, 2),
            (None, 8, 1, None),
        ],
    )
    def test_ten_steps_an_epoch_are_kept(self, num_samples, native, micro, bound):
        discovery = discovery_of(native, num_samples, micro)
        assert bound_by_steps(Measurements.of(record_of(discovery=discovery))) == bound
        if bound is not None:
            assert largest_allowed(Measurements.of(record_of(discovery=discovery))) == bound

    def test_ten_steps_of_a_script_that_steps_after_so_many_samples(self):
        trials = [trial_of(8, 0.1, micro_batches=4), trial_of(24, 0.2, micro_batches=2)]
        record = record_of(trials, discovery=discovery_of(8, 1000, 4))
        assert bound_by_steps(Measurements.of(record)) == 50

    def test_ten_steps_of_each_rank_are_kept(self):
        loader = loader_of(
            1000, sampler="BatchSamplerShard", dataset_samples=1000, even_batches=True
        )
        discovery = discovery_of(loader=loader, num_ranks=4)
        assert bound_by_steps(Measurements.of(record_of(discovery=discovery))) == 25

    @pytest.mark.parametrize("goal", [Goal(kind="memory"), Goal(max_batch=900)])
    def test_fewer_steps_where_asked(self, goal):
        record = record_of(discovery=discovery_of(8, 1000), goal=goal)
        assert bound_by_steps(Measurements.of(record)) is None
        assert largest_allowed(Measurements.of(record)) == (goal.max_batch or 1000)

    def test_empty_data_allows_one(self):
        assert (
            largest_allowed(
                Measurements.of(record_of(discovery=discovery_of(native=1, num_samples=0)))
            )
            == 1
        )

    def test_rounded_and_bounded(self):
        assert allowed(Measurements.of(record_of()), 101.0) == 104
        assert allowed(Measurements.of(record_of(goal=Goal(max_batch=100))), 101.0) == 100

    @pytest.mark.parametrize(
        ("size", "up", "expected"), [(5, False, 4), (5, True, 6), (9, False, 8), (24.1, True, 24)]
    )
    def test_divisors(self, size, up, expected):
        record = record_of(
            discovery=discovery_of(native=6, micro_batches=4), goal=Goal(keep_effective_batch=True)
        )
        assert allowed(Measurements.of(record), size, up=up) == expected

    @given(st.integers(1, 400), st.floats(0.5, 500), st.booleans())
    def test_divisors_only(self, whole, size, up):
        record = record_of(
            discovery=discovery_of(native=whole), goal=Goal(keep_effective_batch=True)
        )
        assert whole % allowed(Measurements.of(record), size, up=up) == 0


class TestBatchNorm:
    def test_without(self):
        assert (
            smallest_allowed(Measurements.of(record_of())),
            smallest_sound(Measurements.of(record_of())),
        ) == (1, 1)
        unknown = record_of(discovery=discovery_of(norm_layers=None))
        assert (
            smallest_allowed(Measurements.of(unknown)),
            smallest_sound(Measurements.of(unknown)),
        ) == (1, 1)
        # Synchronised over ranks, the statistics are those of all of them.
        other = record_of(discovery=discovery_of(norm_layers=NormLayers(sync_batch_norm=3)))
        assert (
            smallest_allowed(Measurements.of(other)),
            smallest_sound(Measurements.of(other)),
        ) == (1, 1)

    @pytest.mark.parametrize(("native", "sound"), [(32, 8), (8, 8), (4, 4)])
    def test_with(self, native, sound):
        discovery = discovery_of(native=native, norm_layers=NormLayers(batch_norm=1))
        record = record_of(discovery=discovery)
        assert (
            smallest_allowed(Measurements.of(record)),
            smallest_sound(Measurements.of(record)),
        ) == (2, sound)
