"""What other orders of the same samples would reach: the law, and against orders laid by hand."""

import random
from statistics import fmean

import pytest
from batchadvisor.advisor.explain.token_findings import GROUPED_CODE, HIGH_PADDING, padding
from batchadvisor.advisor.measured.batch_orders import order_estimates
from batchadvisor.advisor.measured.measurements import Measurements
from batchadvisor.advisor.measured.position_law import position_law
from batchadvisor.records import OrderEstimates, TokenLengths, Tokens, TokenStep
from msgspec.structs import replace

from ..on_paper import discovery_of, loader_of, numbered, record_of, trial_of

FIXED, POSITION, SQUARE = 0.004, 2e-6, 3e-9
RNG = random.Random(5)
LENGTHS = [min(400, max(3, int(RNG.lognormvariate(3.5, 0.8)))) for _ in range(20_000)]
SIZE = 16


def seconds(positions, squares):
    return FIXED + POSITION * positions + SQUARE * squares


def step_of(rows, noise=0.0):
    width = max(rows)
    positions, squares = len(rows) * width, len(rows) * width**2
    took = seconds(positions, squares) * (1 + RNG.uniform(-noise, noise))
    return TokenStep(
        step_s=took, positions=positions, real=sum(rows), rows=len(rows), squares=squares
    )


def drawn(size, num, noise=0.0):
    return [step_of(RNG.sample(LENGTHS, size), noise) for _ in range(num)]


def rate(steps):
    return sum(step.real for step in steps) / sum(step.step_s for step in steps)


def share(steps):
    return 1 - sum(step.real for step in steps) / sum(step.positions for step in steps)


def measurements(steps, lengths=LENGTHS, order_options=(), **loader):
    stride = max(1, len(lengths) // 200)
    shown = sorted(lengths)[stride // 2 :: stride]
    tokens = Tokens(
        num_batches=len(steps),
        evidence="attention mask",
        real_per_step=fmean(step.real for step in steps),
        positions_per_step=fmean(step.positions for step in steps),
        padding_share=share(steps),
        steps=tuple(steps),
        lengths=TokenLengths(
            num_sequences=len(lengths),
            shortest=min(lengths),
            median=1,
            longest=max(lengths),
            ordered=tuple(shown),
        ),
    )
    trial = trial_of(SIZE, fmean(step.step_s for step in steps), tokens=tokens)
    discovery = discovery_of(
        native=SIZE,
        loader=loader_of(20_000, batch_size=SIZE, **loader),
        order_options=order_options,
    )
    return Measurements.of(record_of(numbered(trial), discovery=discovery))


def by_budget(lengths, budget):
    rows = []
    for length in lengths:
        if rows and (len(rows) + 1) * length > budget:
            yield rows
            rows = []
        rows.append(length)
    yield rows


class TestLaw:
    def test_finds_the_terms(self):
        law = position_law(drawn(SIZE, 40))
        assert law.fixed_s == pytest.approx(FIXED, rel=1e-3)
        assert law.position_s == pytest.approx(POSITION, rel=1e-3)
        assert law.square_s == pytest.approx(SQUARE, rel=1e-3)
        assert law.residual < 1e-6

    def test_no_term_is_negative(self):
        steps = [TokenStep(step_s=0.1 * n, positions=100 * n, squares=n * n) for n in range(1, 12)]
        law = position_law(steps)
        assert min(law.fixed_s, law.position_s, law.square_s) >= 0
        assert law.position_s == pytest.approx(0.001)

    def test_steps_that_were_held_up_are_left_out(self):
        steps = drawn(SIZE, 40)
        law = position_law([*(replace(step, step_s=5.0) for step in steps[:6]), *steps])
        assert law.num_steps == 40
        assert law.position_s == pytest.approx(POSITION, rel=0.01)

    @pytest.mark.parametrize(
        ("steps", "reason"),
        [
            (drawn(SIZE, 3), "3 timed steps tell"),
            ([step_of([50] * 4)] * 20, "about as many positions"),
            (drawn(SIZE, 60, noise=0.9), "miss their law"),
            (
                [TokenStep(step_s=1.0, positions=n, squares=n * n) for n in range(10, 30)],
                "as long however many",
            ),
            ([TokenStep(step_s=1.0, positions=n) for n in range(10, 30)], "0 timed steps"),
        ],
    )
    def test_says_why_there_is_none(self, steps, reason):
        assert reason in position_law(steps)


class TestOrders:
    def test_against_orders_laid_by_hand(self):
        estimates = order_estimates(measurements(drawn(SIZE, 48, noise=0.02)), SIZE)
        orders = {each.order: each for each in estimates.orders}
        expected = {"random": drawn(SIZE, 3000)}
        groups = [sorted(RNG.sample(LENGTHS, 50 * SIZE)) for _ in range(20)]
        expected["grouped"] = [
            step_of(group[at : at + SIZE]) for group in groups for at in range(0, 50 * SIZE, SIZE)
        ]
        budget = fmean(step.positions for step in expected["random"])
        expected["token budget"] = [
            step_of(rows) for group in groups for rows in by_budget(group, budget)
        ]
        for order, steps in expected.items():
            assert orders[order].real_per_s == pytest.approx(rate(steps), rel=0.05), order
            assert orders[order].padding_share == pytest.approx(share(steps), abs=0.03), order
        assert estimates.positions == pytest.approx(budget, rel=0.03)
        # At best as many places as tokens, at no cost of attention beyond each sequence.
        most = 1 / (POSITION + FIXED / budget)
        assert orders["random"].real_per_s < orders["packed"].real_per_s < most * 1.05
        assert orders["packed"].padding_share < 0.03

    @pytest.mark.parametrize(
        ("loader", "lengths", "reason"),
        [
            ({"sampler": "LengthGroupedSampler"}, LENGTHS, "not drawn at random"),
            ({"iterable": True}, LENGTHS, "not drawn at random"),
            ({}, [0, *LENGTHS], "some sequences are empty"),
            ({}, [10 * length for length in LENGTHS], "is missed by"),
        ],
    )
    def test_says_why_nothing_is_predicted(self, loader, lengths, reason):
        assert reason in order_estimates(measurements(drawn(SIZE, 48), lengths, **loader), SIZE)

    def test_one_sequence_longer_than_the_budget_has_a_batch_of_its_own(self):
        lengths = [*range(5, 100), 3000]
        steps = [step_of(RNG.sample(lengths, SIZE)) for _ in range(400)]
        told = order_estimates(measurements(steps, lengths), SIZE)
        assert isinstance(told, OrderEstimates), told
        assert told.positions < 3000 * SIZE
        assert all(0 <= each.padding_share < 1 for each in told.orders)

    def test_recordings_of_a_million_places(self):
        """A search place by place for a row with room would take minutes."""
        lengths = [2500 * length for length in LENGTHS]
        drawn_of = (step_of(RNG.sample(lengths, SIZE)) for _ in range(60))
        steps = [replace(step, step_s=0.004 + 1e-9 * step.positions) for step in drawn_of]
        packed = order_estimates(measurements(steps, lengths), SIZE).orders[-1]
        assert packed.padding_share < 0.05


def test_the_remedy_is_the_order_that_pays_the_most_and_one_with_lines_to_paste():
    (finding,) = padding(measurements(drawn(SIZE, 48)), SIZE)
    assert finding.remedy.startswith("predicted, not tried: samples packed end to end, by a")
    assert finding.remedy.endswith("; or samples of like length in a batch, by a batch sampler")
    assert "GroupedByLength(lengths, 16)" in finding.code[-1]
    # A framework has its own name for it.
    option = "TrainingArguments(group_by_length=True)"
    (finding,) = padding(measurements(drawn(SIZE, 48), order_options=(("grouped", option),)), SIZE)
    assert finding.remedy.endswith(f"; or samples of like length in a batch: {option}")
    assert finding.code == ()


def test_the_printed_sampler_takes_the_padding_away():
    import torch

    names = {"torch": torch}
    exec(GROUPED_CODE.replace("{size}", "16"), names)
    lengths = LENGTHS[:4000]
    sampler = names["GroupedByLength"](lengths, SIZE)
    batches = list(sampler)
    assert len(batches) == len(sampler) == 250
    assert sorted(place for batch in batches for place in batch) == list(range(4000))
    steps = [step_of([lengths[place] for place in batch]) for batch in batches]
    assert share(drawn(SIZE, 250)) > HIGH_PADDING > share(steps)
    assert list(sampler) != batches  # another order in each epoch
