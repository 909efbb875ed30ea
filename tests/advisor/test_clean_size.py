"""A clean size next to the best."""

import pytest
from batchadvisor.advisor.advise import advise
from batchadvisor.advisor.choose.clean_size import worth_of
from batchadvisor.advisor.choose.finalists import best_of, finalists, passed_over
from batchadvisor.advisor.choose.knee import knee, law_of
from batchadvisor.advisor.measured.epoch_end import has_harmful_tail
from batchadvisor.advisor.measured.measurements import Measurements
from batchadvisor.advisor.search.clean_search import next_clean, next_to_knee
from batchadvisor.records import Goal

from ..on_paper import discovery_of, numbered, record_of, trial_of
from .decisions import OF_THE_GOAL, SHORT_LAST_BATCH, of
from .machine import Machine


def measured(*rates, kind="throughput", confirm=()):
    """Measurements of these (size, samples per second) pairs."""
    trials = [trial_of(size, size / rate) for size, rate in rates]
    trials += [trial_of(size, size / rate, purpose="confirm", worker=1) for size, rate in confirm]
    return Measurements.of(of(*trials, kind=kind, discovery=SHORT_LAST_BATCH))


class TestPreferred:
    @pytest.mark.parametrize(
        ("rule", "best", "sizes", "said"),
        [
            ("next to the fastest", 512, (488, 512), "512, the fastest size that ran, and without"),
            ("next to the thriftiest", 512, (488, 512), "9.899 instead of 10.04"),
            ("next to the largest", 512, (504,), "512, the largest size that ran and stays"),
        ],
    )
    def test_at_little_cost(self, rule, best, sizes, said):
        record = OF_THE_GOAL[rule]
        measurements = Measurements.of(record)
        assert (best_of(measurements), passed_over(measurements)) == (best, best)
        assert finalists(measurements) == sizes
        advice = advise(record)
        assert advice.recommended.batch_size == sizes[0]
        assert said in advice.reason

    @pytest.mark.parametrize(
        "rates",
        [
            [(64, 400), (488, 975), (512, 1000)],
            [(264, 985), (512, 1000)],
            [(480, 999), (488, 1000), (512, 985)],
            [(8, 100), (64, 400), (512, 1000)],
        ],
        ids=["it costs too much", "it is far away", "the best is clean", "no clean one ran"],
    )
    def test_the_best_stays(self, rates):
        measurements = measured(*rates)
        assert finalists(measurements)[0] == best_of(measurements)
        assert passed_over(measurements) is None

    @pytest.mark.parametrize(("rate", "chosen"), [(982, 488), (900, 512)])
    def test_the_confirmation_has_the_last_word(self, rate, chosen):
        """Measured in turn it may turn out to cost more than the search saw."""
        confirm = [(488, rate), (512, 1000)] * 2
        measurements = measured((8, 100), (64, 400), (488, 985), (512, 1000), confirm=confirm)
        assert advise(measurements.record).recommended.batch_size == chosen


class TestNext:
    def test_the_nearest_that_promises_enough(self):
        asked = next_clean(measured((64, 400), (128, 600), (256, 800), (512, 1000)), 512)
        assert asked.kind == "timed"
        assert not has_harmful_tail(SHORT_LAST_BATCH, asked.batch_size)
        assert asked.batch_size % 8 == 0
        assert asked.batch_size < 512  # memory: none larger than what ran

    def test_asked_once(self):
        assert next_clean(measured((64, 400), (256, 800), (488, 700), (512, 1000)), 512) is None

    @pytest.mark.parametrize(
        "goal", [Goal(), Goal(kind="memory"), Goal(kind="throughput", sizes=(512,))]
    )
    def test_other_searches_have_their_own_and_listed_sizes_are_all(self, goal):
        record = of(trial_of(64, 0.16), trial_of(512, 0.5), goal=goal, discovery=SHORT_LAST_BATCH)
        assert next_clean(Measurements.of(record), 512) is None


class TestKnee:
    def test_a_clean_size_above_is_taken_and_said(self):
        """152 leaves 25 samples; 192 leaves 129 and is within the tolerance."""
        result = Machine(noise=0.0, discovery=discovery_of(num_samples=15681)).search()
        assert (15681 % 152, 15681 % result.size) == (25, 129)
        assert "Next to 152" in result.advice.reason
        assert "without its harmful last batch" in result.advice.reason

    def test_a_clean_size_below_is_tried_where_none_above_is_left(self):
        """88 leaves 33 samples, 96 too, 104 and 112 a single one: each less than half a batch."""
        machine = Machine(noise=0.0, discovery=discovery_of(num_samples=11649))
        result = machine.search(Goal(max_batch=128))
        asked = [each for each in result.requests if each.reason.startswith("next to 88")]
        assert [request.batch_size for request in asked] == [result.size] == [80]

    def test_so_it_is_where_no_law_of_step_times_is_trusted(self):
        """550 leaves one sample for BatchNorm; sizes of half the best throughput lie close by."""
        sizes = {3: 1_740, 24: 13_000, 96: 39_000, 384: 74_500, 456: 79_000, 550: 83_200}
        trials = numbered(*(trial_of(size, size / rate) for size, rate in sizes.items()))
        measurements = Measurements.of(
            record_of(trials, discovery=discovery_of(native=24, num_samples=5501))
        )
        assert isinstance(law_of(measurements.searched), str)
        assert knee(measurements) == 550
        assert next_to_knee(measurements).batch_size == 520
        assert not measurements.harmful(520)


@pytest.mark.parametrize("seed", range(8))
def test_a_whole_search(seed):
    """On paper, over data sets of all lengths: finished, run, close to the best."""
    for extra in range(0, 500, 61):
        discovery = discovery_of(num_samples=20_000 + extra + seed)
        result = Machine(discovery=discovery, seed=seed).search(
            Goal(kind="throughput", budget_s=1e9)
        )
        assert result.finished
        assert result.size in {trial.batch_size for trial in result.record.trials if trial.ran}
        measurements = Measurements.of(result.record)
        best, worth = best_of(measurements), worth_of(measurements)
        if result.advice.reason.startswith("Faster in the fresh process"):
            continue  # the fresh process turned it down
        if result.size != best:
            assert has_harmful_tail(discovery, best)
            assert not has_harmful_tail(discovery, result.size)
            assert worth[result.size] >= 0.98 * worth[best]
            assert "harmful last batch" in result.advice.reason
