"""The pace of an epoch from the few steps of a trial, and smaller sizes that pad less."""

import msgspec
import pytest
from batchadvisor.advisor.advise import advise
from batchadvisor.advisor.explain.token_findings import padding
from batchadvisor.advisor.measured.measurements import Measurements
from batchadvisor.advisor.measured.speeds import OF_A_CPU, speeds_of
from batchadvisor.advisor.measured.usual_steps import foreseen, pooled, usual_steps
from batchadvisor.advisor.search.less_padding import next_smaller
from batchadvisor.records import Goal, StepQuality, TokenLengths, Turns
from batchadvisor.reports.builder.sections.tokens import token_facts
from batchadvisor.reports.builder.sizes.rows import size_rows

from ..on_paper import CPU, discovery_of, numbered, record_of, trial_of
from .texts import FIXED_S, POSITION_S, RNG, TEXTS, batches_of, counted, seconds_of, trial_at


@pytest.fixture(autouse=True)
def _same_numbers():
    """Each test draws the same batches, whichever ran before."""
    RNG.seed(4)


def real_rate(size):
    """Real tokens per second of many batches drawn at random."""
    many = batches_of(size, 4000)
    return sum(map(sum, many)) / sum(map(seconds_of, many))


def texts(*trials, native=8, goal=None, sampler="RandomSampler"):
    discovery = discovery_of(native=native, num_samples=len(TEXTS))
    loader = msgspec.structs.replace(discovery.loaders[0], sampler=sampler)
    discovery = msgspec.structs.replace(discovery, loaders=(loader,))
    record = record_of(numbered(*trials), discovery=discovery, goal=goal)
    return msgspec.structs.replace(record, device=CPU)


class TestAtRandom:
    def test_short_batches_by_luck_do_not_make_a_size_faster(self):
        """Of its batches the trial of 16 met the less padded; that of 4 met what comes."""
        many = sorted(batches_of(16, 60), key=lambda batch: len(batch) * max(batch) / sum(batch))
        record = texts(trial_at(4, batches_of(4, 600)), trial_at(16, many[:40]))
        measurements = Measurements.of(record)
        assert measurements.rated_by_tokens
        lucky = record.trials[1].tokens.real_per_s.median
        mean = measurements.tokens_a_sample
        rates = {size: trial.samples_per_s for size, trial in measurements.best_timed.items()}
        truth = real_rate(16) / real_rate(4)
        assert rates[16].median / rates[4].median == pytest.approx(truth, rel=0.1)
        assert lucky > 1.1 * real_rate(16)
        assert rates[4].median * mean == pytest.approx(real_rate(4), rel=0.1)

    def test_what_other_sizes_would_reach(self):
        record = texts(trial_at(8, batches_of(8, 400)))
        rates = foreseen(record, (2, 8, 64))
        truth = {size: real_rate(size) for size in rates}
        for size in (2, 64):
            assert rates[size] / rates[8] == pytest.approx(truth[size] / truth[8], rel=0.05)

    def test_the_padding_of_an_epoch_is_not_that_of_a_few_batches(self):
        """Of its batches the trial of 16 met the less padded ones."""
        many = sorted(batches_of(16, 60), key=lambda batch: len(batch) * max(batch) / sum(batch))
        record = texts(trial_at(4, batches_of(4, 600)), trial_at(16, many[:40]))
        sums = counted(batches_of(16, 4000))
        truth = 1 - sums.real / sums.positions
        assert record.trials[1].tokens.padding_share < truth - 0.05
        advice = advise(record)
        assert advice.sizes[1].epoch_padding == pytest.approx(truth, abs=0.02)
        [row] = [row for row in size_rows(record, advice) if row.trial.batch_size == 16]
        assert (row.padding_share, row.padding_of_an_epoch) == (advice.sizes[1].epoch_padding, True)
        [(_, text)] = token_facts([row])
        assert f"{100 * row.padding_share:.0f}% of them padding over an epoch (estimate; " in text
        [finding] = padding(Measurements.of(record), 16)
        share = f"{row.padding_share:.0%} of the positions at batch 16 are padding"
        assert share in finding.message
        assert "(estimate for an epoch; attention mask)" in finding.message

    def test_lengths_of_trials_weigh_what_they_counted(self):
        few = TokenLengths(num_sequences=100, shortest=1, median=1, longest=1, ordered=(1,))
        many = TokenLengths(num_sequences=300, shortest=9, median=9, longest=9, ordered=(9, 9))
        assert pooled([few, many]) == [1] * 250 + [9] * 750


class TestContended:
    def test_what_waiting_hides_stays_open(self):
        """Steps that waited for a core are no proof that a size is slow."""
        trial = trial_at(8, batches_of(8, 200))
        rate = trial.samples_per_s
        rate = msgspec.structs.replace(rate, low=0.9 * rate.median, high=4 * rate.median)
        quality = StepQuality(num_steps=200, num_clean=4, num_disturbed=196, method="low quantile")
        doubtful = msgspec.structs.replace(trial, samples_per_s=rate, quality=quality)
        spreads = [
            Measurements.of(texts(each)).best_timed[8].samples_per_s for each in (trial, doubtful)
        ]
        assert spreads[0].high < 1.2 * spreads[0].median
        assert spreads[1].high == pytest.approx(4 * spreads[1].median)


class TestGrouped:
    def test_all_counted_batches_say_what_a_step_holds(self):
        """The time of a trial is that of its clean steps; what an epoch holds, all of them say."""
        every = batches_of(16, 500, grouped=True)
        trial = trial_at(16, every)
        short = trial_at(16, sorted(every, key=max)[:250])
        tokens = msgspec.structs.replace(short.tokens, counted=trial.tokens.counted)
        record = texts(msgspec.structs.replace(short, tokens=tokens), sampler="Grouped")
        usual = usual_steps(record).steps[16]
        assert usual.real == pytest.approx(trial.tokens.counted.real / 500)
        measurements = Measurements.of(record)
        rate = measurements.best_timed[16].samples_per_s.median * measurements.tokens_a_sample
        assert rate == pytest.approx(trial.tokens.real_per_s.median, rel=0.03)
        assert foreseen(record, (8, 16)) is None
        sums = trial.tokens.counted
        share = Measurements.of(record).epoch_padding[16]
        assert share == pytest.approx(1 - sums.real / sums.positions)

    def test_few_batches_make_the_rate_unsure(self):
        unsure = [
            usual_steps(texts(trial_at(8, batches_of(8, num, grouped=True)))).steps[8].unsure
            for num in (20, 200)
        ]
        assert unsure[0] > 2 * unsure[1] > 0

    def test_an_epoch_that_was_seen_whole_is_sure(self):
        ordered = sorted(TEXTS)
        whole = [ordered[at : at + 8] for at in range(0, len(ordered), 8)]
        usual = usual_steps(texts(trial_at(8, whole), sampler="Grouped"))
        assert usual.steps[8].unsure == 0.0


class TestInTurn:
    @staticmethod
    def turns(rows):
        """Turns at the pace of real tokens; rows of (amount, seconds) for 8 and 16."""
        return Turns(
            sizes=(8, 16),
            step_s=tuple(((8 * a[1] / a[0]), (16 * b[1] / b[0])) for a, b in rows),
            real=tuple((a[0], b[0]) for a, b in rows),
            unsure=(0.0, 0.0),
        )

    @staticmethod
    def speeds(turns):
        trial = trial_of(16, kind="turns", turns=turns, samples_per_s=None)
        return speeds_of(numbered(trial), OF_A_CPU)

    def test_the_few_rounds_with_the_longest_batches_count(self):
        """Three of four rounds of 16 are quick; the fourth takes eight times as long."""
        rows = [((8, 0.1), (16, 0.1 if number % 4 else 0.8)) for number in range(16)]
        speeds = self.speeds(self.turns(rows))
        compared = speeds.compare(16, 8)
        assert compared.median == pytest.approx(2 * 0.1 / 0.275, rel=0.03)
        assert compared.low < 0.8 * compared.median < compared.median < compared.high
        assert speeds.rate(16).median == pytest.approx(16 / 0.275, rel=0.03)
        assert speeds.rate(8).median == pytest.approx(80, rel=0.03)

    def test_drift_that_hits_both_alike_leaves_the_interval_narrow(self):
        rows = [((8, 0.1 * drift), (16, 0.18 * drift)) for drift in (1, 1.4, 0.9, 1.2, 1, 1.3)]
        compared = self.speeds(self.turns(rows)).compare(16, 8)
        assert compared.median == pytest.approx(10 / 9, rel=0.01)
        assert compared.relative_half_width < 0.05

    def test_what_the_mean_batch_may_be_off_by_widens_it(self):
        rows = [((8, 0.1), (16, 0.18))] * 8
        unsure = msgspec.structs.replace(self.turns(rows), unsure=(0.0, 0.1))
        sure = self.speeds(self.turns(rows))
        assert self.speeds(unsure).compare(16, 8).low < 0.97 * sure.compare(16, 8).low


class TestLessPadding:
    def test_a_search_for_speed_goes_down_where_the_law_says_it_may_pay(self):
        record = texts(trial_at(8, batches_of(8, 200)), goal=Goal(kind="throughput"))
        request = next_smaller(Measurements.of(record))
        assert request.batch_size == 4
        assert request.kind == "timed"
        assert "pads less" in request.reason

    def test_not_where_smaller_batches_cost_more_than_padding(self):
        trials = trial_at(1, batches_of(1, 200)), trial_at(2, batches_of(2, 200))
        record = texts(*trials, native=2, goal=Goal(kind="throughput"))
        assert next_smaller(Measurements.of(record)) is None
        only = texts(trials[1], native=2, goal=Goal(kind="throughput"))
        rates = foreseen(only, (1, 2))
        assert rates[1] < 0.95 * rates[2]
        assert next_smaller(Measurements.of(only)) is None

    def test_not_without_padding_nor_below_sizes_that_were_asked_for(self):
        even = [[50] * 8 for _ in range(100)]
        assert next_smaller(Measurements.of(texts(trial_at(8, even)))) is None
        padded = trial_at(8, batches_of(8, 200))
        assert next_smaller(Measurements.of(texts(padded, goal=Goal(sizes=(8, 16))))) is None

    def test_the_answer_says_that_it_pads_less(self):
        trials = trial_at(8, batches_of(8, 300)), trial_at(4, batches_of(4, 300))
        steps = [trial.tokens for trial in trials]
        law = usual_steps(texts(*trials))
        assert law is not None
        turns = Turns(
            sizes=(4, 8),
            step_s=tuple(
                (
                    FIXED_S + POSITION_S * steps[1].positions_per_step,
                    FIXED_S + POSITION_S * steps[0].positions_per_step,
                )
                for _ in range(12)
            ),
            real=((steps[1].real_per_step, steps[0].real_per_step),) * 12,
            positions=((steps[1].positions_per_step, steps[0].positions_per_step),) * 12,
            squares=((steps[1].squares_per_step, steps[0].squares_per_step),) * 12,
        )
        met = msgspec.structs.replace(
            trial_of(8, 0.1), kind="turns", turns=turns, samples_per_s=None, step_s=None
        )
        advice = advise(texts(*trials, met, goal=Goal(kind="throughput")))
        assert advice.recommended.batch_size == 4
        assert "A smaller batch is better here because it pads less" in advice.reason
