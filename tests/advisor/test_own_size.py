"""Whether a size may take the place of the script's own: what speaks for it, and what does not."""

from collections import Counter

import msgspec
import pytest
from batchadvisor.advisor.advise import advise
from batchadvisor.advisor.choose import decision
from batchadvisor.advisor.choose.decision import Rival, choose, open_rival
from batchadvisor.advisor.choose.finalists import disagreement
from batchadvisor.advisor.choose.own_size import against_own, standing
from batchadvisor.advisor.explain import disturbances
from batchadvisor.advisor.explain.ratios import left_open
from batchadvisor.advisor.measured.measurements import Measurements
from batchadvisor.advisor.measured.speeds import OF_A_CPU, speeds_of
from batchadvisor.advisor.search.cost import Budget
from batchadvisor.advisor.search.knee_search import next_size
from batchadvisor.records import Cause, Goal, NormLayers, Spread, StepQuality, TrialRequest, Turns
from batchadvisor.records.quality import ANOTHER_HOUR
from batchadvisor.reports.builder.sizes.rows import size_rows

from ..on_paper import CPU, discovery_of, failure_of, numbered, record_of, trial_of
from .contended import session_of
from .decisions import CONTENDED, OF_THE_OWN_SIZE, UNEVEN, beside_others

CLEAN = StepQuality(num_steps=20, num_clean=20, num_disturbed=0)


def timed(size, step_s, quality=CLEAN, **changes):
    return trial_of(size, step_s, quality=quality, **changes)


def record(*trials, **changes):
    return record_of(numbered(*trials), device=CPU, **changes)


def in_turn(lost_by_8, lost_by_32, rounds=12):
    """8 in 20 ms, 32 in 30 ms, with such shares of it lost in each round."""
    return Turns(
        sizes=(8, 32),
        step_s=((0.02, 0.03),) * rounds,
        lost_s=((0.02 * lost_by_8, 0.03 * lost_by_32),) * rounds,
    )


@pytest.mark.parametrize(
    ("goal", "said", "remedy"),
    [
        ({"start": 16}, "not compared", "was not timed"),  # 100 is asked for, be it not rounded
        ({"max_batch": 64}, "asked for", "lift the bound"),
        ({"multiple_of": 16}, "asked for", "leave --multiple-of out"),
    ],
)
def test_an_own_size_that_was_not_timed(goal, said, remedy):
    run = record(timed(16, 0.02), goal=Goal(**goal), discovery=discovery_of(native=100))
    assert standing(Measurements.of(run), 16) == said
    assert remedy in advise(run).reason


class TestContention:
    @pytest.mark.parametrize(
        ("lost_by_8", "lost_by_32", "said"),
        [
            (0.0, 0.0, "better"),
            (0.2, 0.2, "better"),
            (0.7, 0.7, "better"),  # the same neighbours beside both
            (0.7, 0.1, "too noisy"),  # alone 8 may be as fast
            (0.1, 0.7, "better"),
        ],
    )
    def test_turns_beside_the_same_neighbours(self, lost_by_8, lost_by_32, said):
        turns = trial_of(32, kind="turns", turns=in_turn(lost_by_8, lost_by_32))
        run = record(timed(8, 0.02, CONTENDED), timed(32, 0.03, CONTENDED), turns)
        assert standing(Measurements.of(run), 32) == said

    @pytest.mark.parametrize(
        ("rounds", "lost", "said"),
        [(2, 0.2, "too noisy"), (3, 0.2, "better"), (2, 0.0, "better")],
    )
    def test_very_few_turns_beside_others_tell_nothing(self, rounds, lost, said):
        """A neighbour may have met one size alone; without neighbours it cannot."""
        turns = trial_of(32, kind="turns", turns=in_turn(lost, lost, rounds=rounds))
        run = record(timed(8, 0.02, CONTENDED), timed(32, 0.03, CONTENDED), turns)
        assert standing(Measurements.of(run), 32) == said

    @pytest.mark.parametrize(
        ("own", "other", "step_s", "takes_turns"),
        [
            (CONTENDED, CONTENDED, 0.8, True),
            (CONTENDED, CONTENDED, 3.0, False),  # four rounds would take most of the budget
            (CLEAN, CONTENDED, 0.8, False),
            (CLEAN, CLEAN, 0.2, True),
        ],
    )
    def test_what_only_ran_beside_others_takes_turns_whatever_it_costs(
        self, own, other, step_s, takes_turns
    ):
        run = record(timed(8, step_s, own), timed(32, step_s, other), goal=Goal(budget_s=60))
        measurements = Measurements.of(run)
        request = next_size(measurements, Budget(measurements))
        turns = isinstance(request, TrialRequest) and request.turns is not None
        assert turns is takes_turns
        if turns and own is CONTENDED:
            assert Budget(measurements).reserve_s() == 0

    @pytest.mark.parametrize(
        ("rounds", "step_s", "chosen"), [(12, 0.06, 32), (2, 0.06, 8), (12, 0.0745, 8)]
    )
    def test_what_is_certain_is_said_where_the_choice_of_the_search_is_not(
        self, rounds, step_s, chosen
    ):
        """128 reads the fastest in rounds that differ much; 32 is surely faster by a third, or not
        surely, or by so little that processes of one script may differ by it."""
        even = beside_others((8, 32), ((0.02, step_s),) * rounds)
        uneven = beside_others((8, 128), UNEVEN)
        turns = trial_of(32, kind="turns", turns=even), trial_of(128, kind="turns", turns=uneven)
        windows = [timed(size, s, CONTENDED) for size, s in ((8, 0.02), (32, step_s), (128, 0.2))]
        advice = advise(record(*windows, *turns))
        assert advice.recommended.batch_size == chosen
        if chosen == 32:
            assert "most surely faster" in advice.reason
            assert "x1.3" in advice.reason
            assert "Too noisy to tell whether 128 is faster" in advice.reason
            assert advice.fastest_is_open

    def test_the_gain_is_told_before_growth_goes_on(self):
        """Beside others; the best, x16 as large, met the own size only by way of another."""
        noisy = ((0.03, 0.07), (0.02, 0.09), (0.04, 0.08), (0.02, 0.06))
        noisier = ((0.07, 0.33), (0.09, 0.18), (0.08, 0.2), (0.06, 0.35))
        turns = [
            trial_of(pair[1], kind="turns", turns=beside_others(pair, rows))
            for pair, rows in (((8, 32), noisy), ((32, 128), noisier))
        ]
        windows = [timed(size, s, CONTENDED) for size, s in ((8, 0.03), (32, 0.08), (128, 0.2))]
        trials = windows[0], windows[1], turns[0], windows[2], turns[1]
        asked = []
        for variables in ({"OMP_WAIT_POLICY": "PASSIVE"}, None):
            measurements = Measurements.of(record(*trials, variables=variables))
            request = next_size(measurements, Budget(measurements))
            asked.append(request.turns and request.turns.sizes)
        assert asked == [(8, 128), None], "not where threads may spin"

    def test_enough_clean_rounds_decide(self):
        both = in_turn(0.0, 0.0, rounds=4), in_turn(0.7, 0.1, rounds=8)
        mixed = numbered(*(trial_of(32, kind="turns", turns=turns) for turns in both))
        assert speeds_of(mixed, OF_A_CPU).compare(32, 8).low > 1
        assert speeds_of(mixed[1:], OF_A_CPU).compare(32, 8).low < 1

    def test_a_few_moments_without_others_are_not_compared_with_the_usual_ones(self):
        """32 met no others in four of twelve rounds, by chance; 8 and 64 did in all."""
        alone = {2, 5, 6, 9}
        rows = [(0.02, 0.02 if n in alone else 0.05, 0.1) for n in range(12)]
        lost = [(0.01, 0.0 if n in alone else 0.03, 0.05) for n in range(12)]
        turns = Turns(sizes=(8, 32, 64), step_s=rows, lost_s=lost)
        speeds = speeds_of(numbered(trial_of(64, kind="turns", turns=turns)), OF_A_CPU)
        assert speeds.compare(32, 8).median < 2.2, "x4 in the four, x1.6 in the others"

    @pytest.mark.parametrize(("own", "other"), [(CONTENDED, CLEAN), (CLEAN, CONTENDED)])
    def test_one_size_that_only_ran_beside_others_and_in_no_turns(self, own, other):
        """Threads that spin add the same to a step of any size: the larger then looks better."""
        run = record(timed(8, 0.5, own), timed(32, 0.5, other))
        assert against_own(Measurements.of(run), 32).low > 2
        assert standing(Measurements.of(run), 32) == "too noisy"
        advice = advise(run)
        assert advice.recommended.batch_size == 8
        marks = {mark for row in size_rows(run, advice) for mark in row.marks}
        assert "fastest" not in marks, "nobody knows which is"
        assert advice.change == "nothing to change"
        assert "samples per second" not in advice.reason

    def test_clean_ones_apart_are_compared(self):
        assert standing(Measurements.of(record(timed(8, 0.5), timed(32, 0.5))), 32) == "better"


@pytest.mark.parametrize(
    ("low", "high", "said"),
    [
        (0.9, 1.4, "Too noisy to tell whether 32 is faster (x0.90 to x1.40 the samples"),
        (0.05, 19.4, "Too noisy to tell how fast 32 is. Run again"),
        (1.1, 19.4, "32 is faster (x1.10 to x19.40"),
    ],
)
def test_an_interval_that_shows_nothing_is_not_printed(low, high, said):
    ratio = Spread(median=1.2, low=low, high=high, num_samples=3, confidence=0.98)
    measurements = Measurements.of(record(timed(8, 0.02, CONTENDED)))
    assert left_open(measurements, Rival(32, ratio)).startswith(said)


def test_another_hour_is_advised_once():
    """Programs and the hypervisor both took cores."""
    causes = (
        Cause(kind="processes", message="a", remedy=f"stop python, or {ANOTHER_HOUR}"),
        Cause(kind="hypervisor", message="b", remedy=f"{ANOTHER_HOUR} or elsewhere"),
    )
    run = record(timed(8, 0.02, CONTENDED, causes=causes))
    said = "Stop python. Run it at another hour or elsewhere."
    assert disturbances.remedy_against(causes) == said  # a callback has no budget
    waits = "A larger --budget lets it wait for undisturbed steps."
    assert disturbances.remedy(Measurements.of(run)) == f"{said} {waits}"


def shared(step_s, cpu_s):
    """A window beside others, in which steps used so much CPU time."""
    return {"step_s": step_s, "quality": msgspec.structs.replace(CONTENDED, cpu_s=cpu_s)}


SPINS, WORKS = (0.5, 0.48), (0.012, 0.015)
"""Seconds and CPU seconds of a step of 8: both threads on one core, and each on its own."""


class TestSpinningThreads:
    """Two threads on one core, a neighbour on the other: steps take fifty times as long."""

    def run(self, *turns, own=SPINS, other=WORKS):
        columns = [
            {
                "step_s": (rows[0][0], rows[1][0]),
                "lost_s": (rows[0][0] / 10, rows[1][0] / 10),
                "cpu_s": (rows[0][1], rows[1][1]),
            }
            for rows in turns
        ]
        rounds = Turns(
            sizes=(8, 32),
            **{key: tuple(row[key] for row in columns) for key in ("step_s", "lost_s", "cpu_s")},
        )
        together = (trial_of(32, kind="turns", turns=rounds),) if turns else ()
        return Measurements.of(
            record(trial_of(8, **shared(*own)), trial_of(32, **shared(*other)), *together)
        )

    def test_windows_of_which_one_spun(self):
        """A step of 32 needs as much CPU time as one of 8 at least: so that most of that spun."""
        assert standing(self.run(), 32) == "too noisy"

    @pytest.mark.parametrize(
        ("turns", "ratio"),
        [
            ([(SPINS, SPINS)] * 4, 4.0),  # the same for both
            ([(WORKS, WORKS)] * 3 + [(SPINS, SPINS)] * 3, 4.0),
            ([(WORKS, (0.024, 0.03))] * 4 + [(SPINS, (0.024, 0.03))] * 4, 2.0),
            ([(WORKS, (0.024, 0.03))] * 4 + [(WORKS, (0.6, 0.58))] * 4, 2.0),
        ],
    )
    def test_rounds_in_which_both_worked_decide(self, turns, ratio):
        measurements = self.run(*turns, other=SPINS)
        assert standing(measurements, 32) == "better"
        assert against_own(measurements, 32).median == pytest.approx(ratio, rel=0.1)

    def test_rounds_in_which_one_always_spun(self):
        measurements = self.run(*[(SPINS, WORKS)] * 4)
        assert standing(measurements, 32) == "too noisy"
        request = next_size(measurements, Budget(measurements))
        assert request.turns is not None
        assert request.turns.sizes == (8, 32)

    def test_a_ratio_beyond_that_of_the_sizes_is_of_two_states(self):
        """No counter shows it here; a step of 32 does not take less time than one of 8."""
        silent = [((0.5, 0.0), (0.012, 0.0))] * 4
        measurements = self.run(*silent, own=(0.5, None), other=(0.012, None))
        assert against_own(measurements, 32).low > 100
        assert standing(measurements, 32) == "too noisy"

    def test_a_larger_step_may_need_more_cpu_time(self):
        slow = (0.1, 0.15)
        measurements = self.run(*[(WORKS, slow)] * 4, own=WORKS, other=slow)
        assert standing(measurements, 32) == "worse"


class TestInterval:
    @pytest.mark.parametrize(("half_width", "said"), [(0.001, "worse"), (0.08, "too noisy")])
    def test_it_decides_and_not_its_middle(self, half_width, said):
        """A larger size that reads a little slower."""
        turns = Turns(sizes=(8, 32), step_s=((0.1, 0.41),) * 40)
        clean = trial_of(32, kind="turns", turns=turns)
        windows = timed(8, 0.1, half_width=half_width), timed(32, 0.41, half_width=half_width)
        run = record(*windows, *((clean,) if said == "worse" else ()))
        compared = against_own(Measurements.of(run), 32)
        assert compared.median < 1
        assert (compared.high < 1) is (said == "worse")
        assert standing(Measurements.of(run), 32) == said


class TestFreshProcess:
    @pytest.mark.parametrize(("half_width", "said"), [(0.02, "better"), (0.45, "too noisy")])
    def test_windows_in_which_the_speed_changed_do_not_decide(self, half_width, said):
        """Their medians may agree by luck."""
        search = timed(8, 0.02, half_width=half_width), timed(32, 0.05, half_width=half_width)
        again = [msgspec.structs.replace(trial, worker=1, purpose="confirm") for trial in search]
        measurements = Measurements.of(record(*search, *again[::-1], *again[::-1]))
        assert standing(measurements, 32) == said
        assert against_own(measurements, 32).median > 1

    def test_the_own_size_is_measured_where_steps_are_too_long_for_turns(self):
        result = session_of(986).search()
        trials = result.record.trials
        assert not any(trial.turns for trial in trials)
        sizes = [trial.batch_size for trial in trials if trial.purpose == "confirm"]
        assert sorted(sizes) == [2, 2, 5, 5]
        assert result.advice.standing == "better"

    def test_no_comparison_is_repeated_for_a_size_that_takes_no_turns(self):
        """A finalist whose steps are too long was waited for until the budget was spent."""
        result = session_of(544).search()
        again = Counter(
            trial.turns.sizes
            for trial in result.record.trials
            if trial.turns is not None and trial.purpose == "confirm"
        )
        assert max(again.values(), default=0) <= 1


def test_a_goal_for_memory_asks_for_no_time():
    run = record(timed(8, 0.5, CONTENDED), timed(32, 0.5, CONTENDED), goal=Goal(kind="memory"))
    assert standing(Measurements.of(run), 32) == "better"


def test_a_machine_that_became_faster_for_all_sizes_confirms():
    """The fresh process reads both sizes a fifth faster: that is the machine, not the size."""
    search = [trial_of(size, step) for size, step in ((8, 0.02), (40, 0.06))]
    both = [
        trial_of(size, step / 1.2, purpose="confirm", worker=1)
        for size, step in ((40, 0.06), (8, 0.02))
    ]
    together, alone = (
        disagreement(Measurements.of(record_of(numbered(*search, *again))), 40)
        for again in (both, both[:1])
    )
    assert together is None
    assert alone == pytest.approx(1.2)


class TestSmallerSizes:
    """The knee lies below the script's own 16; turns tell what it costs."""

    def run(self, share, tolerance=0.05, size=8, **script):
        """The throughput of the smaller size over that of 16 is `share`."""
        own_s = 0.032
        smaller_s = own_s * size / 16 / share
        turns = Turns(sizes=(size, 16), step_s=((smaller_s, own_s),) * 12)
        return record(
            *(timed(16, own_s), timed(size, smaller_s), timed(32, 0.0635)),
            trial_of(16, kind="turns", turns=turns),
            goal=Goal(tolerance=tolerance),
            discovery=discovery_of(16, **script),
        )

    @pytest.mark.parametrize(
        ("share", "tolerance", "said"),
        [
            (0.99, 0.05, "as good"),
            (1.04, 0.05, "better"),
            (0.97, 0.05, "worse"),
            (0.97, 0.02, "worse"),
            (0.9, 0.2, "as good"),
            (0.82, 0.2, "worse"),
        ],
    )
    def test_they_cost_next_to_nothing_or_what_was_asked_for(self, share, tolerance, said):
        assert standing(Measurements.of(self.run(share, tolerance)), 8) == said

    @pytest.mark.parametrize(
        ("size", "share", "why", "said"),
        [
            (8, 0.97, "worse", "chose 8, but compared with the script's own 16 it is not better"),
            (10, 0.99, "no gain", "chose 10, which is at most x1.01 as fast as the script's own"),
        ],
    )
    def test_the_own_size_stays_where_another_gains_nothing(self, size, share, why, said):
        advice = advise(self.run(share, size=size))
        assert (advice.recommended.batch_size, advice.standing) == (16, why)
        assert said in advice.reason
        assert advice.headline.startswith("Keep batch size 16")
        assert advice.change == "nothing to change"

    @pytest.mark.parametrize(
        ("size", "share", "said"),
        [(8, 0.99, "as good"), (9, 0.99, "no gain"), (15, 1.0, "no gain"), (15, 1.04, "better")],
    )
    def test_one_that_is_no_faster_has_to_be_much_smaller(self, size, share, said):
        assert standing(Measurements.of(self.run(share, size=size)), size) == said

    @pytest.mark.parametrize(
        ("size", "shares", "said"),
        [
            (8, (0.93, 1.0), "no gain"),
            (8, (0.85, 1.15), "too noisy"),
            (24, (0.97, 1.02), "no gain"),
            (24, (0.97, 1.1), "too noisy"),
        ],
    )
    def test_what_is_surely_no_faster_to_speak_of_is_not_too_noisy(self, size, shares, said):
        """It gains no more than the tolerance, whatever else the noise leaves open."""
        own_s = 0.032
        rows = tuple((own_s * size / 16 / share, own_s) for share in shares * 3)
        turns = Turns(sizes=(size, 16), step_s=rows)
        middle = sum(shares) / 2
        run = record(
            *(timed(16, own_s), timed(size, own_s * size / 16 / middle)),
            trial_of(16, kind="turns", turns=turns),
            discovery=discovery_of(16),
        )
        assert standing(Measurements.of(run), size) == said

    def test_one_that_may_be_faster_has_to_be_much_smaller(self):
        """Surely no slower, and faster for all that the noise tells."""
        own_s = 0.032
        rows = tuple((own_s * 10 / 16 / share, own_s) for share in (0.97, 1.1) * 8)
        windows = timed(16, own_s), timed(10, own_s * 10 / 16), timed(32, 0.0635)
        turns = trial_of(16, kind="turns", turns=Turns(sizes=(10, 16), step_s=rows))
        advice = advise(record(*windows, turns, discovery=discovery_of(16)))
        assert (advice.recommended.batch_size, advice.standing) == (16, "no gain")
        assert "chose 10, which is about as fast as the script's own 16 (x0.98" in advice.reason
        assert "and not much smaller" in advice.reason

    def test_its_words(self):
        advice = advise(OF_THE_OWN_SIZE["hardly faster"])
        assert (advice.recommended.batch_size, advice.standing) == (8, "no gain")
        assert "The search chose 4, which is at most x1.0" in advice.reason
        assert advice.headline.startswith("Keep batch size 8: ")
        assert "noisy" not in advice.headline + advice.reason

    def test_a_tolerance_that_was_granted_is_for_any_smaller_size(self):
        assert standing(Measurements.of(self.run(0.9, tolerance=0.2, size=12)), 12) == "as good"

    @pytest.mark.parametrize(("num_samples", "said"), [(161, "as good"), (168, "worse")])
    def test_a_clean_end_of_the_epochs_is_worth_the_tolerance(self, num_samples, said):
        """Of 161 samples 16 leaves a single one to BatchNorm, 7 none."""
        norms = NormLayers(batch_norm=2, batch_norm_values=1)
        run = self.run(0.975, size=7, num_samples=num_samples, norm_layers=norms)
        assert Measurements.of(run).harmful(16) == (num_samples == 161)
        assert standing(Measurements.of(run), 7) == said


class TestRivals:
    """A size that the noise leaves as a rival of the recommended one: never "confirmed"."""

    @staticmethod
    def windows(half_width, *more, **changes):
        """8 in 20 ms, 64 in 25 ms, and 256 no faster: 2,440 against 2,560 samples/s."""
        again = [(64, 0.025), (8, 0.02)] * 2
        return record(
            trial_of(8, 0.02),
            trial_of(64, 0.025),
            trial_of(256, 0.105, half_width=half_width),
            *(trial_of(*pair, worker=1, purpose="confirm") for pair in again),
            *more,
            **changes,
        )

    def test_a_wide_interval_leaves_the_answer_open(self):
        run = self.windows(0.3)
        advice = advise(run)
        assert advice.recommended.batch_size == 64
        assert "Too noisy to tell whether 256 is faster" in advice.reason
        assert "Run again with a larger --budget." in advice.reason
        assert "the fastest of the search" not in advice.reason
        assert advice.sureness == "not confirmed"
        ratio = open_rival(Measurements.of(run), 64).ratio
        assert ratio.low < 1 < ratio.median * 1.3 < ratio.high * 1.1

    def test_a_narrow_one_does_not(self):
        advice = advise(self.windows(0.01))
        assert advice.recommended.batch_size == 64
        assert "too noisy" not in advice.reason.lower()
        assert advice.sureness == "confirmed"

    MET = Turns(sizes=(64, 256), step_s=((0.025, 0.105),) * 12)

    @pytest.mark.parametrize(
        ("more", "kind"),
        [
            ((), "memory"),
            ((), "energy"),
            ((trial_of(256, kind="turns", turns=MET),), "knee"),  # more than windows apart
            ((failure_of(256),), "knee"),
        ],
        ids=["memory", "energy", "turns", "failed"],
    )
    def test_what_is_no_rival(self, more, kind):
        run = self.windows(0.5, *more, goal=Goal(kind=kind))
        assert open_rival(Measurements.of(run), 64) is None

    def test_an_own_size_kept_for_noise_is_not_confirmed(self):
        """The comparison says nothing, though the fresh process read 8 as the search did."""
        search = [trial_of(8, 0.02, half_width=0.3), trial_of(32, 0.07, half_width=0.3)]
        again = [msgspec.structs.replace(trial, worker=1, purpose="confirm") for trial in search]
        advice = advise(record(*search, *again[::-1], *again[::-1]))
        assert advice.standing == "too noisy"
        assert advice.recommended.batch_size == 8
        assert advice.sureness == "not confirmed"


@pytest.mark.parametrize("kind", ["knee", "throughput"])
def test_a_clean_size_whose_confirmation_came_too_late_is_no_answer(kind, monkeypatch):
    """It ran in the fresh process and was not timed, and the own size was: both were said of it."""
    monkeypatch.setattr(decision, "finalists", lambda _: (24, 32))
    cut = trial_of(24, peak=1, purpose="confirm", kind="timed", worker=1)
    trials = timed(8, 0.02), timed(32, 0.04), cut
    chosen = choose(Measurements.of(record(*trials)), Goal(kind=kind))
    assert (chosen.size, chosen.standing) == (32, "better")
