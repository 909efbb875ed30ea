"""The decision: which rule chose, and that the sentences have words for each."""

from typing import get_args

import msgspec
import pytest
from batchadvisor.advisor.advise import advise
from batchadvisor.advisor.choose.because import (
    Again,
    AskedFor,
    Because,
    Doubt,
    Knee,
    KneeRule,
    NotCompared,
    NothingLarger,
    OfNothing,
    Rival,
)
from batchadvisor.advisor.choose.decision import Decision, choose
from batchadvisor.advisor.explain.headline import headline
from batchadvisor.advisor.explain.ratios import against_own
from batchadvisor.advisor.explain.reasons import OF_THE_SMALLEST, _knee, reason
from batchadvisor.advisor.measured.measurements import Measurements
from batchadvisor.records import Choice, Goal, Observed, Spread, Standing
from hypothesis import given
from hypothesis import strategies as st

from ..on_paper import discovery_of, exactly, record_of, trial_of
from .decisions import DOUBTS, KNEES, OF_THE_OWN_SIZE, RECORDS, STEPS, of, searched

WITHOUT_A_SIZE = (*get_args(OfNothing), NotCompared, NothingLarger)


def decided(record):
    return choose(Measurements.of(record), record.goal)


class TestRules:
    def test_each_has_a_record(self):
        assert set(RECORDS) == {kind.__name__ for kind in get_args(Because)}
        assert set(KNEES) == set(get_args(KneeRule))
        assert set(DOUBTS) == set(get_args(Doubt))

    @pytest.mark.parametrize("name", RECORDS)
    def test_it_is_reached(self, name):
        decision = decided(RECORDS[name])
        assert type(decision.because).__name__ == name
        assert (decision.size is None) is isinstance(decision.because, WITHOUT_A_SIZE)

    @pytest.mark.parametrize("rule", KNEES)
    def test_each_of_the_knee(self, rule):
        because = decided(KNEES[rule]).because
        assert isinstance(because, Knee)
        assert because.rule == rule

    @pytest.mark.parametrize("doubt", DOUBTS)
    def test_each_doubt(self, doubt):
        because = decided(DOUBTS[doubt]).because
        assert (because.rule, because.doubt) == ("smallest within the tolerance", doubt)
        assert because.again.other == 64

    @pytest.mark.parametrize(
        ("name", "numbers"),
        [
            ("NextToLargest", (512, 0.05)),
            ("NextToFastest", (512, 0.02, None)),
            ("FasterAgain", (Again(64, 2.0, 2.0, 2.0, 2),)),
            ("FastestConfirmed", (64,)),
            ("FastestUsable", (64,)),
            ("NotCompared", (8, (32, 64))),
            ("NeverDelivered", (4, 8)),
            ("NeverTimed", (64,)),
            ("OutOfMemory", (2,)),
            ("Failed", (8, "exception on paper")),
        ],
    )
    def test_what_it_rests_on(self, name, numbers):
        assert msgspec.structs.astuple(decided(RECORDS[name]).because) == numbers

    def test_the_share_that_the_loader_takes(self):
        assert decided(RECORDS["LoaderSetsThePace"]).because.share == pytest.approx(0.4)

    def test_the_one_chosen_among_those_asked_for(self):
        because = decided(RECORDS["AskedFor"]).because
        assert because.own == 8
        assert because.rule == Knee("smallest within the tolerance")
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
        for name, considered in (("NotBetter", 32), ("TooNoisy", 12)):
            decision = decided(OF_THE_OWN_SIZE[name])
            assert (decision.size, decision.considered) == (8, considered)
            assert decision.ratio is not None

    def test_a_rival_speaks_against_it(self):
        decision = decided(KNEES["fastest"])
        assert (decision.size, decision.against.size) == (64, 256)
        assert decided(KNEES["smallest within the tolerance"]).against is None

    def test_a_callback_compares_nothing(self):
        seen = of(*searched(STEPS), observed=Observed(framework="plain", num_steps=90, sizes=()))
        decision = decided(seen)
        assert (decision.size, decision.standing) == (32, "own")
        assert (decision.ratio, decision.against) == (None, None)

    def test_without_a_training_loop_that_was_found(self):
        record = msgspec.structs.replace(KNEES["smallest within the tolerance"], discovery=None)
        assert (decided(record).size, decided(record).standing) == (32, "own")

    @pytest.mark.parametrize("kind", ["throughput", "memory", "energy"])
    def test_another_goal_of_the_same_measurements(self, kind):
        record, goal = DOUBTS["none"], Goal(kind=kind)
        assert choose(Measurements.of(record), goal) == choose(Measurements.of(record, goal), goal)

    @pytest.mark.parametrize("record", [*RECORDS.values(), *KNEES.values(), *DOUBTS.values()])
    def test_the_advice_says_what_was_decided(self, record):
        advice, decision = advise(record), decided(record)
        recommended = advice.recommended and advice.recommended.batch_size
        assert recommended == decision.size
        assert (advice.standing, advice.considered) == (decision.standing, decision.considered)
        assert advice.against_own == decision.ratio


SIZES = st.integers(1, 4096)
SHARES = st.floats(0, 2)
RATIOS = st.builds(exactly, st.floats(0.1, 10), st.floats(0, 0.9))
BY_TYPE = {
    int: SIZES,
    float: SHARES,
    str: st.text("abc", min_size=1),
    type(None): st.none(),
    Again: st.builds(Again, SIZES, SHARES, SHARES, SHARES, st.integers(1, 9)),
    tuple[int, ...]: st.lists(SIZES, min_size=1).map(tuple),
}


def made(kind):
    """Any value of a type: a rule with any numbers, one of several, or one of some words."""
    if kind in BY_TYPE:
        return BY_TYPE[kind]
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        fields = msgspec.structs.fields(kind)
        return st.builds(kind, **{field.name: made(field.type) for field in fields})
    words = [word for word in get_args(kind) if isinstance(word, str)]
    return st.sampled_from(words) if words else st.one_of(map(made, get_args(kind)))


def decisions_by(kind):
    """Decisions of any numbers, by a rule of this kind."""
    size = st.none() if kind in WITHOUT_A_SIZE else SIZES
    return st.builds(
        Decision,
        size=size,
        standing=st.sampled_from(get_args(Standing)),
        because=made(kind),
        against=st.none() | st.builds(Rival, SIZES, RATIOS),
        considered=st.none() | SIZES,
        ratio=st.none() | RATIOS,
    )


def sizes_in(because):
    """The sizes that a rule names in any case."""
    if isinstance(because, AskedFor):
        return {because.own}
    names = {"avoided", "own", "smallest", "largest", "num_samples"}
    found = {name: getattr(because, name) for name in names & set(because.__struct_fields__)}
    return {size for size in found.values() if isinstance(size, int)}


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
        sizes = [
            Choice(
                batch_size=size,
                trial=0,
                step_s=None,
                peak_bytes=None,
                epoch_s=None,
                samples_per_s=Spread(
                    low=low, median=median, high=high, num_samples=9, confidence=0.9
                ),
            )
            for size, (low, median, high) in ((64, mine), (8, theirs))
        ]
        text = against_own(*sizes, None, "samples per second")
        assert text.startswith(f"{said} than the script's own 8 (x")

    @pytest.mark.parametrize("rule", get_args(KneeRule))
    def test_what_the_fresh_process_preferred_is_not_said_by_the_search(self, rule):
        because = Knee(rule, 32, Again(128, 0.93, 0.9, 0.94, 1), "few readings")
        text = _knee(Measurements.of(of(*searched(STEPS))), because)
        assert text.startswith("By the search ") is (rule in OF_THE_SMALLEST)
        assert "In the fresh process it reached 93.0% of the throughput of 128" in text
        assert text.endswith("too few comparisons to tell; run again with a larger --budget.")

    @pytest.mark.parametrize("kind", get_args(Because))
    @given(data=st.data())
    def test_each_rule_has_some(self, kind, data):
        """Whatever was decided, the sentences say it, and ask the record for nothing more."""
        decision = data.draw(decisions_by(kind))
        measurements = Measurements.of(record_of([trial_of(8, 0.1)]))
        choice = None
        if decision.size is not None:
            choice = Choice(
                batch_size=decision.size,
                trial=0,
                samples_per_s=exactly(80.0),
                step_s=None,
                peak_bytes=None,
            )
        said = reason(measurements, decision, choice, None)
        assert said
        assert all(str(size) in said for size in sizes_in(decision.because))
        assert headline(choice, decision)
