"""Memory that may be used: sizes that take more decide nothing, and what is said of it."""

import dataclasses

import msgspec
import pytest
from batchadvisor.advisor.advise import advise
from batchadvisor.advisor.choose.finalists import finalists
from batchadvisor.advisor.measured.measurements import Measurements
from batchadvisor.advisor.measured.turn_sizes import field
from batchadvisor.records import Goal, InputSize, Observed

from ..on_paper import GIB, discovery_of, metered, numbered, record_of, trial_of
from .machine import Machine

LARGEST = Goal(kind="memory")
CPU_OF_80_GIB = msgspec.structs.replace(record_of().device, kind="cpu")
SPEED = [Goal(kind=kind, budget_s=1000) for kind in ("knee", "throughput")]
for_speed = pytest.mark.parametrize("goal", SPEED, ids=lambda goal: goal.kind)


class TestOverTheTarget:
    """80 GiB less 5 % are 76 GiB."""

    def machine(self, fixed_gib, **changes):
        return Machine(
            time_s=lambda size: 0.1 + 0.001 * size,
            memory=lambda size: int((fixed_gib + size) * GIB),
            discovery=discovery_of(native=64),
            noise=0.0,
            **changes,
        )

    @for_speed
    def test_the_script_s_own_size_is(self, goal):
        """64 takes 78 GiB: the search goes on below it, and confirms what it recommends."""
        result = self.machine(14).search(goal)
        assert 48 <= result.size <= 62
        assert result.advice.sureness == "confirmed"
        assert len(result.tried) == len(set(result.tried)) <= 8
        confirmed = [asked.batch_size for asked in result.requests if asked.purpose == "confirm"]
        assert 64 not in confirmed
        assert result.advice.reason.endswith(
            "Left out, for taking more than 76.00 GiB (capacity less 5%): the script's own 64."
        )

    @for_speed
    def test_every_size_is_until_a_small_one(self, goal):
        """Nothing larger than a size over the target is tried, and no size twice."""
        result = self.machine(70, real_capacity=200 * GIB).search(goal)
        assert result.tried[:3] == [64, 16, 4]
        assert len(result.tried) == len(set(result.tried))
        assert max(result.tried[1:]) < 64
        assert 4 <= result.size <= 6

    @for_speed
    def test_every_size_is(self, goal):
        """Down to one sample, then the search ends."""
        result = self.machine(77, real_capacity=200 * GIB).search(goal)
        assert (result.size, result.tried[-1]) == (None, 1)
        assert result.advice.reason.startswith("Every size that ran takes more than 76.00 GiB")

    def test_it_is_no_finalist(self):
        trials = numbered(
            trial_of(8, 0.1, peak=GIB),
            trial_of(32, 0.2, peak=40 * GIB),
            trial_of(64, 0.3, peak=78 * GIB),
        )
        record = record_of(trials, goal=Goal(kind="throughput"))
        assert finalists(Measurements.of(record)) == (32, 8)
        assert advise(record).reason.endswith(" (capacity less 5%): 64.")

    def test_the_thriftiest_of_the_others_is_taken(self):
        trials = numbered(
            metered(8, 0.1, 100, peak=10 * GIB),
            metered(32, 0.2, 300, peak=20 * GIB),
            metered(64, 0.25, 100, peak=79 * GIB),
        )
        assert advise(record_of(trials, goal=Goal(kind="energy"))).recommended.batch_size == 8

    def test_a_faster_one_is_not_denied(self):
        """The loader takes 40 % of the own step, and 32 is four times as fast."""
        trials = numbered(trial_of(8, 0.1, wait_s=0.04), trial_of(32, 0.1, peak=78 * GIB))
        reason = advise(record_of(trials)).reason
        assert "much faster" not in reason
        assert reason.endswith(": 32.")
        alone = advise(record_of((trials[0], trial_of(4, 0.06, ordinal=1)))).reason
        assert "no batch size that ran is surely much faster" in alone

    def test_it_takes_no_turns(self):
        """On a CPU what may not be recommended is not compared either."""
        trials = numbered(
            *(trial_of(size, size / 600, peak=peak) for size, peak in ((8, GIB), (16, 78 * GIB)))
        )
        record = record_of(trials, device=CPU_OF_80_GIB)
        assert list(field(Measurements.of(record))) == [8]


class TestTheGuardEndsGrowth:
    """Growth that pays, and no size runs out of memory."""

    @for_speed
    def test_it_is_said_and_no_larger_batch_is_asked_for(self, goal):
        machine = Machine(
            time_s=lambda size: 0.1 + 0.0005 * size,
            memory=lambda size: int((2 + 0.6 * size) * GIB),
            discovery=discovery_of(native=16, num_samples=12_000),
            noise=0.0,
        )
        result = machine.search(goal)
        assert (result.size, result.num_refused) == (120, 0)
        assert result.stop.reason == "memory allows no larger size"
        assert result.advice.verdict.limit == "memory"
        roomy = dataclasses.replace(machine, memory=lambda size: GIB)
        assert roomy.search(goal).stop.reason == "the knee is bracketed"


class TestUnknown:
    def test_a_peak_of_0_is_no_reading(self):
        """A backend without counters; the callback's headroom divides by the peak."""
        record = record_of([trial_of(8, 0.1, peak=0)], observed=Observed(framework="keras"))
        advice = advise(record)
        assert advice.recommended.peak_bytes is None
        assert "peak" not in advice.headline

    @pytest.mark.parametrize(
        ("peak", "changes", "why"),
        [
            (None, {}, "(its memory was not measured)"),
            (GIB, {"device": None}, "(how much memory there is was not"),
        ],
    )
    def test_a_size_is_not_said_to_stay_below(self, peak, changes, why):
        reason = advise(record_of([trial_of(8, peak=peak)], goal=LARGEST, **changes)).reason
        assert reason.startswith(f"The largest size that ran {why}")


class TestLongerBatches:
    def test_the_room_kept_for_them_is_named(self):
        """76 GiB are left by the margin, and of them 10/14 as a batch may be that much longer."""
        inputs = {
            size: InputSize(num_batches=5, smallest=10, largest=length)
            for size, length in {8: 100, 16: 100, 64: 140}.items()
        }
        trials = [trial_of(size, peak=GIB * size / 4, inputs=its) for size, its in inputs.items()]
        reason = advise(record_of(numbered(*trials), goal=LARGEST)).reason
        assert "stays below 54.29 GiB (capacity less 5%, and 29% of that kept for longer " in reason
