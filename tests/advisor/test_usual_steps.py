"""The pace of an epoch from the few steps of a trial, in real tokens; sizes that pad less."""

import msgspec
import pytest
from batchadvisor.advisor.advise import advise
from batchadvisor.advisor.explain.token_findings import padding
from batchadvisor.advisor.measured.measurements import Measurements
from batchadvisor.advisor.measured.speeds import OF_A_CPU, speeds_of
from batchadvisor.advisor.measured.token_pace import (
    at_token_pace,
    rated_by_tokens,
    tokens_a_sample,
)
from batchadvisor.advisor.measured.usual_steps import foreseen, pooled, usual_steps
from batchadvisor.advisor.search.knee_search import next_smaller
from batchadvisor.advisor.search.turns_plan import more_rounds, next_comparison
from batchadvisor.records import Goal, StepQuality, TokenLengths, Tokens, Turns
from batchadvisor.reports.builder.charts.sweep import throughput
from batchadvisor.reports.builder.sections.tokens import token_facts
from batchadvisor.reports.builder.sizes.rows import size_rows
from batchadvisor.spread import rate_of_sums

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


def lucky():
    """Of its batches the trial of 16 met the less padded; that of 4 met what comes."""
    many = sorted(batches_of(16, 60), key=lambda batch: len(batch) * max(batch) / sum(batch))
    return texts(trial_at(4, batches_of(4, 600)), trial_at(16, many[:40]))


def texts(*trials, native=8, goal=None, sampler="RandomSampler"):
    discovery = discovery_of(native=native, num_samples=len(TEXTS))
    loader = msgspec.structs.replace(discovery.loaders[0], sampler=sampler)
    discovery = msgspec.structs.replace(discovery, loaders=(loader,))
    record = record_of(numbered(*trials), discovery=discovery, goal=goal)
    return msgspec.structs.replace(record, device=CPU)


class TestAtRandom:
    def test_short_batches_by_luck_do_not_make_a_size_faster(self):
        record = lucky()
        measurements = Measurements.of(record)
        assert measurements.rated_by_tokens
        mean = measurements.tokens_a_sample
        rates = {size: trial.samples_per_s for size, trial in measurements.best_timed.items()}
        truth = real_rate(16) / real_rate(4)
        assert rates[16].median / rates[4].median == pytest.approx(truth, rel=0.1)
        assert record.trials[1].tokens.real_per_s.median > 1.1 * real_rate(16)
        assert rates[4].median * mean == pytest.approx(real_rate(4), rel=0.1)

    def test_what_other_sizes_would_reach(self):
        record = texts(trial_at(8, batches_of(8, 400)))
        rates = foreseen(record, (2, 8, 64))
        truth = {size: real_rate(size) for size in rates}
        for size in (2, 64):
            assert rates[size] / rates[8] == pytest.approx(truth[size] / truth[8], rel=0.05)

    def test_the_padding_of_an_epoch_is_not_that_of_a_few_batches(self):
        record = lucky()
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

    def test_what_waiting_hides_stays_open(self):
        """Steps that waited for a core are no proof that a size is slow."""
        trial = trial_at(8, batches_of(8, 200))
        rate = trial.samples_per_s
        rate = msgspec.structs.replace(rate, low=0.9 * rate.median, high=4 * rate.median)
        quality = StepQuality(num_steps=200, num_clean=4, num_disturbed=196, method="low quantile")
        doubtful = msgspec.structs.replace(trial, samples_per_s=rate, quality=quality)
        clean, open_ = (
            Measurements.of(texts(each)).best_timed[8].samples_per_s for each in (trial, doubtful)
        )
        assert clean.high < 1.2 * clean.median
        assert open_.high == pytest.approx(4 * open_.median)


class TestGrouped:
    def test_all_counted_batches_say_what_a_step_holds(self):
        """The time of a trial is that of its clean steps; what an epoch holds, all of them say."""
        every = batches_of(16, 500, grouped=True)
        trial = trial_at(16, every)
        short = trial_at(16, sorted(every, key=max)[:250])
        tokens = msgspec.structs.replace(short.tokens, counted=trial.tokens.counted)
        record = texts(msgspec.structs.replace(short, tokens=tokens), sampler="Grouped")
        sums = trial.tokens.counted
        assert usual_steps(record).steps[16].real == pytest.approx(sums.real / 500)
        measurements = Measurements.of(record)
        rate = measurements.best_timed[16].samples_per_s.median * measurements.tokens_a_sample
        assert rate == pytest.approx(trial.tokens.real_per_s.median, rel=0.03)
        assert foreseen(record, (8, 16)) is None
        share = measurements.epoch_padding[16]
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
    def speeds(rows, unsure=(0.0, 0.0)):
        """Turns at the pace of real tokens; rows of (amount, seconds) for 8 and 16."""
        turns = Turns(
            sizes=(8, 16),
            step_s=tuple(((8 * a[1] / a[0]), (16 * b[1] / b[0])) for a, b in rows),
            real=tuple((a[0], b[0]) for a, b in rows),
            unsure=unsure,
        )
        return speeds_of(numbered(trial_of(16, kind="turns", turns=turns)), OF_A_CPU)

    def test_the_few_rounds_with_the_longest_batches_count(self):
        """Three of four rounds of 16 are quick; the fourth takes eight times as long."""
        rows = [((8, 0.1), (16, 0.1 if number % 4 else 0.8)) for number in range(16)]
        speeds = self.speeds(rows)
        compared = speeds.compare(16, 8)
        assert compared.median == pytest.approx(2 * 0.1 / 0.275, rel=0.03)
        assert compared.low < 0.8 * compared.median < compared.median < compared.high
        assert speeds.rate(16).median == pytest.approx(16 / 0.275, rel=0.03)
        assert speeds.rate(8).median == pytest.approx(80, rel=0.03)

    def test_drift_that_hits_both_alike_leaves_the_interval_narrow(self):
        rows = [((8, 0.1 * drift), (16, 0.18 * drift)) for drift in (1, 1.4, 0.9, 1.2, 1, 1.3)]
        compared = self.speeds(rows).compare(16, 8)
        assert compared.median == pytest.approx(10 / 9, rel=0.01)
        assert compared.relative_half_width < 0.05

    def test_what_the_mean_batch_may_be_off_by_widens_it(self):
        rows = [((8, 0.1), (16, 0.18))] * 8
        unsure, sure = self.speeds(rows, unsure=(0.0, 0.1)), self.speeds(rows)
        assert unsure.compare(16, 8).low < 0.97 * sure.compare(16, 8).low


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
        trials = [trial_at(size, batches_of(size, 300)) for size in (4, 8)]

        def rounds(value):
            return (tuple(value(trial.tokens) for trial in trials),) * 12

        turns = Turns(
            sizes=(4, 8),
            step_s=rounds(lambda step: FIXED_S + POSITION_S * step.positions_per_step),
            real=rounds(lambda step: step.real_per_step),
            positions=rounds(lambda step: step.positions_per_step),
            squares=rounds(lambda step: step.squares_per_step),
        )
        met = trial_of(8, kind="turns", turns=turns)
        advice = advise(texts(*trials, met, goal=Goal(kind="throughput")))
        assert advice.recommended.batch_size == 4
        assert "A smaller batch is better here because it pads less" in advice.reason


# records that lack the steps: real tokens per second of each trial ----------------------------


def rated(batch_size, seconds, tokens_each, evidence="attention mask"):
    """A trial whose steps took so long and whose samples had so many tokens, give or take 10%."""
    parts = [0.9, 1.1] * 6
    real = [batch_size * tokens_each * part for part in parts]
    tokens = Tokens(
        num_batches=len(parts),
        evidence=evidence,
        real_per_step=batch_size * tokens_each,
        positions_per_step=batch_size * tokens_each,
        padding_share=0.0,
        real_per_s=rate_of_sums(real, [seconds * part for part in parts]),
    )
    return trial_of(batch_size, seconds, tokens=tokens)


def in_turn(**counts):
    turns = Turns(sizes=(32, 64), step_s=((0.1, 0.1),) * 6, **counts)
    return trial_of(64, kind="turns", turns=turns)


def grouped(*trials, sampler="LengthGroupedSampler"):
    record = record_of(numbered(*trials), discovery=discovery_of(native=32))
    loader = msgspec.structs.replace(record.discovery.loaders[0], sampler=sampler)
    discovery = msgspec.structs.replace(record.discovery, loaders=(loader,))
    return msgspec.structs.replace(record, discovery=discovery)


# By luck batch 32 met short samples: more samples per second, and fewer tokens.
LUCKY = rated(32, 0.032, 10), rated(64, 0.128, 100)


def test_where_batches_are_grouped_tokens_decide():
    record = grouped(*LUCKY)
    assert rated_by_tokens(record)
    rates = {
        size: trial.samples_per_s.median
        for size, trial in Measurements.of(record).best_timed.items()
    }
    assert rates[64] / rates[32] == pytest.approx(100 * 500 / (10 * 1000))
    mean = tokens_a_sample(record.trials)
    assert mean == pytest.approx((32 * 10 + 64 * 100) / 96)
    assert rates[32] * mean == pytest.approx(10_000)


def test_that_tokens_decide_is_said():
    record = grouped(*LUCKY)
    advice = advise(record)
    assert advice.by_tokens
    ((_, text),) = token_facts(size_rows(record, advice), by_tokens=advice.by_tokens)
    assert "Real tokens per second decide" in text
    assert "real tokens/s" in advice.headline
    assert "the real tokens per second of the script's own 32" in advice.reason
    assert "samples per second" not in advice.reason
    chart = throughput(record, advice, size_rows(record, advice))
    assert chart.unit == "real tokens/s"
    assert chart.marks[0].label == "use 64"
    assert chart.series[0].values[0] == pytest.approx(10_000)


def test_where_samples_are_drawn_at_random_their_number_decides():
    record = grouped(*LUCKY, sampler="RandomSampler")
    assert not rated_by_tokens(record)
    assert at_token_pace(record) is record
    sizes = {choice.batch_size: choice for choice in advise(record).sizes}
    # The luck of one trial is in neither: one factor for all.
    factors = {
        size: choice.real_tokens_per_s.median / choice.samples_per_s.median
        for size, choice in sizes.items()
    }
    assert (
        factors[32] == pytest.approx(factors[64]) == pytest.approx(tokens_a_sample(record.trials))
    )


@pytest.mark.parametrize("other", [rated(64, 0.1, 10, evidence="run of one id"), trial_of(64, 0.1)])
def test_without_a_proof_of_padding_samples_decide(other):
    record = grouped(LUCKY[0], other)
    assert not rated_by_tokens(record)
    assert advise(record).sizes[0].real_tokens_per_s is None


def test_comparisons_in_turn_count_tokens_too():
    measurements = Measurements.of(grouped(*LUCKY, in_turn(real=((100.0, 50.0),) * 6)))
    (at_pace,) = measurements.turns
    first, second = at_pace.step_s[0]
    assert (32 / first) / (64 / second) == pytest.approx(2.0)
    again = at_token_pace(measurements.record)  # some ask of a record that is at this pace
    assert again.trials[-1].turns.step_s[0] == pytest.approx(at_pace.step_s[0])


def test_comparisons_that_counted_no_tokens_say_nothing_and_are_not_made_again():
    alike = rated(32, 0.064, 100), rated(64, 0.128, 100)
    record = msgspec.structs.replace(grouped(*alike, in_turn()), device=CPU)
    measurements = Measurements.of(record)
    assert measurements.speeds.num_rounds(32, 64) == 0
    assert measurements.took_turns(32)
    assert next_comparison(measurements) is None
    assert more_rounds(measurements, (32, 64), 32, 64, 0.01) is None
    before = Measurements.of(msgspec.structs.replace(record, trials=record.trials[:2]))
    assert next_comparison(before) is not None


def test_the_interval_has_what_steps_differ_by_beyond_their_tokens():
    even = rate_of_sums([10, 20, 30, 40], [1.0, 2.0, 3.0, 4.0])
    assert even.low == even.high == 10
    uneven = rate_of_sums([10, 20, 30, 40], [4.0, 1.0, 2.0, 3.0])
    assert uneven.low < 10 < uneven.high
