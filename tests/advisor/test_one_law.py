"""The search for memory and `estimate` read the same law from the same steps on fake tensors."""

import random

import pytest
from batchadvisor.advisor.advise import advise
from batchadvisor.advisor.gpu_memory.caching_allocator import LEAST_CONTEXT_BYTES
from batchadvisor.advisor.measured.step_law import (
    StepLaw,
    floor_of,
    law_of,
    law_of_trials,
    passes_of,
)
from batchadvisor.advisor.search.prior_plan import next_fake_size
from batchadvisor.features.estimate.fit.forecast import forecast, next_size
from batchadvisor.records import FakeTrial, Goal, MemoryPrior, Variant

from ..on_paper import GIB, discovery_of, record_of

MIB = 1 << 20
MARGIN = 0.05
NUM_SAMPLES = 10**9
SEEDS = range(60)
NO_REQUESTS = ()


def trial_of(size, peak, outside=0, held=0):
    third = held // 3
    return FakeTrial(
        batch_size=size, peak_bytes=peak, outside_bytes=outside, parameter_bytes=third,
        gradient_bytes=third, optimizer_bytes=third, input_bytes=0,
    )  # fmt: skip


def estimated(trials, memory_bytes, asked=None):
    """What `estimate` says of a GPU with so much memory beside CUDA itself."""
    asked = asked or [NO_REQUESTS] * len(trials)
    return forecast(Variant(), trials, asked, [("A", memory_bytes + LEAST_CONTEXT_BYTES)])


class Script:
    """A step whose peak lies in the optimizer or in the passes over the batch.

    Tensors are whole numbers of 512 bytes, as torch's allocator rounds them.

    Args:
        rough: their sizes jump by up to a thousandth of the peak as well.
        early: at small sizes the peak lies elsewhere in the passes, on a line that rises slower.
    """

    def __init__(self, seed, *, rough=False, early=False):
        draw = random.Random(seed)
        self.held = 3 * draw.randint(1, 4000) * MIB
        self.update = draw.choice([0, draw.randint(0, self.held)])
        self.sample = int(2 ** draw.uniform(12, 27))
        self.slower = self.sample * draw.uniform(0.05, 0.8) if early else 0
        self.temporary = draw.randint(0, self.held // 2) if early else 0
        self.own = draw.choice([1, 2, 8, 32, 256])
        self.capacity = self.held + self.update + draw.randint(1, 100) * GIB
        self._rough = draw.uniform(0, 0.001) if rough else 0.0

    def line(self, size):
        jump = 1 + self._rough * random.Random(size).uniform(-1, 1)
        return round(jump * (self.held + -(-self.sample * size // 512) * 512))

    def trial(self, size):
        passes = max(self.line(size), int(self.held + self.temporary + self.slower * size))
        return trial_of(size, max(passes, self.held + self.update), passes, self.held)

    def by_estimate(self):
        """The steps that `estimate` makes for the GPU that has the memory."""
        trials = []
        memory = self.capacity + LEAST_CONTEXT_BYTES
        while (size := next_size(trials, self.own, memory, None)) is not None:
            trials.append(self.trial(size))
        return trials

    def by_search(self):
        """Those that the search makes for the same memory."""
        trials, peaks, floor = [], {}, 0
        while (
            size := next_fake_size(peaks, self.own, self.capacity, NUM_SAMPLES, floor)
        ) is not None:
            trials.append(self.trial(size))
            peaks[size] = trials[-1].peak_bytes
            floor = floor_of(trials, peaks)
        return trials


@pytest.mark.parametrize("rough", [False, True])
@pytest.mark.parametrize("steps_of", [Script.by_estimate, Script.by_search])
def test_laws_hold_at_sixteen_times_the_largest_size(steps_of, rough):
    floors = set()
    for seed in SEEDS:
        script = Script(seed, rough=rough)
        trials = steps_of(script)
        law = law_of_trials(trials)
        assert isinstance(law, StepLaw), (seed, law)
        far = 16 * trials[-1].batch_size
        assert law.peak_bytes(far) == pytest.approx(script.trial(far).peak_bytes, rel=0.01), seed
        assert law.peak_bytes(1) >= script.held
        smallest = trials[0].batch_size
        floors.add(law.floor_bytes > 1.001 * (law.fixed_bytes + law.sample_bytes * smallest))
    assert floors == {True, False}  # some laws have a floor above the line, some none


@pytest.mark.parametrize("steps_of", [Script.by_estimate, Script.by_search])
def test_a_third_place_of_the_peak_leaves_no_law_or_one_that_is_too_low(steps_of):
    num_laws = 0
    for seed in SEEDS:
        script = Script(seed, early=True)
        trials = steps_of(script)
        law = law_of_trials(trials)
        if isinstance(law, StepLaw):
            num_laws += 1
            far = 16 * trials[-1].batch_size
            assert law.peak_bytes(far) <= 1.001 * script.trial(far).peak_bytes
    assert 5 < num_laws < len(SEEDS)


def test_one_size_that_fills_the_largest_gpu_is_not_the_only_one():
    trials = []
    while (size := next_size(trials, 2, GIB, None)) is not None:
        trials.append(Script(0).trial(size))
    assert [trial.batch_size for trial in trials] == [2, 8]
    assert estimated(trials, GIB - LEAST_CONTEXT_BYTES).gpus[0].high == 0


def test_both_find_the_same_largest_size():
    """To one sample: the search by the law, `estimate` between the sizes that it looked at."""
    for seed in SEEDS:
        script = Script(seed)
        target = script.capacity
        answer = estimated(script.by_estimate(), target)
        searched = script.by_search()
        peaks = {trial.batch_size: trial.peak_bytes for trial in searched}
        law = law_of(peaks, floor_of(searched, peaks), passes_of(searched))
        by_peaks = law_of(peaks, floor_of(searched, peaks))  # all that an allocator's segments tell
        assert abs(by_peaks.largest_batch(target) - law.largest_batch(target)) <= 1, seed
        assert answer.gpus[0].is_bounded
        assert abs(answer.gpus[0].high - law.largest_batch(target)) <= 1, seed
        assert answer.fixed_bytes == pytest.approx(law.fixed_bytes, rel=1e-3, abs=MIB)
        assert answer.sample_bytes == pytest.approx(law.sample_bytes, rel=1e-3)


def test_both_state_the_same_of_the_same_steps():
    """In the answers: of a run whose law no real peak corrects yet, and of an estimate."""
    for seed in SEEDS:
        script = Script(seed)
        trials = script.by_estimate()
        peaks = {trial.batch_size: trial.peak_bytes for trial in trials}
        floor = floor_of(trials, peaks)
        prior = MemoryPrior(peaks=peaks, passes=passes_of(trials), floor_bytes=floor)
        record = record_of(
            [],
            goal=Goal(kind="memory", margin=MARGIN),
            capacity=script.capacity,
            discovery=discovery_of(native=script.own, num_samples=NUM_SAMPLES),
            prior=prior,
        )
        stated = advise(record).prior_law
        answer = estimated(trials, int(script.capacity * (1 - MARGIN)))
        assert (stated.floor_bytes, stated.fixed_bytes, stated.sample_bytes) == (
            answer.floor_bytes,
            answer.fixed_bytes,
            answer.sample_bytes,
        )
        assert abs(stated.largest_estimate - answer.gpus[0].high) <= 1, seed


def test_requests_that_come_in_the_same_order_say_what_the_law_says():
    """They are lines in the batch size themselves, so the law of their peaks is that of theirs."""
    held, update, sample = 4 * GIB, 2 * GIB, 3 * MIB

    def requests(size):
        return (held, sample * size, -2, update, -3)

    sizes = (2, 8, 32, 128, 512, 2048, 8192, 32768)
    asked = [requests(size) for size in sizes]
    trials = []
    for size in sizes:
        passes = held + sample * size
        trials.append(trial_of(size, max(passes, held + update), passes, held))
    law = law_of_trials(trials)
    for memory in range(5, 90, 7):
        memory_bytes = memory * GIB - LEAST_CONTEXT_BYTES
        with_them, without = (estimated(trials, memory_bytes, each) for each in (asked, None))
        largest = law.largest_batch(memory_bytes)
        assert with_them.gpus[0].high == without.gpus[0].high == largest


def test_a_peak_that_bends_has_no_law_and_says_so():
    trials = [trial_of(size, GIB + MIB * size**2) for size in (2, 8, 32, 128)]
    answer = estimated(trials, 8 * GIB - LEAST_CONTEXT_BYTES)
    assert "does not grow evenly" in answer.no_law
    assert (answer.floor_bytes, answer.residual) == (0.0, None)
    assert 32 <= answer.gpus[0].high <= 83  # the straight line of both neighbours: too high at most
