"""Samples per joule and the goal that goes by them. All numbers are synthetic."""

import random

import msgspec
import pytest
from batchadvisor.advisor.advise import advise
from batchadvisor.advisor.choose.finalists import finalists
from batchadvisor.advisor.measured.energy import (
    energy_measured,
    joules_spread,
    samples_per_joule,
    thriftiest,
    too_short,
    why_not,
)
from batchadvisor.advisor.measured.measurements import Measurements
from batchadvisor.advisor.search.next_trial import Done, next_trial
from batchadvisor.errors import UsageError
from batchadvisor.records import Counters, Goal
from batchadvisor.session.setup.options import check_energy, check_energy_device

from ..on_paper import discovery_of, metered, numbered, record_of, trial_of

ENERGY = Goal(kind="energy")


def ladder():
    """The fastest size is 64, the thriftiest is 32."""
    return numbered(metered(8, 0.10, 100), metered(32, 0.16, 150), metered(64, 0.30, 300))


class TestNumbers:
    @pytest.mark.parametrize(
        ("counters", "power_w"),
        [
            (Counters(window_s=2.0, energy_j=500.0, power_w=90.0), 250.0),
            (Counters(window_s=2.0, power_w=90.0), 90.0),
            (Counters(energy_j=500.0), None),
        ],
    )
    def test_the_energy_counter_comes_first(self, counters, power_w):
        assert counters.mean_w == power_w

    def test_samples_per_joule(self):
        assert samples_per_joule(metered(32, 0.16, 100)) == pytest.approx(2.0)
        assert samples_per_joule(metered(32, 0.16, 0.0)) is None
        stored = msgspec.structs.replace(metered(32, 0.16, 100), samples_per_joule=7.0)
        assert samples_per_joule(stored) == 7.0

    @pytest.mark.parametrize(
        ("window_s", "update_s", "counts"),
        [
            (0.12, None, False),
            (1.9, None, False),
            (2.0, None, True),
            (2.0, 0.02, True),
            (2.0, 0.2, False),  # 20 updates are 4 s
            (4.0, 0.2, True),
        ],
    )
    def test_a_short_window_says_nothing(self, window_s, update_s, counts):
        counters = Counters(
            window_s=window_s, energy_j=100 * window_s, power_w=100.0, energy_update_s=update_s
        )
        trial = trial_of(32, 0.16, counters=counters)
        assert (samples_per_joule(trial) is not None) is counts
        assert bool(too_short(counters)) is not counts
        record = record_of((trial,), goal=ENERGY)
        assert ("energy needs" in why_not(Measurements.of(record))) is not counts

    @pytest.mark.parametrize("window_s", [2.0, 4.0])
    @pytest.mark.parametrize("update_s", [0.02, 0.1])
    def test_the_interval_holds_the_truth(self, window_s, update_s):
        """A counter that moves every `update_s` at 250 W, read at 2,000 pairs of moments."""
        rng = random.Random(1)
        held = wide = 0
        for _ in range(2000):
            begun = rng.uniform(0, 1)
            read = [250 * update_s * (at // update_s) for at in (begun, begun + window_s)]
            counters = Counters(
                window_s=window_s, energy_j=read[1] - read[0], energy_update_s=update_s
            )
            trial = trial_of(50, 0.2, half_width=0.0, counters=counters)
            spread = joules_spread(trial)
            held += spread.low <= 1.0 <= spread.high
            wide = max(wide, spread.relative_half_width)
        assert held >= 0.93 * 2000
        assert wide <= 0.041

    def test_what_cannot_be_told_apart_is_no_choice_between_readings(self):
        """3 % more samples per joule, over windows whose edges alone are worth 4 %."""
        near = numbered(metered(32, 0.16, 100), metered(64, 0.32, 97))
        assert thriftiest(Measurements.of(record_of(near))) == 32
        apart = numbered(metered(32, 0.16, 100), metered(64, 0.32, 85))
        assert thriftiest(Measurements.of(record_of(apart))) == 64


class TestGoal:
    def test_the_thriftiest_size_is_recommended(self):
        record = record_of(ladder(), goal=ENERGY)
        assert finalists(Measurements.of(record)) == (32, 64)
        advice = advise(record)
        assert advice.recommended.batch_size == 32
        assert advice.recommended.samples_per_joule == pytest.approx(200 / 150)
        assert advice.fastest.batch_size == 64
        assert "most samples per joule: 1.333" in advice.reason
        assert "The fastest, 64, reaches 0.7111" in advice.reason

    def test_throughput_is_no_reason_to_keep_a_size(self):
        """32 is surely slower; its joules decide, and the noise leaves them open."""
        trials = numbered(metered(64, 0.32, 200), metered(32, 0.2, 160))
        goal = msgspec.structs.replace(ENERGY, sizes=(32, 64))
        advice = advise(record_of(trials, goal=goal, discovery=discovery_of(native=64)))
        assert advice.recommended.batch_size == 64
        assert advice.headline.endswith("too noisy to tell whether 32 gives more samples per joule")
        assert advice.against_own is None

    def test_the_smallest_of_those_that_cannot_be_told_apart(self):
        trials = numbered(metered(32, 0.16, 100), metered(64, 0.31, 97))
        reason = advise(record_of(trials, goal=ENERGY, discovery=discovery_of(native=32))).reason
        assert "cannot be told from the most samples per joule: 2." in reason
        assert "The fastest, 64, reads 2.128." in reason

    def test_the_search_ends_at_the_first_size_without_energy(self):
        step = next_trial(record_of((trial_of(8, 0.1),), goal=ENERGY))
        assert isinstance(step, Done)
        assert "no energy was measured" in step.reason

    def test_growth_goes_on_while_joules_are_saved(self):
        """Between 32 and 64 nothing is gained; the search looks once more and stops."""
        step = next_trial(record_of(ladder()[:2], goal=ENERGY))
        assert not isinstance(step, Done)
        assert step.batch_size > 32


class TestWrongUse:
    def test_a_record_without_energy(self):
        record = record_of((trial_of(8, 0.1),))
        with pytest.raises(UsageError, match="--goal energy cannot be answered") as caught:
            check_energy(record, ENERGY)
        assert "--goal throughput" in caught.value.remedy
        check_energy(record, Goal())
        check_energy(record_of(ladder()), ENERGY)

    @pytest.mark.parametrize("device", ["cpu", "auto", "mps"])
    def test_a_device_without_counters(self, device):
        with pytest.raises(UsageError, match="NVIDIA"):
            check_energy_device(device, ENERGY)
        check_energy_device(device, Goal())
        check_energy_device("cuda:GPU-1234", ENERGY)

    def test_the_reason_of_the_driver_is_told(self):
        counters = Counters(unavailable={"energy_j": "the GPU has no energy counter"})
        record = record_of((trial_of(8, 0.1, counters=counters),))
        assert not energy_measured(Measurements.of(record))
        said = advise(msgspec.structs.replace(record, goal=ENERGY)).reason
        assert said.startswith("No energy was measured: the GPU has no energy counter.")
