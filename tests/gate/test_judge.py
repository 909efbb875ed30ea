"""Conditions, which runs are compared, and what their intervals say of a condition."""

import itertools
import random
import re

import msgspec
import pytest
from batchadvisor.errors import UsageError
from batchadvisor.features.gate.evidence import ROUNDS_NEEDED, taken
from batchadvisor.features.gate.judge import judge
from batchadvisor.features.gate.session import condition_of
from batchadvisor.records import DeviceInfo

from .runs import LASTS_S, STORED, changed, in_turn, run

SLOWER = condition_of("step_time>+5%")
LARGER = condition_of("peak_memory>+3%")


@pytest.mark.parametrize(
    ("text", "measure", "above", "limit"),
    [
        ("step_time>+5%", "step_time", True, 0.05),
        ("peak_memory > +3%", "peak_memory", True, 0.03),
        ("throughput<-5%", "throughput", False, -0.05),
        ("step_time>-2.5%", "step_time", True, -0.025),  # it has to become faster
    ],
)
def test_a_condition_is_read(text, measure, above, limit):
    condition = condition_of(text)
    assert (condition.measure, condition.above) == (measure, above)
    assert condition.limit == pytest.approx(limit)
    assert condition.text == text.replace(" ", "")


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("speed>+5%", "'speed' is no measure. Use one of step_time, throughput, peak_memory."),
        (">+5%", "names no measure"),
        ("step_time>5%", "lacks its sign: + is more, - is less. Write step_time>+5%."),
        ("step_time>+5", "lacks its unit, %. Write step_time>+5%."),
        ("step_time>5", "lacks its unit, %. Write step_time>+5%."),
        ("step_time+5%", "stands < or >. Write step_time>+5%."),
        ("step_time>=+5%", "stands < or >. Write step_time>+5%."),
        ("step_time>", "lacks its limit"),
        ("step_time>+5ms", "'+5ms' is no change in percent"),
        ("step_time>+nan%", "'+nan%' is no change in percent"),
        ("throughput<-100%", "nothing shrinks by all of it"),
        ("", "names no measure"),
    ],
)
def test_what_is_no_condition_is_said_in_a_line(text, part):
    with pytest.raises(UsageError) as error:
        condition_of(text)
    said = str(error.value)
    assert part in said
    assert said.startswith(f"--fail-if {text!r}: ")
    assert "\n" not in said


def only(gate):
    (result,) = gate.results
    return result


class TestTimes:
    def test_a_slow_down_in_every_round_is_found(self):
        noise = (0.98, 1.03, 1.0, 0.97, 1.02, 1.01, 0.99, 1.0)
        gate = judge(*in_turn([(each, 1.1 * each) for each in noise]), [SLOWER])
        assert (gate.verdict, gate.exit_code, gate.rounds) == ("fails", 1, 8)
        result = only(gate)
        assert result.outcome == "exceeded"
        assert result.ratio.median == pytest.approx(1.1)
        assert result.ratio.confidence >= 0.98

    def test_the_same_times_pass(self):
        gate = judge(*in_turn([(1.0, 1.001)] * ROUNDS_NEEDED), [SLOWER])
        assert (gate.verdict, gate.exit_code, only(gate).outcome) == ("passes", 0, "kept")

    @pytest.mark.parametrize(
        ("pairs", "has_interval"),
        [
            ([(1.0, 1.3)] * (ROUNDS_NEEDED - 1), False),
            ([(1.0, 1.1)] * (ROUNDS_NEEDED - 1) + [(1.0, 1.02)], True),
        ],
        ids=["too few, however clear", "one of seven the other way"],
    )
    def test_what_leaves_it_open(self, pairs, has_interval):
        gate = judge(*in_turn(pairs), [SLOWER])
        assert (gate.verdict, gate.exit_code) == ("cannot tell", 0)
        assert only(gate).has_interval is has_interval
        assert (only(gate).enough_rounds == ROUNDS_NEEDED) is not has_interval

    def test_runs_that_took_no_turns_do_not_count(self):
        """All of one side hours before the other: the machine may be another by then."""
        before = [run(f"before/{at}", 20.0 * at) for at in range(10)]
        after = [run(f"after/{at}", 10_000 + 20.0 * at, 1.3) for at in range(10)]
        gate = judge(before, after, [SLOWER])
        assert (gate.verdict, gate.rounds) == ("cannot tell", 0)
        assert only(gate).ratio.median == pytest.approx(1.3)

    def test_throughput_is_the_other_side_of_it(self):
        gate = judge(*in_turn([(1.0, 1.1)] * 8), [condition_of("throughput<-5%"), SLOWER])
        assert [each.outcome for each in gate.results] == ["exceeded", "exceeded"]
        throughput, step = gate.results
        assert throughput.ratio.median == pytest.approx(1 / step.ratio.median)

    def test_an_improvement_may_be_demanded(self):
        demand = condition_of("step_time>-5%")
        assert judge(*in_turn([(1.0, 0.9)] * 8), [demand]).verdict == "passes"
        assert judge(*in_turn([(1.0, 0.99)] * 8), [demand]).verdict == "fails"

    def test_without_a_condition_it_only_compares(self):
        gate = judge(*in_turn([(1.0, 1.1)] * 8))
        assert (gate.verdict, gate.exit_code) == ("compared", 0)
        assert [(each.measure, each.outcome) for each in gate.results] == [
            ("step_time", "more"),
            ("peak_memory", "cannot tell"),
        ]

    @pytest.mark.parametrize(
        "num", [7, *(pytest.param(num, marks=pytest.mark.slow) for num in (8, 12, 20))]
    )
    def test_false_alarms_are_at_most_one_in_a_hundred(self, num):
        """Of a script against itself, whatever the noise: heavy tails, spells, all above +0 %."""
        draw = random.Random(num)
        condition = condition_of("step_time>+0%")
        alarms = 0
        for _ in range(400):
            pairs = []
            for _ in range(num):
                spell = draw.choice((1.0, 1.0, 1.4))
                one, two = (spell * (1 + 0.2 * draw.paretovariate(3)) for _ in range(2))
                pairs.append((one, two))
            alarms += judge(*in_turn(pairs), [condition]).exit_code
        assert alarms <= 8  # of 400 at 1 %, more than 8 happen once in 50 at the limit


class TestPeaks:
    @pytest.mark.parametrize(
        ("after", "outcome"), [(1.0, "kept"), (1.04, "cannot tell"), (1.08, "exceeded")]
    )
    def test_one_run_of_each_side_tells(self, after, outcome):
        gate = judge([run("a", 0)], [run("b", 100_000, peak=after)], [LARGER])
        assert only(gate).outcome == outcome
        assert only(gate).enough_rounds is None  # more of the same leave open what one does

    def test_runs_that_differ_widen_the_interval(self):
        before = [run("a", 0), run("b", 50, peak=1.1)]
        after = [run("c", 100, peak=1.08), run("d", 150, peak=1.2)]
        assert only(judge(before, after, [LARGER])).outcome == "cannot tell"


class TestRounds:
    def test_each_run_is_in_one(self):
        """A, B, B, A: two rounds, whichever side came first."""
        step = LASTS_S + 1
        before = [run("a", 0), run("b", 3 * step)]
        after = [run("c", step), run("d", 2 * step)]
        assert taken(before, after).rounds == ((0, 0), (1, 1))

    def test_a_run_that_does_not_say_when_it_began_is_in_none(self):
        before, after = in_turn([(1.0, 1.0)] * 2)
        before = [changed(each, started_at="") for each in before]
        assert taken(before, after).rounds == ()

    def test_a_pause_ends_one(self):
        before, after = [run("a", 0)], [run("b", LASTS_S + 121)]
        assert taken(before, after).rounds == ()

    def test_nothing_hangs_on_the_order_of_the_runs(self):
        before, after = in_turn([(1.0, 1.02), (1.0, 1.03), (1.01, 1.04)])
        pairs = {frozenset((before[a].path, after[b].path)) for a, b in taken(before, after).rounds}
        for left in itertools.permutations(before):
            found = {frozenset((left[a].path, after[b].path)) for a, b in taken(left, after).rounds}
            assert found == pairs


H100 = DeviceInfo(
    kind="cuda", name="H100", total_bytes=2**36, capacity_bytes=2**36, capacity_source=""
)


def with_trial(run, **changes):
    return changed(run, trials=(msgspec.structs.replace(run.record.trials[0], **changes),))


class TestNotComparable:
    def reasons(self, before, after, **rest):
        gate = judge(before, after, [SLOWER], **rest)
        assert (gate.verdict, gate.exit_code, gate.results) == ("cannot be compared", 3, ())
        return "; ".join(gate.reasons)

    @pytest.mark.parametrize(
        ("changes", "said"),
        [
            ({"size": 16}, "the batch sizes are not the same: a timed 8, b timed 16"),
            ({"device": H100}, "the device is not the same: .*H100 \\(cuda, 64 GiB\\) in b"),
            ({"machine": "2"}, "the machine is not the same: 1 in a, 2 in b"),
        ],
        ids=["size", "device", "machine"],
    )
    def test_another_one(self, changes, said):
        other = run("b", 9, **{"machine": "1", **changes})
        assert re.fullmatch(said, self.reasons([run("a", 0, machine="1")], [other]))

    def test_a_size_that_was_asked_for(self):
        said = self.reasons([run("a", 0)], [run("b", 9)], size=64)
        assert said == "a, b timed no batch size 64"

    def test_records_that_do_not_say_their_machine_are_compared(self):
        assert judge([run("a", 0)], [run("b", 9, machine="2")], [LARGER]).exit_code == 0

    def test_other_steps(self):
        other = with_trial(run("b", 9), micro_batches=4)
        assert "1 batches in a, 4 in b" in self.reasons([run("a", 0)], [other])

    def test_a_run_that_failed(self):
        failed = changed(run("b", 9), trials=(), stop_reason="out of memory")
        said = self.reasons([run("a", 0)], [failed])
        assert said == "b timed no batch size: out of memory"

    def test_a_run_that_timed_nothing_still_has_a_peak(self):
        other = with_trial(run("b", 9), kind="fit", step_s=None, samples_per_s=None)
        assert judge([run("a", 0)], [other], [LARGER]).verdict == "passes"
        assert "b timed no batch size" in self.reasons([run("a", 0)], [other])

    def test_what_else_changed_is_said(self):
        script = msgspec.structs.replace(STORED.script, arguments=("--fast",))
        gate = judge([run("a", 0)], [run("b", 9, script=script)], [LARGER])
        assert gate.exit_code == 0
        assert ("arguments", "", "--fast") in gate.differs
