"""A clean size next to the best."""

import pytest
from batchadvisor.advisor.advise import advise
from batchadvisor.advisor.choose.clean_size import preferred, worth_of
from batchadvisor.advisor.choose.finalists import best_of, finalists, passed_over
from batchadvisor.advisor.choose.knee import knee, law_of
from batchadvisor.advisor.measured.epoch_end import has_harmful_tail
from batchadvisor.advisor.measured.measurements import Measurements
from batchadvisor.advisor.search.clean_search import next_clean, next_to_knee
from batchadvisor.records import Goal

from ..on_paper import GIB, discovery_of, metered, numbered, record_of, trial_of
from .machine import Machine

SAMPLES = 512 * 40 + 3
"""512 leaves 3 over; 488 and 504 leave more than half a batch."""
DATA = discovery_of(num_samples=SAMPLES)


def sizes_of(*rates, goal="throughput", confirm=(), **changes):
    """A record of these (size, samples per second) pairs."""
    trials = [trial_of(size, size / rate, peak=GIB) for size, rate in rates]
    trials += [
        trial_of(size, size / rate, peak=GIB, purpose="confirm", worker=1) for size, rate in confirm
    ]
    return record_of(numbered(*trials), goal=Goal(kind=goal), discovery=DATA, **changes)


def test_the_example():
    assert has_harmful_tail(DATA, 512)
    assert SAMPLES % 512 == 3
    assert not has_harmful_tail(DATA, 488)


class TestPreferred:
    def test_at_little_cost(self):
        record = sizes_of((8, 100), (64, 400), (488, 985), (512, 1000))
        assert (
            best_of(Measurements.of(record)),
            finalists(Measurements.of(record)),
            passed_over(Measurements.of(record)),
        ) == (512, (488, 512), 512)
        advice = advise(record)
        assert advice.recommended.batch_size == 488
        assert advice.reason.startswith(
            "Next to 512, the fastest size that ran, and without its harmful last batch"
        )
        assert advice.fastest.batch_size == 512

    @pytest.mark.parametrize("rate", [975, 500])
    def test_not_beyond_it(self, rate):
        record = sizes_of((64, 400), (488, rate), (512, 1000))
        assert finalists(Measurements.of(record))[0] == 512
        assert passed_over(Measurements.of(record)) is None

    def test_not_far_away(self):
        record = sizes_of((264, 985), (512, 1000))
        assert not has_harmful_tail(DATA, 264)
        assert finalists(Measurements.of(record))[0] == 512

    def test_a_clean_best_stays(self):
        record = sizes_of((480, 999), (488, 1000), (512, 985))
        assert (
            finalists(Measurements.of(record))[0] == best_of(Measurements.of(record)) in {480, 488}
        )

    def test_only_sizes_that_ran(self):
        record = sizes_of((8, 100), (64, 400), (512, 1000))
        assert preferred(Measurements.of(record), 512, worth_of(Measurements.of(record))) == 512
        assert advise(record).recommended.batch_size == 512

    @pytest.mark.parametrize(("rate", "chosen"), [(982, 488), (900, 512)])
    def test_the_confirmation_has_the_last_word(self, rate, chosen):
        """Measured in turn it may turn out to cost more than the search saw."""
        confirm = ((488, rate), (512, 1000), (488, rate), (512, 1000))
        record = sizes_of((8, 100), (64, 400), (488, 985), (512, 1000), confirm=confirm)
        assert advise(record).recommended.batch_size == chosen

    def test_energy(self):
        sure = {"lasted_s": 60.0, "half_width": 0.001}  # so that 1.4 % can be told
        trials = numbered(
            metered(8, 0.1, 300),
            metered(64, 0.2, 300),
            metered(488, 0.493, 100, **sure),
            metered(512, 0.51, 100, **sure),
        )
        record = record_of(trials, goal=Goal(kind="energy"), discovery=DATA)
        assert best_of(Measurements.of(record)) == 512
        assert finalists(Measurements.of(record)) == (488, 512)
        reason = advise(record).reason
        assert "the size with the most samples per joule" in reason
        assert "9.899 instead of 10.04" in reason

    def test_memory(self):
        """The largest has tried sizes near the limit; one of them may be clean."""
        trials = [trial_of(size, peak=size * 2**20) for size in (8, 64, 504, 512)]
        record = record_of(numbered(*trials), goal=Goal(kind="memory"), discovery=DATA)
        assert (finalists(Measurements.of(record)), passed_over(Measurements.of(record))) == (
            (504,),
            512,
        )
        assert advise(record).reason.startswith("Next to 512, the largest size that ran and stays")
        near = [trial for trial in trials if trial.batch_size != 504]
        record = record_of(numbered(*near), goal=Goal(kind="memory"), discovery=DATA)
        assert finalists(Measurements.of(record)) == (512,)


class TestNext:
    def test_the_nearest_that_promises_enough(self):
        record = sizes_of((64, 400), (128, 600), (256, 800), (512, 1000))
        asked = next_clean(Measurements.of(record), 512)
        assert asked.kind == "timed"
        assert not has_harmful_tail(DATA, asked.batch_size)
        assert asked.batch_size % 8 == 0
        assert asked.batch_size < 512  # memory: none larger than what ran

    def test_asked_once(self):
        record = sizes_of((64, 400), (256, 800), (488, 700), (512, 1000))
        assert next_clean(Measurements.of(record), 512) is None

    @pytest.mark.parametrize("kind", ["knee", "memory"])
    def test_other_searches_have_their_own(self, kind):
        assert next_clean(Measurements.of(sizes_of((64, 400), (512, 1000), goal=kind)), 512) is None

    def test_listed_sizes_are_all(self):
        record = record_of(
            numbered(trial_of(512, 0.5)),
            goal=Goal(kind="throughput", sizes=(512,)),
            discovery=DATA,
        )
        assert next_clean(Measurements.of(record), 512) is None


class TestKnee:
    def test_a_clean_size_above_is_taken_and_said(self):
        """152 leaves 25 samples; 192 leaves 129 and is within the tolerance."""
        discovery = discovery_of(native=8, num_samples=15681)
        result = Machine(noise=0.0, discovery=discovery).search()
        assert (15681 % 152, 15681 % result.size) == (25, 129)
        assert "Next to 152" in result.advice.reason
        assert "without its harmful last batch" in result.advice.reason

    def test_a_clean_size_below_is_tried_where_none_above_is_left(self):
        """88 leaves 33 samples, 96 too, 104 and 112 a single one: each less than half a batch."""
        discovery = discovery_of(native=8, num_samples=11649)
        machine = Machine(noise=0.0, discovery=discovery, time_s=lambda size: 0.005 + 0.0005 * size)
        result = machine.search(Goal(max_batch=128))
        (asked,) = (
            request for request in result.requests if request.reason.startswith("next to 88")
        )
        assert asked.batch_size == result.size == 80
        assert not has_harmful_tail(discovery, 80)
        assert has_harmful_tail(discovery, 88)

    def test_so_it_is_where_no_law_of_step_times_is_trusted(self):
        """550 leaves one sample for BatchNorm; sizes of half the best throughput lie close by."""
        sizes = (
            (3, 1_740),
            (24, 13_000),
            (96, 39_000),
            (384, 74_500),
            (456, 79_000),
            (550, 83_200),
        )
        trials = numbered(*(trial_of(size, size / rate) for size, rate in sizes))
        record = record_of(trials, discovery=discovery_of(native=24, num_samples=5501))
        assert isinstance(law_of(Measurements.of(record).searched), str)
        assert knee(Measurements.of(record)) == 550
        asked = next_to_knee(Measurements.of(record))
        assert asked.batch_size == 520
        assert not Measurements.of(record).harmful(520)


@pytest.mark.parametrize("seed", range(8))
def test_a_whole_search(seed):
    """On paper, over data sets of all lengths: finished, run, close to the best."""
    for extra in range(0, 500, 61):
        discovery = discovery_of(num_samples=20_000 + extra + seed)
        result = Machine(discovery=discovery, seed=seed).search(
            Goal(kind="throughput", budget_s=1e9)
        )
        assert result.finished
        ran = {trial.batch_size for trial in result.record.trials if trial.ran}
        assert result.size in ran
        best = best_of(Measurements.of(result.record))
        worth = worth_of(Measurements.of(result.record))
        if result.advice.reason.startswith("Faster in the fresh process"):
            continue  # the fresh process turned it down
        if result.size != best:
            assert has_harmful_tail(discovery, best)
            assert not has_harmful_tail(discovery, result.size)
            assert worth[result.size] >= 0.98 * worth[best]
            assert "harmful last batch" in result.advice.reason
