"""The decision: which rule chose, and that the sentences have words for each."""

import functools
from typing import get_args

import msgspec
import pytest
from batchadvisor.advisor.advise import advise
from batchadvisor.advisor.choose.decision import (
    Because,
    Decision,
    OfNothing,
    OfTheGoal,
    OfTheOwnSize,
    Rival,
    choose,
)
from batchadvisor.advisor.explain.headline import headline
from batchadvisor.advisor.explain.ratios import against_own
from batchadvisor.advisor.explain.reasons import reason
from batchadvisor.advisor.measured.measurements import Measurements
from batchadvisor.records import Choice, Goal, Observed, Spread, Standing, Turns
from hypothesis import given
from hypothesis import strategies as st

from ..on_paper import discovery_of, exactly, record_of, trial_of
from .decisions import DOUBTED, KNEES, LUCKY, OF_THE_OWN_SIZE, RECORDS, STEPS, again, of, searched

RULES = (*get_args(OfTheGoal), *get_args(OfTheOwnSize), *get_args(OfNothing))
WITHOUT_A_SIZE = (*get_args(OfNothing), "not compared", "nothing larger")
RESTS_ON = {
    "next to the largest": {"other": 512, "numbers": (0.05,)},
    "next to the fastest": {"other": 512, "numbers": (0.02,)},
    "loader sets the pace": {"numbers": (pytest.approx(0.4),)},
    "worth a change": {"other": 12},
    "fastest confirmed": {"other": 64},
    "not compared": {"other": 8, "sizes": (32, 64)},
    "never delivered": {"other": 8, "numbers": (4,)},
    "never timed": {"other": 64},
    "out of memory": {"other": 2},
    "failed": {"other": 8, "why": "exception on paper"},
}
"""What some of the rules go by."""


def decided(record):
    return choose(Measurements.of(record), record.goal)


def test_of_sizes_that_none_compared_no_lucky_reading_is_taken():
    record = of(*searched(STEPS), LUCKY, *again((8, 0.1)), kind="throughput")
    assert decided(record).size == 64


class TestRules:
    def test_each_has_a_record(self):
        assert set(RECORDS) == set(RULES)

    @pytest.mark.parametrize("rule", RECORDS)
    def test_it_is_reached_and_the_advice_says_so(self, rule):
        decision, advice = decided(RECORDS[rule]), advise(RECORDS[rule])
        assert decision.because.rule == rule
        assert (decision.size is None) is (rule in WITHOUT_A_SIZE)
        if rule in RESTS_ON:
            assert decision.because == Because(rule, **RESTS_ON[rule])
        assert (advice.recommended and advice.recommended.batch_size) == decision.size
        assert (advice.standing, advice.considered) == (decision.standing, decision.considered)
        assert advice.against_own == decision.ratio

    def test_a_ratio_is_of_sizes_that_were_measured_again(self):
        because = decided(RECORDS["faster again"]).because
        assert (because.other, because.rival) == (64, 64)
        assert because.ratio.low > 1
        assert decided(RECORDS["within the tolerance"]).because.ratio is None

    def test_a_doubted_size_is_said_to_be_so(self):
        because = decided(DOUBTED).because
        assert (because.rule, because.rival) == ("within the tolerance", 64)
        assert because.ratio.median < 0.95 < because.ratio.high
        reason = advise(DOUBTED).reason
        assert reason.startswith("By the search the smallest size that reaches 95% of the best. ")
        assert reason.count("64") == 1, "one set of figures for the pair"

    def test_a_change_gains_what_the_tolerance_gives(self):
        """12 reaches 95 % of the best and is 3 % faster than the own 8; 32 is 6 % faster."""
        assert decided(RECORDS["worth a change"]).size == 32
        assert advise(RECORDS["worth a change"]).reason.startswith(
            "The smallest size within 5% of the best throughput that gains as much over the "
            "script's own (12 does not)."
        )
        unknown = msgspec.structs.replace(RECORDS["worth a change"], discovery=None)
        assert decided(unknown).size == 12
        smaller = discovery_of(native=12)
        inside = msgspec.structs.replace(RECORDS["worth a change"], discovery=smaller)
        assert decided(inside).size == 12

    def test_the_one_chosen_among_those_asked_for(self):
        because = decided(RECORDS["asked for"]).because
        assert because.other == 8
        assert because.among == Because("within the tolerance")
        alone = of(trial_of(32, 0.16), goal=Goal(sizes=(32,)))
        assert advise(alone).reason.startswith("The script's own 8 was not asked for")


class TestDecision:
    @pytest.mark.parametrize("kind", ["knee", "throughput", "memory"])
    def test_no_size_above_the_dataset(self, kind):
        """However fast it ran on samples that it saw more than once."""
        asked = (trial_of(8, 0.1), trial_of(200, 0.11), trial_of(900, 0.12))
        discovery = discovery_of(num_samples=300)
        record = of(*asked, discovery=discovery, goal=Goal(kind=kind, sizes=(8, 200, 900)))
        assert decided(record).size == 200
        advice = advise(record)
        assert "900" not in advice.headline
        (above,) = (each for each in advice.findings if each.rule == "size.above_data")
        assert "batch 900: larger than the dataset, whose epoch has 300" in above.message

    def test_kept_for_the_own_size(self):
        for name, considered in (("not better", 32), ("hardly faster", 4), ("too noisy", 12)):
            decision = decided(OF_THE_OWN_SIZE[name])
            assert (decision.size, decision.considered) == (8, considered)
            assert decision.ratio is not None

    def test_a_rival_speaks_against_it(self):
        decision = decided(KNEES["highest of the search"])
        assert (decision.size, decision.against.size) == (64, 256)
        assert decided(KNEES["within the tolerance"]).against is None

    def test_a_rival_that_reads_faster_than_what_was_measured_again(self):
        """Nothing is called the fastest beside a size that stands there with more."""
        advice = advise(KNEES["highest until measured again"])
        shown = {choice.batch_size: choice.samples_per_s.median for choice in advice.sizes}
        assert advice.recommended.batch_size == 64
        assert shown[256] > shown[64]
        assert advice.fastest_is_open
        assert "throughput of the search; measured again it was slower. " in advice.reason
        assert "Too noisy to tell whether 256 is faster" in advice.reason
        assert not advise(KNEES["highest of the search"]).fastest_is_open

    def test_a_rival_that_reads_faster_and_took_no_turns_was_not_measured_again(self):
        """Nor was the size that did: the reason names the one that no turn met, and no more."""
        met = Turns(sizes=(8, 64), step_s=((0.02, 0.1),) * 6)
        record = of(
            *searched({8: 0.02, 64: 0.1}),
            trial_of(64, kind="turns", turns=met, samples_per_s=None),
            trial_of(256, 0.32, half_width=0.4),
        )
        advice = advise(record)
        assert advice.recommended.batch_size == 64
        assert "256 took none, and may be faster" in advice.reason
        assert "measured again" not in advice.reason

    @pytest.mark.parametrize("larger", [True, False])
    def test_a_size_that_took_its_turns_at_the_end_is_compared(self, larger):
        """Of the others alone the reason says that they may be faster."""
        met = Turns(sizes=(8, 64), step_s=((0.02, 0.1),) * 6)
        at_the_end = Turns(sizes=(8, 64, 256), step_s=((0.02, 0.1, 0.402),) * 6)
        record = of(
            *searched({8: 0.02, 64: 0.1}),
            trial_of(64, kind="turns", turns=met, samples_per_s=None),
            trial_of(256, 0.32, half_width=0.4),
            *([trial_of(512, 0.62, half_width=0.4)] if larger else []),
            *again((64, 0.1), (256, 0.402)),
            trial_of(
                64, kind="turns", turns=at_the_end, samples_per_s=None, purpose="confirm", worker=1
            ),
        )
        advice = advise(record)
        assert advice.recommended.batch_size == 64
        found = {finding.rule: finding.message for finding in advice.findings}
        if larger:
            assert "(512 took none, and may be faster)" in advice.reason
            assert "batch 512 took no turns with" in found["turns.left_out"]
        else:
            assert "of the sizes that took turns in the search" in advice.reason
            assert "turns.left_out" not in found

    @pytest.mark.parametrize(
        "change",
        [{"observed": Observed(framework="plain", num_steps=90, sizes=())}, {"discovery": None}],
        ids=["a callback", "no training loop was found"],
    )
    def test_nothing_is_compared_without_an_own_size(self, change):
        decision = decided(msgspec.structs.replace(KNEES["within the tolerance"], **change))
        assert (decision.size, decision.standing) == (32, "own")
        assert (decision.ratio, decision.against) == (None, None)

    @pytest.mark.parametrize("kind", ["throughput", "memory", "energy"])
    def test_another_goal_of_the_same_measurements(self, kind):
        record, goal = DOUBTED, Goal(kind=kind)
        assert choose(Measurements.of(record), goal) == choose(Measurements.of(record, goal), goal)


SIZES = st.integers(1, 4096)
RATIOS = st.builds(exactly, st.floats(0.1, 10), st.floats(0, 0.9))


@functools.cache  # to make one takes longer than to draw from it
def reasons_by(rule, among=None):
    """Any that a rule may have: it names a size, and has numbers to go by."""
    return st.builds(
        Because,
        st.just(rule),
        SIZES,
        ratio=RATIOS if rule == "faster again" else st.none() | RATIOS,
        rival=SIZES,
        numbers=st.tuples(*[st.floats(0, 2)] * (3 if rule == "next to the thriftiest" else 1)),
        sizes=st.lists(SIZES, min_size=1).map(tuple),
        why=st.text("abc", min_size=1),
        among=st.none() if among is None else among,
    )


@functools.cache
def decisions_by(rule):
    """Decisions of any numbers, by this rule."""
    return st.builds(
        Decision,
        size=st.none() if rule in WITHOUT_A_SIZE else SIZES,
        standing=st.sampled_from(get_args(Standing)),
        because=reasons_by(rule, st.sampled_from(get_args(OfTheGoal)).flatmap(reasons_by)),
        against=st.none() | st.builds(Rival, SIZES, RATIOS),
        considered=st.none() | SIZES,
        ratio=st.none() | RATIOS,
    )


NAMING = (
    "asked for", "not compared", "nothing larger", "never delivered", "never timed",
    "failed", "out of memory", "too large", "fastest confirmed",
)  # fmt: skip
"""Rules whose sentences name the other size in any case."""


def spread_of_ends(low, median, high):
    return Spread(low=low, median=median, high=high, num_samples=9, confidence=0.9)


def choice_of(size, rate):
    return Choice(batch_size=size, trial=0, step_s=None, peak_bytes=None, samples_per_s=rate)


class TestWords:
    @pytest.mark.parametrize(
        ("mine", "theirs", "said"),
        [
            ((1.0, 5.0, 9.0), (0.4, 0.5, 0.6), "Faster"),
            ((0.1, 0.5, 0.9), (4.0, 5.0, 6.0), "Slower"),
        ],
    )
    def test_a_ratio_too_wide_for_a_number_has_a_side(self, mine, theirs, said):
        """The largest size that fits may be slower than the script's own."""
        sizes = (choice_of(64, spread_of_ends(*mine)), choice_of(8, spread_of_ends(*theirs)))
        text = against_own(*sizes, None, "samples per second")
        assert text.startswith(f"{said} than the script's own 8 (x")

    @pytest.mark.parametrize("rule", RULES)
    @given(data=st.data())
    def test_each_rule_has_some(self, rule, data):
        """Whatever was decided, the sentences say it, and ask the record for nothing more."""
        decision = data.draw(decisions_by(rule))
        measurements = Measurements.of(record_of([trial_of(8, 0.1)]))
        choice = None
        if decision.size is not None:
            choice = choice_of(decision.size, exactly(80.0))
        said = reason(measurements, decision, choice, None)
        assert said
        assert rule not in NAMING or str(decision.because.other) in said
        assert headline(choice, decision)
