"""Steps on fake tensors before the search for memory: what they cost, and what they save."""

import math
import random
from dataclasses import dataclass

import msgspec
import pytest
from batchadvisor.advisor.advise import advise
from batchadvisor.advisor.measured.measurements import Measurements
from batchadvisor.advisor.measured.memory_prior import (
    RESIDENT,
    Prior,
    corrected,
    predicted_bytes,
    prior_of,
)
from batchadvisor.advisor.measured.step_law import StepLaw, law_of
from batchadvisor.advisor.search.next_trial import next_trial
from batchadvisor.advisor.search.prior_plan import MAX_FAKE_SIZES, next_fake_size
from batchadvisor.records import Goal, MemoryPrior

from ..on_paper import GIB, discovery_of, failure_of, numbered, record_of, trial_of
from .machine import Machine
from .random_machines import laws_hold

NUM_LAWS = 500
MARGIN = 0.05
MEMORY = Goal(kind="memory", budget_s=1e9, margin=MARGIN)
BIAS = 0.12
NUM_SAMPLES = 10**7


@dataclass
class MemoryLaws:
    """One script on one device, by a seed, and steps on fake tensors that do not know all of it.

    They are not told of jumps of workspaces, of pieces that the allocator leaves between tensors,
    of memory that grows faster than the batch, nor of a bias of the whole by 12 % (standard
    deviation).
    """

    seed: int

    def __post_init__(self):
        draw = random.Random(self.seed)
        self.capacity = draw.choice([8, 16, 24, 40, 48, 80, 141]) * GIB
        self.fixed = self.capacity * draw.uniform(0.02, 0.75)
        self.largest = 10 ** draw.uniform(1.3, 4.3)
        self.floor = self.fixed * draw.choice([0, 0, draw.uniform(1, 1.5)])
        self.jumps = [
            (draw.uniform(0, self.largest), draw.uniform(0, 0.06) * self.capacity)
            for _ in range(draw.randint(1, 5))
        ]
        self.pieces = draw.uniform(0, 0.10)
        self.bend = draw.uniform(0.05, 0.3) if draw.random() < 0.1 else 0.0
        self.bias = math.exp(draw.gauss(0, BIAS))
        self.native = draw.choice([1, 4, 8, 16, 32, 64])
        while self.native > 1 and self.memory(self.native) > self.capacity:
            self.native //= 2  # the search begins where the script's own steps ran

    def line(self, size):
        """What tensors take."""
        slope = (self.capacity - self.fixed) / self.largest
        return max(self.floor, self.fixed + slope * size)

    def memory(self, size):
        """What the device reads."""
        slope = (self.capacity - self.fixed) / self.largest
        bent = self.fixed + slope * size * (1 + self.bend * size / self.largest)
        jumps = max((more for start, more in self.jumps if size >= start), default=0)
        pieces = 1 + self.pieces * random.Random(self.seed * 100_003 + size).random()
        return (max(self.floor, bent) + jumps) * pieces

    def prior(self):
        """What steps on fake tensors say."""
        peaks = {}
        target = int(self.capacity * (1 - MARGIN))
        while (size := next_fake_size(peaks, self.native, target, NUM_SAMPLES)) is not None:
            peaks[size] = int(self.line(size) * self.bias)
        return MemoryPrior(peaks=peaks)

    def machine(self, *, prior):
        """The same on paper, on which whole searches run."""
        return Machine(
            memory=self.memory,
            capacity=self.capacity,
            discovery=discovery_of(native=self.native, num_samples=NUM_SAMPLES),
            noise=0.0,
            seed=self.seed,
            prior=self.prior() if prior else None,
        )


def straight(size):
    return GIB + size * GIB // 100


PEAKS = {size: straight(size) for size in (2, 8, 32, 128, 512, 2048, 8192)}
PRIOR = MemoryPrior(peaks=PEAKS)
LAW = law_of(PEAKS)


def with_prior(*trials, prior=PRIOR, goal=MEMORY, **changes):
    return record_of(numbered(*trials), prior=prior, goal=goal, **changes)


class TestSearches:
    @pytest.mark.slow
    def test_random_laws(self):
        """What is promised: at most 0.1 refusals and 3.5 trials of the search on average."""
        trials = refused = 0
        for seed in range(NUM_LAWS):
            laws = MemoryLaws(seed)
            result = laws.machine(prior=True).search(MEMORY)
            assert result.finished
            trials += len(result.tried)
            refused += result.num_refused
            if result.size is not None:
                assert laws.memory(result.size) <= (1 - MARGIN) * laws.capacity
        assert trials / NUM_LAWS <= 3.5
        assert refused / NUM_LAWS <= 0.1

    def test_it_is_the_prior_that_saves_them(self):
        laws = [MemoryLaws(seed) for seed in range(40)]
        with_it, without = (
            [each.machine(prior=prior).search(MEMORY) for each in laws] for prior in (True, False)
        )
        trials = [sum(len(result.tried) for result in some) for some in (with_it, without)]
        refused = [sum(result.num_refused for result in some) for some in (with_it, without)]
        assert trials[0] < 0.65 * trials[1]
        assert refused[0] < refused[1]

    @pytest.mark.parametrize("factor", [0.0001, 0.3, 3.0, 1000.0])
    def test_a_law_that_is_wrong_by_far_does_no_great_harm(self, factor):
        """It says nothing of this device; readings and refusals decide, as they would alone."""
        for seed in range(30):
            laws = MemoryLaws(seed)
            laws.bias = factor
            machine = laws.machine(prior=True)
            result = machine.search(MEMORY)
            laws_hold(machine, result)
            assert len(result.tried) <= 14
            if result.size is not None:
                assert laws.memory(result.size) <= (1 - MARGIN) * laws.capacity

    @pytest.mark.parametrize("outcome", ["no_step", "hung", "wrong_size", "crashed"])
    def test_it_knows_nothing_of_another_failure(self, outcome):
        """Just below each size that failed the law puts the next that would fit."""
        result = Machine(
            memory=straight,
            prior=PRIOR,
            discovery=discovery_of(128, num_samples=10**6),
            outcome=lambda request, _: outcome if request.batch_size > 1000 else None,
        ).search(MEMORY)
        assert result.finished
        assert len(result.tried) <= 10
        assert result.size > 500

    def test_below_a_refusal_it_knows_where(self):
        record = with_prior(failure_of(1000), capacity=8 * GIB, discovery=discovery_of(1000))
        assert 300 < next_trial(record).batch_size < 700

    @pytest.mark.parametrize("asked", [{}, {"keep_effective_batch": True}, {"multiple_of": 32}])
    def test_what_was_refused_is_not_asked_for_again(self, asked):
        """The law may put what fits just below it, and a round size is near."""
        goal = msgspec.structs.replace(MEMORY, **asked)
        for hundredths in range(200, 260):
            capacity = hundredths * GIB // 100
            refused = with_prior(
                failure_of(64), capacity=capacity, goal=goal, discovery=discovery_of(64)
            )
            assert next_trial(refused).batch_size < 64

    def test_the_same_record_gives_the_same_answer_after_it_was_stored(self):
        record = with_prior(trial_of(32, peak=2 * GIB), capacity=16 * GIB)
        stored = msgspec.json.decode(msgspec.json.encode(record), type=type(record))
        assert stored == record
        assert next_trial(stored) == next_trial(record)

    def test_the_prior_is_not_asked_for_another_goal(self):
        """Growth by at most x4 is guarded by what was measured; the law has no say in it."""
        record = with_prior(discovery=discovery_of(native=32), goal=Goal())
        assert next_trial(record) == next_trial(msgspec.structs.replace(record, prior=None))


class TestPlan:
    def sizes(self, memory, own=32, target=40 * GIB, top=10**6):
        peaks = {}
        while (size := next_fake_size(peaks, own, target, top)) is not None:
            assert size not in peaks
            peaks[size] = int(memory(size))
        return list(peaks)

    def test_from_the_floor_to_where_the_target_is_met(self):
        sizes = self.sizes(straight)
        assert sizes[:2] == [2, 32]
        assert straight(sizes[-1]) >= 40 * GIB
        assert sizes == sorted(sizes)
        assert len(sizes) <= 8

    def test_past_a_floor_until_a_line_is_seen(self):
        def floored(size):
            return max(39 * GIB, straight(size))

        law = law_of({size: int(floored(size)) for size in self.sizes(floored)})
        assert isinstance(law, StepLaw)
        assert law.peak_bytes(1) == 39 * GIB
        assert law.largest_batch(40 * GIB) == pytest.approx(3900, rel=0.01)

    def test_memory_that_never_grows_ends_it(self):
        assert len(self.sizes(lambda _: GIB)) == MAX_FAKE_SIZES


class TestCorrection:
    @pytest.mark.parametrize(
        ("sizes", "ratio"),
        [((32,), 1.0), ((32, 512), 1.2)],
        ids=["one tells what is beside tensors", "two tell the slope too"],
    )
    def test_what_readings_tell(self, sizes, ratio):
        answer = corrected(LAW, {size: int(ratio * straight(size)) + GIB for size in sizes})
        assert answer.ratio == pytest.approx(ratio)
        assert answer.offset_bytes == pytest.approx(GIB)
        assert answer.peak_bytes(64) == pytest.approx(ratio * straight(64) + GIB)
        assert answer.residual is None

    def test_two_that_lie_close_together_tell_no_slope(self):
        assert corrected(LAW, {32: 2 * GIB, 33: 3 * GIB}).ratio == 1.0

    def test_a_third_tells_how_far_off_it_is(self):
        peaks = {size: straight(size) for size in (32, 256, 512)}
        assert corrected(LAW, peaks).residual == pytest.approx(0, abs=1e-6)
        peaks[256] = int(1.05 * peaks[256])
        assert corrected(LAW, peaks).residual == pytest.approx(0.05 / 1.05, rel=0.01)

    def test_each_prediction_is_of_what_was_known_by_then(self):
        read = trial_of(32, peak=straight(32) + GIB)
        records = with_prior(), with_prior(read), with_prior(read, prior=None)
        predicted = [predicted_bytes(Measurements.of(record), 512) for record in records]
        assert predicted == [straight(512), straight(512) + GIB, None]


class TestCare:
    def test_resident_memory_may_grow_faster_than_tensors(self):
        device, cpu = (
            prior.next_size(32, straight(32), 8 * GIB)
            for prior in (Prior(LAW), Prior(LAW, RESIDENT))
        )
        assert cpu < device < LAW.largest_batch(8 * GIB)

    def test_a_first_reading_that_tensors_do_not_explain_sets_the_old_pace(self):
        """Most of it may grow with the batch for all that is known."""
        assert next_trial(with_prior(trial_of(8, peak=20 * GIB))).batch_size <= 8 * 8

    def test_a_law_that_readings_contradict_is_dropped(self):
        trials = trial_of(8, peak=2 * GIB), trial_of(64, peak=20 * GIB)
        assert next_trial(with_prior(*trials)) == next_trial(with_prior(*trials, prior=None))

    @pytest.mark.parametrize(
        ("prior", "why"),
        [
            (MemoryPrior(reason="a shape depends on values"), "a shape depends on values"),
            (MemoryPrior(peaks={2: GIB, 8: GIB}), "fewer than two sizes"),
        ],
    )
    def test_without_a_law_it_is_said_and_the_search_is_as_before(self, prior, why):
        record = with_prior(trial_of(8, peak=2 * GIB), prior=prior)
        assert prior_of(Measurements.of(record)) is None
        advice = advise(record)
        assert advice.prior_law is None
        assert why in advice.unavailable["prior_law"]
        assert next_trial(record) == next_trial(msgspec.structs.replace(record, prior=None))


def test_the_answer_states_the_law_its_corrections_and_the_limit():
    trials = [trial_of(size, peak=straight(size) + GIB) for size in (32, 512)]
    law = advise(with_prior(*trials, capacity=10 * GIB)).prior_law
    assert law.sizes == tuple(PEAKS)
    assert law.corrected_by == (32, 512)
    assert law.offset_bytes == pytest.approx(GIB, rel=1e-6)
    largest = law.largest_estimate
    assert straight(largest) + GIB <= 9.5 * GIB < straight(largest + 2) + GIB
    assert advise(record_of(trials)).prior_law is None
