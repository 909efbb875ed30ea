"""Real tokens per second decide where the batches of a few steps are not those of an epoch."""

import msgspec
import pytest
from batchadvisor.advisor.advise import advise
from batchadvisor.advisor.measured.measurements import Measurements
from batchadvisor.advisor.measured.token_pace import (
    at_token_pace,
    rated_by_tokens,
    tokens_a_sample,
)
from batchadvisor.advisor.search.turns_plan import more_rounds, next_comparison
from batchadvisor.records import Tokens, Turns
from batchadvisor.spread import rate_of_sums

from ..on_paper import CPU, discovery_of, numbered, record_of, trial_of

STEPS = 12


def counted(batch_size, seconds, tokens_each, evidence="attention mask"):
    """A trial whose steps took so long and whose samples had so many tokens, give or take 10%."""
    times = [seconds * (0.9 + 0.2 * (step % 2)) for step in range(STEPS)]
    real = [batch_size * tokens_each * (0.9 + 0.2 * (step % 2)) for step in range(STEPS)]
    trial = trial_of(batch_size, seconds)
    return msgspec.structs.replace(
        trial,
        tokens=Tokens(
            num_batches=STEPS,
            evidence=evidence,
            real_per_step=sum(real) / STEPS,
            positions_per_step=sum(real) / STEPS,
            padding_share=0.0,
            real_per_s=rate_of_sums(real, times),
        ),
    )


def grouped(*trials, sampler="LengthGroupedSampler"):
    record = record_of(numbered(*trials), discovery=discovery_of(native=32))
    loader = msgspec.structs.replace(record.discovery.loaders[0], sampler=sampler)
    discovery = msgspec.structs.replace(record.discovery, loaders=(loader,))
    return msgspec.structs.replace(record, discovery=discovery)


# By luck batch 32 met short samples: more samples per second, and fewer tokens.
LUCKY = counted(32, 0.032, 10), counted(64, 0.128, 100)


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
    from batchadvisor.reports.builder.charts.sweep import throughput
    from batchadvisor.reports.builder.sections.tokens import token_facts
    from batchadvisor.reports.builder.sizes.rows import size_rows

    record = grouped(*LUCKY)
    advice = advise(record)
    assert advice.by_tokens
    ((_, text),) = token_facts(size_rows(record, advice), by_tokens=advice.by_tokens)
    assert "Real tokens per second decide" in text
    assert "real tokens/s" in advice.headline
    assert "the real tokens per second of the script's own 32" in advice.reason
    assert "samples per second" not in advice.reason
    assert "within 5% of the best throughput in real tokens" in advice.reason
    chart = throughput(record, advice, size_rows(record, advice))
    assert chart is not None
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


def test_without_a_proof_of_padding_samples_decide():
    trials = [counted(size, 0.1, 10, evidence="run of one id") for size in (32, 64)]
    record = grouped(*trials)
    assert not rated_by_tokens(record)
    assert advise(record).sizes[0].real_tokens_per_s is None


def test_a_trial_that_told_nothing_leaves_samples_to_decide():
    record = grouped(LUCKY[0], trial_of(64, 0.1))
    assert not rated_by_tokens(record)


def test_comparisons_in_turn_count_tokens_too():
    turns = Turns(sizes=(32, 64), step_s=((0.1, 0.1),) * 6, real=((100.0, 50.0),) * 6)
    trial = msgspec.structs.replace(
        trial_of(64, 0.1), kind="turns", turns=turns, samples_per_s=None, step_s=None
    )
    measurements = Measurements.of(grouped(*LUCKY, trial))
    (at_pace,) = measurements.turns
    first, second = at_pace.step_s[0]
    assert (32 / first) / (64 / second) == pytest.approx(2.0)
    again = at_token_pace(measurements.record)  # some ask of a record that is at this pace
    assert again.trials[-1].turns.step_s[0] == pytest.approx(at_pace.step_s[0])


def test_comparisons_that_counted_no_tokens_say_nothing_and_are_not_made_again():
    turns = Turns(sizes=(32, 64), step_s=((0.1, 0.1),) * 6)
    untold = msgspec.structs.replace(
        trial_of(64, 0.1), kind="turns", turns=turns, samples_per_s=None, step_s=None
    )
    alike = counted(32, 0.064, 100), counted(64, 0.128, 100)
    record = msgspec.structs.replace(grouped(*alike, untold), device=CPU)
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
