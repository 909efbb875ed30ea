"""Comparisons in rounds: the drift goes out, the sizes stay."""

import msgspec
import pytest
from batchadvisor.advisor.measured.measurements import Measurements
from batchadvisor.advisor.measured.speeds import OF_A_CPU, speeds_of
from batchadvisor.records import Goal, StepQuality, Turns

from ..on_paper import CPU, discovery_of, numbered, record_of, trial_of
from .drifting import BEST, DriftingMachine, throughput

TRUE = {8: 400.0, 32: 600.0, 64: 700.0}


def rounds(drifts, sizes=tuple(TRUE), true=TRUE):
    """The sizes in turn, all of a round so many times slower than usual."""
    return Turns(
        sizes=sizes,
        step_s=tuple(tuple(size / true[size] * drift for size in sizes) for drift in drifts),
    )


def measured(*trials):
    return Measurements.of(record_of(numbered(*trials), device=CPU))


def windows(*sizes):
    """Each size by itself."""
    return [trial_of(size, size / TRUE[size]) for size in sizes or TRUE]


def rates_of(searched):
    return {size: trial.samples_per_s.median for size, trial in searched.items()}


def in_turn(turns, **changes):
    return trial_of(max(turns.sizes), kind="turns", turns=turns, samples_per_s=None, **changes)


def estimated(*turns, **changes):
    """What sizes that took turns say, and nothing else."""
    return speeds_of(numbered(*(in_turn(each, **changes) for each in turns)), OF_A_CPU)


class TestSpeeds:
    def test_drift_between_rounds_goes_out(self):
        speeds = estimated(rounds([1.0, 1.3, 0.9, 1.25, 1.0]))
        for size, true in TRUE.items():
            assert speeds.rate(size).median / speeds.rate(64).median == pytest.approx(true / 700)
            assert speeds.rate(size).relative_half_width < 0.03
            assert speeds.rate(size).num_samples == 5

    def test_batches_of_a_step_are_all_counted(self):
        single, four = estimated(rounds([1.0])), estimated(rounds([1.0]), micro_batches=4)
        assert four.rate(32).median == pytest.approx(4 * single.rate(32).median)

    def test_sizes_that_never_met_are_compared_through_others(self):
        """64 runs only in slow rounds, 8 only in fast ones; 32 is in all of them."""
        speeds = estimated(rounds([1.0] * 5, (8, 32)), rounds([1.4] * 5, (32, 64)))
        compared, met = speeds.compare(64, 8), speeds.compare(64, 32)
        assert compared.median == pytest.approx(700 / 400, rel=0.03)
        assert compared.low > 1.5
        assert compared.relative_half_width > met.relative_half_width

    def test_one_bad_turn_moves_the_middle_little(self):
        turns = rounds([1.0] * 5)
        bad = (turns.step_s[0][0], 1.5 * turns.step_s[0][1], turns.step_s[0][2])
        speeds = estimated(msgspec.structs.replace(turns, step_s=(*turns.step_s[1:], bad)))
        compared = speeds.compare(32, 64)
        assert compared.median == pytest.approx(600 / 700, rel=0.03)
        assert compared.relative_half_width > estimated(turns).compare(32, 64).relative_half_width

    def test_a_turn_that_says_nothing_is_left_out(self):
        turns = Turns(sizes=(8, 32), step_s=((0.02, None), (0.02, 0.06), (0.02, 0.06)))
        speeds = estimated(turns)
        assert [speeds.rate(size).num_samples for size in (8, 32)] == [2, 2]
        assert speeds.num_rounds(8, 32) == 2

    def test_without_rounds_there_is_nothing(self):
        assert estimated().compare(8, 32) is None
        alone = estimated(rounds([1.0] * 3, (8,)))
        assert not alone.took_turns(8), "a round of one size compares nothing"


class TestCompare:
    """One comparison: what two sizes do not share makes their ratio less sure."""

    def test_rounds_are_surer_than_windows_apart(self):
        apart = speeds_of(numbered(*windows(32, 64)), OF_A_CPU).compare(32, 64)
        together = estimated(rounds([1.0, 1.3, 0.9, 1.25, 1.0])).compare(32, 64)
        assert apart.median == pytest.approx(together.median)
        assert apart.relative_half_width > 2 * together.relative_half_width
        assert together.num_samples == 5

    def test_a_machine_that_wanders_makes_windows_apart_less_sure(self):
        """The same two sizes; a third was read again and again, at one speed or at several."""
        widths = []
        for wander in (1.0, 1.2):
            again = [trial_of(8, 0.02 * wander ** (number % 2)) for number in range(6)]
            compared = speeds_of(numbered(*again, *windows(32, 64)), OF_A_CPU).compare(32, 64)
            widths.append(compared.relative_half_width)
        assert widths[1] > 2 * widths[0]

    @pytest.mark.parametrize(("num_steps", "sure"), [(13, False), (130, False), (13_000, True)])
    def test_a_window_no_longer_than_a_turn_is_off_by_what_turns_are(self, num_steps, sure):
        """A third size, in a window of even steps, beside two whose turns of 0.9 s differ by half:
        the seconds of a public script whose loader sets the pace (dlrm, two cores)."""
        rows = [(16.6, 42.7), (14.3, 82.7), (16.9, 43.3), (25.9, 40.6), (27.0, 72.1), (19.3, 63.8)]
        turns = Turns(sizes=(128, 512), step_s=tuple((a / 1e3, b / 1e3) for a, b in rows))
        quality = StepQuality(num_steps=num_steps, num_clean=num_steps, num_disturbed=0)
        window = trial_of(168, 0.0179, half_width=0.02, quality=quality)
        trials = numbered(in_turn(turns, elapsed_s=10.6), window)
        compared = speeds_of(trials, OF_A_CPU).compare(168, 128)
        assert (compared.low > 1) == sure

    @pytest.mark.parametrize(
        ("slow_s", "num", "told"), [(1.3, 3, False), (1.3, 4, True), (0.45, 3, True)]
    )
    def test_few_rounds_of_two_states_do_not_tell_which_is_usual(self, slow_s, num, told):
        """A size of 24 that was held up in two rounds of three seemed a fourth as fast as 3."""
        rows = ((0.033, slow_s), (0.033, 0.24), (0.033, slow_s), (0.033, slow_s))[:num]
        assert estimated(Turns(sizes=(3, 24), step_s=rows)).tells(3, 24) == told

    def test_more_rounds_and_less_noise_make_it_surer(self):
        noisy = [1.0, 1.1, 0.9, 1.05, 0.95, 1.0]
        rows = tuple((0.02 * slow, 0.05) for slow in noisy)
        few, many = (
            estimated(Turns(sizes=(8, 32), step_s=rows * times)).compare(8, 32) for times in (1, 4)
        )
        still = estimated(Turns(sizes=(8, 32), step_s=((0.02, 0.05),) * 6)).compare(8, 32)
        assert many.relative_half_width < 0.7 * few.relative_half_width
        assert still.relative_half_width < few.relative_half_width


class TestFacts:
    def test_the_comparison_speaks_for_its_sizes(self):
        slow = trial_of(32, 1.3 * 32 / TRUE[32])
        searched = measured(*windows(8, 64), slow, in_turn(rounds([1.0, 1.2] * 3))).searched
        assert searched[32].kind == "timed", "profile and memory are the long trial's"
        rates = rates_of(searched)
        assert rates[32] / rates[64] == pytest.approx(600 / 700, rel=0.05)
        assert searched[32].step_s.median == pytest.approx(32 / searched[32].samples_per_s.median)

    def test_a_size_that_took_no_turns_has_another_number_of_batches_a_step(self):
        """Accumulation up to 32 samples: four batches of 8, one of 32 and of 64."""
        alone = trial_of(8, 4 * 8 / TRUE[8], micro_batches=4)
        searched = measured(alone, *windows(32, 64), in_turn(rounds([1.0] * 3, (32, 64)))).searched
        assert searched[64].step_s.median == pytest.approx(64 / TRUE[64])
        assert searched[64].samples_per_s.median == pytest.approx(TRUE[64])

    def test_a_machine_that_is_slower_by_then_changes_no_order(self):
        """Sizes that take turns stay beside those that took none."""
        alone = trial_of(1, 1 / 90)
        slower = in_turn(rounds([2.0, 2.2, 1.9]))
        rates = rates_of(measured(alone, *windows(), slower).searched)
        assert rates == pytest.approx({1: 90.0, **TRUE}, rel=0.3)
        assert rates[8] / rates[64] == pytest.approx(TRUE[8] / TRUE[64])
        assert rates[1] < 0.3 * rates[8]

    def test_sizes_that_no_round_connects_keep_their_own_levels(self):
        """8 and 32 met, 64 and 128 met while the machine was a fifth slower."""
        true = {**TRUE, 128: 350.0}
        fast, slow = rounds([1.0] * 4, (8, 32)), rounds([1.2] * 4, (64, 128), true)
        alone = [*windows(), trial_of(128, 128 / true[128])]
        rates = rates_of(measured(*alone, in_turn(fast), in_turn(slow)).searched)
        assert rates == pytest.approx(true, rel=0.1)

    def test_the_confirmation_counts_as_more_rounds(self):
        again = in_turn(rounds([1.2, 1.1], (32, 64)), purpose="confirm", worker=1)
        measurements = measured(*windows(), in_turn(rounds([1.0])), again)
        assert measurements.best_timed[32].samples_per_s.num_samples == 3
        assert measurements.searched[32].samples_per_s.num_samples == 1


@pytest.fixture(scope="module")
def knees():
    return [DriftingMachine(seed=seed).search(Goal()) for seed in range(20)]


@pytest.mark.slow
class TestSearch:
    """On a machine whose speed wanders by a tenth and is slower by a quarter now and then."""

    def test_the_same_size_within_one_step_of_a_grid(self, knees):
        sizes = sorted(result.size for result in knees)
        middle = sizes[len(sizes) // 2]
        near = [size for size in sizes if middle / 1.2 <= size <= middle * 1.2]
        assert len(near) >= 0.9 * len(sizes), sizes

    def test_no_size_far_from_the_tolerance(self, knees):
        top = max(throughput(size) for size in (64, 96))
        assert min(throughput(result.size) for result in knees) > 0.92 * top
        assert max(result.size for result in knees) <= 64

    def test_the_fastest_is_among_the_fastest(self):
        results = [DriftingMachine(seed=seed).search(Goal(kind="throughput")) for seed in range(10)]
        assert min(throughput(result.size) for result in results) > 0.965 * BEST

    def test_it_ends_within_the_budget(self, knees):
        assert all(result.finished for result in knees)
        assert max(result.record.search_s for result in knees) < 120

    def test_on_a_gpu_nothing_is_compared_in_rounds(self):
        result = DriftingMachine(seed=0, kind="cuda").search(Goal())
        kinds = {trial.kind for trial in result.record.trials if trial.purpose != "tail"}
        assert kinds == {"timed"}

    def test_expensive_sizes_take_no_turns(self):
        slow = DriftingMachine(seed=0, time_s=lambda size: 0.5 + size)
        record = slow.search(Goal(budget_s=600)).record
        met = [trial.turns.sizes for trial in record.trials if trial.turns is not None]
        assert all(max(sizes) <= 8 for sizes in met)

    def test_one_process_a_size_takes_turns_with_the_own_size_and_at_the_end(self):
        slow = DriftingMachine(seed=0, discovery=discovery_of(native=8, door="template"))
        trials = slow.search(Goal(budget_s=600)).record.trials
        turns = [trial for trial in trials if trial.turns is not None]
        assert {trial.purpose for trial in turns} == {"search", "confirm"}
        searched = [trial.turns.sizes for trial in turns if trial.purpose == "search"]
        assert all(len(sizes) == 2 and 8 in sizes for sizes in searched)

    def test_a_script_too_short_for_turns_is_searched_and_confirmed_without(self):
        """Sizes apart are hard to tell on such a machine: what is confirmed must be right."""
        confirmed = []
        for seed in range(8):
            short = DriftingMachine(
                seed=seed, outcome=lambda request, worker: request.turns and "script_ended"
            )
            result = short.search(Goal())
            assert result.finished
            again = [trial for trial in result.record.trials if trial.purpose == "confirm"]
            assert {trial.worker for trial in again} == {again[0].worker} != {0}
            assert result.size in {trial.batch_size for trial in again}
            confirmed += [result.size] * (result.advice.sureness == "confirmed")
            assert result.advice.sureness in ("confirmed", "not confirmed")
            if result.advice.sureness == "not confirmed":
                assert "is faster" in result.advice.reason, "the rival is named"
            in_turns = [trial for trial in result.record.trials if trial.kind == "turns"]
            assert [trial.outcome for trial in in_turns] == ["script_ended"], "not asked again"
            rules = {finding.rule for finding in result.advice.findings}
            assert "trial.script_ended" not in rules
        assert confirmed, "a machine this unsteady still confirms some"
        assert min(map(throughput, confirmed)) > 0.92 * BEST
