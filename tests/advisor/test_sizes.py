"""Which sizes may be tried."""

import pytest
from batchadvisor.advisor.measured.measurements import Measurements
from batchadvisor.advisor.measured.sizes import (
    allowed,
    bound_by_steps,
    largest_allowed,
    round_size,
    smallest_allowed,
    smallest_sound,
)
from batchadvisor.records import Goal, NormLayers
from hypothesis import given
from hypothesis import strategies as st

from ..on_paper import discovery_of, loader_of, record_of, trial_of

KEPT = Goal(keep_effective_batch=True)


def measured(*trials, goal=None, **discovery):
    record = record_of(trials, goal=goal, discovery=discovery_of(**discovery))
    return Measurements.of(record)


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
    @pytest.mark.parametrize(
        ("num_samples", "native", "micro", "bound"),
        [
            (1000, 8, 1, 100),
            (1000, 8, 4, 25),
            (1000, 300, 1, 300),
            (5, 2, 1, 2),
            (0, 1, 1, 1),
            (None, 8, 1, 1 << 24),
        ],
    )
    def test_ten_steps_an_epoch_are_kept(self, num_samples, native, micro, bound):
        found = measured(num_samples=num_samples, native=native, micro_batches=micro)
        assert largest_allowed(found) == bound

    def test_ten_steps_of_a_script_that_steps_after_so_many_samples(self):
        trials = trial_of(8, 0.1, micro_batches=4), trial_of(24, 0.2, micro_batches=2)
        assert bound_by_steps(measured(*trials, num_samples=1000, micro_batches=4)) == 50

    def test_ten_steps_of_each_rank_are_kept(self):
        loader = loader_of(
            1000, sampler="BatchSamplerShard", dataset_samples=1000, even_batches=True
        )
        assert bound_by_steps(measured(loader=loader, num_ranks=4)) == 25

    @pytest.mark.parametrize(
        ("goal", "bound"),
        [
            (Goal(kind="memory"), 1000),
            (Goal(max_batch=900), 900),
            (Goal(kind="memory", keep_effective_batch=True), 32),
        ],
    )
    def test_fewer_steps_where_asked(self, goal, bound):
        assert largest_allowed(measured(goal=goal, num_samples=1000, micro_batches=4)) == bound

    def test_rounded_and_bounded(self):
        assert allowed(measured(), 101.0) == 104
        assert allowed(measured(goal=Goal(max_batch=100)), 101.0) == 100

    @pytest.mark.parametrize(
        ("size", "up", "expected"), [(5, False, 4), (5, True, 6), (9, False, 8), (24.1, True, 24)]
    )
    def test_the_nearest_divisor(self, size, up, expected):
        kept = measured(goal=KEPT, native=6, micro_batches=4)
        assert allowed(kept, size, up=up) == expected

    @given(st.integers(1, 400), st.floats(0.5, 500), st.booleans())
    def test_divisors_only(self, whole, size, up):
        assert whole % allowed(measured(goal=KEPT, native=whole), size, up=up) == 0


@pytest.mark.parametrize(
    ("native", "norms", "least", "sound"),
    [
        (8, NormLayers(), 1, 1),
        (8, None, 1, 1),
        # Synchronised over ranks, the statistics are those of all of them.
        (8, NormLayers(sync_batch_norm=3), 1, 1),
        (32, NormLayers(batch_norm=1), 2, 8),
        (4, NormLayers(batch_norm=1), 2, 4),
    ],
)
def test_the_least_size_for_batch_norm(native, norms, least, sound):
    found = measured(native=native, norm_layers=norms)
    assert (smallest_allowed(found), smallest_sound(found)) == (least, sound)
