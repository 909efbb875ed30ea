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
from batchadvisor.records import Goal, Turns
from batchadvisor.spread import spread_of

from ..on_paper import CPU, discovery_of, exactly, failure_of, numbered, record_of, trial_of


def at_rate(size, rate, half_width=0.01, **changes):
    """A timed trial of so many samples per second."""
    trial = trial_of(size, size / rate, half_width=half_width, **changes)
    return msgspec.structs.replace(trial, samples_per_s=exactly(rate, half_width))


class TestPlateau:
    @pytest.mark.parametrize(
        ("rates", "best"),
        [
            ([(300, 0.01), (400, 0.01), (440, 0.01)], 440),  # without rivals
            ([(400, 0.01), (410, 0.1)], 410),  # 400 surely is not the best
            ([(400, 0.05), (410, 0.1)], (400 * 4 + 410) / 5),
            ([(400, 0.1), (400, 0.1), (410, 0.1)], fmean([400, 400, 410])),
        ],
    )
    def test_rivals_count_the_surer_the_more(self, rates, best):
        sizes = {2**number: at_rate(2**number, *rate) for number, rate in enumerate(rates)}
        assert plateau(sizes) == pytest.approx(best)

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

    def test_slower_and_equally_sure_sizes_stay(self):
        sizes = {trial.batch_size: trial for trial in (*self.LUCKY, at_rate(16, 600, 0.3))}
        assert set(sure(sizes)) == {16, 32}
        sizes = {size: at_rate(size, rate, 0.2) for size, rate in ((8, 300), (16, 400), (32, 440))}
        assert sure(sizes) == sizes

    @pytest.mark.parametrize("rate", [500, 640])
    def test_the_own_size_is_not_left_for_a_smaller_one_that_was_slower(self, rate):
        """One comparison alone, in which the knee of the search is slower by far or by little."""
        again = {8: rate, 64: 690}
        trials = [
            *(at_rate(*pair) for pair in {8: 900, 64: 600}.items()),
            *(at_rate(*pair, purpose="confirm", worker=1) for pair in again.items()),
        ]
        advice = advise(record_of(numbered(*trials), discovery=discovery_of(native=64), device=CPU))
        assert advice.recommended.batch_size == 64
        assert (advice.standing, advice.considered) == ("too noisy", 8)
        assert advice.change == "nothing to change"


class TestJudged:
    def record(self, *more, alone=400):
        """Two sizes took turns; `more` did not. `alone` is what the first read by itself before."""
        turns = Turns(sizes=(16, 32), step_s=((0.04, 0.0725),) * 12)
        met = trial_of(32, kind="turns", turns=turns)
        return record_of(numbered(at_rate(16, alone), at_rate(32, 440), met, *more), device=CPU)

    def test_a_size_that_nobody_compared_is_not_judged(self):
        """It was timed last, in a fast moment, and the budget was spent before it took turns."""
        measurements = Measurements.of(self.record(at_rate(24, 530)))
        assert set(judged(measurements)) == {16, 32}
        assert fastest(measurements) == knee(measurements) == 32

    def test_where_nothing_else_is_left_it_is(self):
        """The two that were compared are refused in the confirmation."""
        refused = failure_of(16, "out_of_memory", purpose="confirm")
        measurements = Measurements.of(self.record(at_rate(8, 300), refused))
        assert set(judged(measurements)) == {8}
        assert knee(measurements) == 8

    def test_where_sizes_do_not_take_turns_every_one_is(self):
        record = self.record(at_rate(24, 530))
        on_gpu = msgspec.structs.replace(record, device=msgspec.structs.replace(CPU, kind="cuda"))
        assert set(judged(Measurements.of(on_gpu))) == {16, 24, 32}
        apart = tuple(trial for trial in record.trials if trial.turns is None)
        alone = msgspec.structs.replace(record, trials=apart)
        assert set(judged(Measurements.of(alone))) == {16, 24, 32}

    @pytest.mark.parametrize(
        ("rate", "alone", "best"),
        [(420, 400, 32), (450, 400, 32), (500, 400, 512), (500, 360, 32), (600, 360, 512)],
    )
    def test_one_too_long_for_turns_is_if_faster_than_the_machine_wanders(self, rate, alone, best):
        record = self.record(at_rate(512, rate), alone=alone)
        measurements = Measurements.of(record, Goal(kind="throughput"))
        assert set(judged(Measurements.of(record))) == {16, 32, best}
        assert fastest(measurements) == best
