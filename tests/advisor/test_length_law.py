"""The memory law in batch x length, and what a search makes of it."""

from collections.abc import Callable
from dataclasses import dataclass

import msgspec
import pytest
from batchadvisor.advisor.advise import advise
from batchadvisor.advisor.measured.length_law import MAX_LENGTH_RESIDUAL, Point, fit_lengths
from batchadvisor.advisor.measured.length_risk import MAX_CHANCE, risk_of
from batchadvisor.advisor.measured.measurements import Measurements
from batchadvisor.advisor.search.next_trial import next_trial
from batchadvisor.records import ChosenBatch, Goal, InputSize, LengthCensus, Tokens

from ..on_paper import GIB, discovery_of, loader_of, numbered, record_of, trial_of
from .machine import Machine

MIB = 2**20
SHORT, MEDIAN, LONG = 16, 64, 1024


def peak(num, length, square=40.0, noise=1.0):
    return int(noise * (300 * MIB + 3e4 * num * length + square * num * length**2))


WINDOWS = [(8, SHORT), (8, MEDIAN), (16, MEDIAN), (8, LONG), (16, LONG)]


def points_of(peaks_mib):
    return [Point(*window, mib * MIB) for window, mib in zip(WINDOWS, peaks_mib, strict=True)]


class TestLaw:
    @pytest.mark.parametrize("square", [40, 0], ids=["attention", "none"])
    def test_all_three_numbers(self, square):
        law = fit_lengths([Point(*window, peak(*window, square=square)) for window in WINDOWS])
        assert law.fixed_bytes == pytest.approx(300 * MIB, rel=1e-3)
        assert law.per_token_bytes == pytest.approx(3e4, rel=0.02)
        assert law.per_square_bytes == pytest.approx(square, rel=0.02)
        assert law.residual < 1e-3

    def test_noise_shows_in_the_spread(self):
        noise = (1.03, 0.97, 1.02, 0.98, 1.01)
        points = [
            Point(*window, peak(*window, noise=factor))
            for window, factor in zip(WINDOWS, noise, strict=True)
        ]
        assert 0.01 < fit_lengths(points).spread < 0.06

    @pytest.mark.parametrize(
        ("points", "why"),
        [
            ([Point(8, SHORT, 300 * MIB)] * 5, "three windows"),
            (points_of([300] * 5), "does not grow"),
            (points_of((314, 315, 316, 318, 319)), "too little"),
            (points_of((300, 900, 320, 1000, 1900)), "misses a window"),
        ],
    )
    def test_what_is_refused(self, points, why):
        assert why in fit_lengths(points)

    def test_a_floor_is_left_out(self):
        points = [Point(8, SHORT, 400 * MIB)] + [
            Point(*window, 200 * MIB + int(1e5 * window[0] * window[1])) for window in WINDOWS[1:]
        ]
        law = fit_lengths(points)
        assert law.residual <= MAX_LENGTH_RESIDUAL
        assert (8, SHORT, 400 * MIB) not in law.windows


CENSUS = LengthCensus(
    lengths=(SHORT, MEDIAN, 256, LONG), counts=(8000, 7000, 600, 25), complete=True
)
USUAL = 256
"""The longest sample of a usual window."""


def inputs_of(name, num, length):
    """What a window saw whose batches have so many samples, the longest so long."""
    inputs = InputSize(num_batches=4, smallest=length / 4, largest=length)
    if not name:
        return inputs
    chosen = ChosenBatch(length=name, num_samples=num, longest=length, total=num * length)
    return msgspec.structs.replace(inputs, chosen=chosen, census=CENSUS)


@dataclass
class Lengths(Machine):
    """A machine whose batches are as long as the request says; else as usual ones are."""

    time_s: Callable[[int], float] = lambda size: 0.1 + 1e-4 * size
    square: float = 40.0

    def _run(self, request, worker, ordinal, rng):
        length = {"shortest": SHORT, "median": MEDIAN, "longest": LONG}.get(request.length, USUAL)
        self.memory = lambda size: peak(size, length, self.square)
        trial = super()._run(request, worker, ordinal, rng)
        if not trial.ran:
            return trial
        num = request.batch_size
        return msgspec.structs.replace(trial, inputs=inputs_of(request.length, num, length))


def searched(capacity, square=40.0, budget_s=600):
    machine = Lengths(capacity=capacity, square=square)
    return machine.search(Goal(kind="throughput", budget_s=budget_s))


class TestSearch:
    def test_it_grows_to_what_an_epoch_fits(self):
        result = searched(3 * GIB)
        assert result.finished
        assert result.num_refused == 0
        windows = [request for request in result.requests if request.purpose == "lengths"]
        assert [(window.batch_size, window.length) for window in windows] == [
            (8, "shortest"), (8, "median"), (16, "median"), (8, "longest"), (16, "longest")
        ]  # fmt: skip
        assert [window.fresh_process for window in windows] == [True, *[False] * 4]
        # By usual windows alone three times as much would seem to fit.
        assert peak(result.size, LONG) < 3 * GIB < peak(2 * result.size, LONG)
        assert max(result.tried) == result.size
        risk = result.advice.memory_risk
        assert risk.at(result.size).chance <= 0.01
        assert risk.confidence == "measured"
        assert "Chance of running out of memory in an epoch" in result.advice.reason
        assert "memory.lengths" in [finding.rule for finding in result.advice.findings]

    def test_a_larger_size_is_said_with_its_chance(self):
        result = searched(3 * GIB)
        advice = advise(result.record)
        risky = 2 * result.size
        more = trial_of(risky, 0.1, peak=peak(risky, USUAL), ordinal=len(result.record.trials))
        record = msgspec.structs.replace(result.record, trials=(*result.record.trials, more))
        again = advise(record)
        assert again.recommended.batch_size == advice.recommended.batch_size
        assert f"{risky}: above 99.9%" in again.reason
        assert "as the longest batches of an epoch would not fit" in again.reason

    def test_plenty_of_memory_asks_nothing_of_the_lengths(self):
        goal = Goal(budget_s=600, max_batch=64)
        result = Lengths(capacity=800 * GIB, time_s=lambda size: 0.1).search(goal)
        assert not [request for request in result.requests if request.purpose == "lengths"]
        assert result.advice.memory_risk is None

    def test_the_longest_batch_of_the_own_size_runs_out_of_memory(self):
        capacity = int(peak(8, LONG) * 0.8)
        result = searched(capacity)
        assert result.finished
        assert result.size < 8
        assert peak(result.size, LONG) < capacity

    def test_no_window_takes_what_the_law_already_refuses(self):
        """Without attention three short windows tell how many of the longest samples fit."""
        result = searched(peak(4, LONG, square=0.0) + 20 * MIB, square=0.0)
        longest = [request for request in result.requests if request.length == "longest"]
        assert [request.batch_size for request in longest] == [4]
        assert result.num_refused == 0
        assert result.size == 4
        assert result.advice.memory_risk.at(8).chance > 0.99

    def test_a_budget_of_tokens_has_fewer_of_the_longest(self):
        """Lengths that no list declares leave the longest sample out of the loader's facts."""
        own = 8 * LONG
        loader = loader_of(batch_size=own, axis="tokens", parameter="max_tokens")
        windows = [(own, SHORT), (own, MEDIAN), (2 * own, MEDIAN)]
        names = {SHORT: "shortest", MEDIAN: "median"}
        trials = [trial_of(own, 0.1, peak=GIB, inputs=inputs_of("", own // USUAL, USUAL))]
        for size, length in windows:
            inputs = inputs_of(names[length], size // length, length)
            memory = peak(size // length, length)
            trials.append(trial_of(size, peak=memory, purpose="lengths", inputs=inputs))
        record = record_of(
            numbered(*trials),
            capacity=3 * GIB,
            goal=Goal(budget_s=600),
            discovery=discovery_of(own, loader=loader),
        )
        request = next_trial(record)
        assert (request.length, request.batch_size) == ("longest", own)

    def test_packed_samples_make_no_batch_of_the_longest(self):
        record = searched(int(peak(8, LONG) * 0.8)).record
        assert Measurements.of(record).too_risky(8)
        end_to_end = Tokens(num_batches=1, evidence="position ids")
        trials = [
            msgspec.structs.replace(trial, tokens=end_to_end) if trial.ran else trial
            for trial in record.trials
        ]
        packed = Measurements.of(msgspec.structs.replace(record, trials=tuple(trials)))
        assert packed.length_risk.epoch.summed
        assert packed.length_risk.chance(8) < MAX_CHANCE
        assert not packed.too_risky(8)
        assert packed.too_risky(8 * LONG)

    def test_windows_that_the_budget_has_no_time_for_end_no_search(self):
        result = searched(3 * GIB, budget_s=8)
        assert "lengths" not in {request.purpose for request in result.requests}
        assert len(result.tried) > 1

    def test_windows_that_could_not_be_chosen_leave_the_chance_unknown(self):
        class Unknown(Lengths):
            def _run(self, request, worker, ordinal, rng):
                trial = super()._run(request, worker, ordinal, rng)
                if request.length:
                    inputs = msgspec.structs.replace(trial.inputs, chosen=None, census=None)
                    trial = msgspec.structs.replace(trial, inputs=inputs)
                return trial

        goal = Goal(kind="memory", budget_s=600)
        result = Unknown(capacity=8 * GIB, time_s=Machine.time_s).search(goal)
        assert [request.length for request in result.requests].count("shortest") == 1
        assert result.advice.memory_risk is None
        assert "three windows" in result.advice.unavailable["memory_risk"]


def test_a_record_without_such_windows_says_nothing():
    assert risk_of(record_of([trial_of(8, 0.1, peak=GIB)])) == ""
