"""What the knee follows from: the best throughput under noise, the law, sizes left uncompared."""

import random
from statistics import fmean

import msgspec
import pytest
from batchadvisor.advisor.advise import advise
from batchadvisor.advisor.choose.finalists import finalists
from batchadvisor.advisor.choose.knee import (
    best_throughput,
    fastest,
    inside,
    judged,
    knee,
    plateau,
    sure,
)
from batchadvisor.advisor.measured.measurements import Measurements
from batchadvisor.records import NormLayers, Turns
from batchadvisor.spread import spread_of

from ..on_paper import CPU, discovery_of, exactly, failure_of, numbered, record_of, trial_of


def at_rate(size, rate, half_width=0.01, **changes):
    """A timed trial of so many samples per second."""
    trial = trial_of(size, size / rate, half_width=half_width, **changes)
    return msgspec.structs.replace(trial, samples_per_s=exactly(rate, half_width))


class TestPlateau:
    def test_without_rivals_it_is_the_best(self):
        sizes = {8: at_rate(8, 300), 16: at_rate(16, 400), 32: at_rate(32, 440)}
        assert plateau(sizes) == pytest.approx(440)

    def test_rivals_count_the_surer_the_more(self):
        sizes = {32: at_rate(32, 400, 0.01), 64: at_rate(64, 410, 0.1)}
        assert plateau(sizes) == 410, "400 surely is not the best"
        sizes = {32: at_rate(32, 400, 0.05), 64: at_rate(64, 410, 0.1)}
        assert plateau(sizes) == pytest.approx((400 * 4 + 410) / 5)

    def test_of_equal_rates_every_one_counts(self):
        sizes = {
            16: at_rate(16, 400, 0.1),
            32: at_rate(32, 400, 0.1),
            64: at_rate(64, 410, 0.1),
        }
        assert plateau(sizes) == pytest.approx(fmean([400, 400, 410]))

    def test_luck_does_not_raise_it(self):
        """Five sizes as good as each other: the highest median is too high, the mean is not."""
        rng = random.Random(4)
        best, mean = [], []
        for _ in range(400):
            rates = [spread_of([rng.gauss(400, 40) for _ in range(12)]) for _ in range(5)]
            sizes = {
                2**number: msgspec.structs.replace(at_rate(2**number, 400), samples_per_s=rate)
                for number, rate in enumerate(rates)
            }
            best.append(best_throughput(sizes))
            mean.append(plateau(sizes))
        assert fmean(best) > 400 * 1.03
        assert fmean(mean) == pytest.approx(400, rel=0.015)


class TestInside:
    def test_the_law_decides_what_an_interval_leaves_open(self):
        """t = 10 ms + B ms: 95 % of the plateau is reached between 64 and 128."""
        sizes = {size: at_rate(size, size / (0.01 + 0.001 * size)) for size in (8, 32, 64, 256)}
        sizes[512] = at_rate(512, 940, 0.06)
        record = record_of(sizes.values())
        assert min(inside(Measurements.of(record), sizes)) == 256
        # A reading too high whose interval holds the threshold does not move it below the law's.
        sizes[32] = at_rate(32, 900, 0.2)
        assert 32 not in inside(Measurements.of(record), sizes)
        sizes[32] = at_rate(32, 950)
        assert 32 in inside(Measurements.of(record), sizes), "surely above the threshold"


class TestSure:
    """One that was timed alone: its median is the highest, its interval begins far below."""

    LUCKY = (at_rate(32, 900), at_rate(128, 1000, 0.2))

    def test_luck_makes_neither_the_fastest_nor_the_knee(self):
        record = record_of(numbered(*self.LUCKY))
        assert (fastest(Measurements.of(record)), knee(Measurements.of(record))) == (32, 32)
        assert finalists(Measurements.of(record)) == (32, 128), "the fresh process compares them"

    def test_slower_sizes_stay(self):
        sizes = {trial.batch_size: trial for trial in (*self.LUCKY, at_rate(16, 600, 0.3))}
        assert set(sure(sizes)) == {16, 32}

    def test_equally_sure_sizes_stay(self):
        sizes = {size: at_rate(size, rate, 0.2) for size, rate in ((8, 300), (16, 400), (32, 440))}
        assert sure(sizes) == sizes

    def test_where_the_fresh_process_prefers_it_that_is_said(self):
        rates = {32: 800, 128: 1000}
        series = [at_rate(*pair, purpose="confirm", worker=1) for pair in rates.items()] * 2
        reason = advise(record_of(numbered(at_rate(8, 300), *self.LUCKY, *series))).reason
        assert reason.startswith(
            "Faster in the fresh process than 32, the fastest of the search: 120.2% of the "
            "throughput of 32"
        )

    @pytest.mark.parametrize(("rate", "standing"), [(500, "too noisy"), (640, "too noisy")])
    def test_the_own_size_is_not_left_for_a_smaller_one_that_was_slower(self, rate, standing):
        """One comparison alone, in which the knee of the search is slower by far or by little."""
        again = {8: rate, 64: 690}
        trials = [
            *(at_rate(*pair) for pair in {8: 900, 64: 600}.items()),
            *(at_rate(*pair, purpose="confirm", worker=1) for pair in again.items()),
        ]
        advice = advise(record_of(numbered(*trials), discovery=discovery_of(native=64), device=CPU))
        assert advice.recommended.batch_size == 64
        assert (advice.standing, advice.considered) == (standing, 8)
        assert advice.change == "nothing to change"

    def test_a_fastest_size_too_small_for_batch_norm_is_not_said_to_end_badly(self):
        discovery = discovery_of(norm_layers=NormLayers(batch_norm=1))
        record = record_of(numbered(at_rate(4, 1000), at_rate(8, 900)), discovery=discovery)
        reason = advise(record).reason
        assert reason.startswith("The fastest of the search, 4, is too small for BatchNorm")


class TestJudged:
    def record(self, *more, alone=400):
        """Two sizes took turns; `more` did not. `alone` is what the first read by itself before."""
        turns = Turns(sizes=(16, 32), step_s=((0.04, 0.0725),) * 12)
        return record_of(
            [
                at_rate(16, alone),
                at_rate(32, 440, ordinal=1),
                trial_of(32, kind="turns", turns=turns, ordinal=2),
                *more,
            ],
            device=CPU,
        )

    def test_a_size_that_nobody_compared_is_not_judged(self):
        """It was timed last, in a fast moment, and the budget was spent before it took turns."""
        record = self.record(at_rate(24, 530, ordinal=3))
        assert set(judged(Measurements.of(record))) == {16, 32}
        assert fastest(Measurements.of(record)) == 32
        assert knee(Measurements.of(record)) == 32

    def test_where_nothing_else_is_left_it_is(self):
        """The two that were compared are refused in the confirmation."""
        refused = failure_of(16, "out_of_memory", purpose="confirm", ordinal=4)
        record = self.record(at_rate(8, 300, ordinal=3), refused)
        assert set(judged(Measurements.of(record))) == {8}
        assert knee(Measurements.of(record)) == 8

    def test_where_sizes_do_not_take_turns_every_one_is(self):
        record = self.record(at_rate(24, 530, ordinal=3))
        on_gpu = msgspec.structs.replace(record, device=msgspec.structs.replace(CPU, kind="cuda"))
        assert set(judged(Measurements.of(on_gpu))) == {16, 24, 32}
        alone = msgspec.structs.replace(
            record, trials=tuple(trial for trial in record.trials if trial.turns is None)
        )
        assert set(judged(Measurements.of(alone))) == {16, 24, 32}

    @pytest.mark.parametrize(
        ("rate", "alone", "is_judged"),
        [
            (420, 400, False),
            (450, 400, False),
            (500, 400, True),
            (500, 360, False),
            (600, 360, True),
        ],
    )
    def test_one_whose_steps_are_too_long_for_turns_is_where_it_is_faster_than_the_machine_wanders(
        self, rate, alone, is_judged
    ):
        record = self.record(at_rate(512, rate, ordinal=3), alone=alone)
        assert set(judged(Measurements.of(record))) == ({16, 32, 512} if is_judged else {16, 32})
        goal = msgspec.structs.replace(record.goal, kind="throughput")
        assert fastest(Measurements.of(msgspec.structs.replace(record, goal=goal))) == (
            512 if is_judged else 32
        )
