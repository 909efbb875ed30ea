"""Findings of inputs that differ in length, of padding, and of searches that were cut short."""

import pytest
from batchadvisor.advisor.advise import advise
from batchadvisor.advisor.explain.token_findings import HIGH_PADDING, padding
from batchadvisor.advisor.measured.measurements import Measurements
from batchadvisor.records import Goal, InputSize, Tokens

from ..on_paper import GIB, discovery_of, failure_of, numbered, record_of, trial_of
from .finding_cases import findings

ROOM = Measurements.of(record_of()).target_bytes


def varying(*largest, door="loader", missing=None, **goal):
    """Trials whose batches were so large at most."""
    trials = [
        trial_of(8, 0.1, peak=GIB, inputs=InputSize(num_batches=3, smallest=10.0, largest=size))
        for size in largest
    ]
    discovery = discovery_of(door=door, unavailable=missing or {})
    return record_of(numbered(*trials), goal=Goal(**goal), discovery=discovery)


class TestVaryingInputs:
    @pytest.mark.parametrize(
        ("largest", "goal", "widening"),
        [
            ((100.0, 100.0), {}, 1),
            ((100.0, 100.0, 120.0), {}, 1.2),
            ((10.0, 10.0, 1000.0), {}, 1.5),  # not without end
            ((10.0, 10.0, 1000.0), {"worst_case": True}, 1),
        ],
    )
    def test_room_is_left_for_the_longest_seen(self, largest, goal, widening):
        assert Measurements.of(varying(*largest, **goal)).target_bytes == int(ROOM / widening)

    @pytest.mark.parametrize(
        ("door", "missing", "said"),
        [
            ("loader", {}, None),
            ("loader", {"worst_case": "the dataset is iterable"}, "the dataset is iterable"),
            ("template", {}, "only a DataLoader"),
        ],
    )
    def test_a_worst_case_that_cannot_be_kept(self, door, missing, said):
        record = varying(10.0, 10.0, 1000.0, door=door, missing=missing, worst_case=True)
        rules = {finding.rule: finding for finding in advise(record).findings}
        assert ("inputs.unordered" in rules) is (said is not None)
        assert (Measurements.of(record).target_bytes < ROOM) is (said is not None)
        if said is not None:
            assert said in rules["inputs.unordered"].message
            assert "--worst-case" not in rules["inputs.vary"].remedy

    def test_a_worst_case_that_nothing_needed_is_not_kept_either(self):
        record = varying(missing={"worst_case": "why not"}, worst_case=True)
        assert "inputs.unordered" in {finding.rule for finding in advise(record).findings}

    @pytest.mark.parametrize(("door", "proposed"), [("loader", True), ("template", False)])
    def test_the_longest_first_is_proposed_where_the_order_can_be_chosen(self, door, proposed):
        advice = advise(varying(100.0, 100.0, 125.0, door=door))
        (finding,) = [each for each in advice.findings if each.rule == "inputs.vary"]
        assert "20% more of the memory is left free" in finding.message
        assert ("--worst-case" in finding.remedy) is proposed


class TestCutShort:
    @pytest.mark.parametrize(
        ("reason", "goal", "fires"),
        [
            ("the budget is spent", Goal(), True),
            ("the knee is bracketed", Goal(), False),
            ("the budget is spent", Goal(sizes=(64,)), False),
        ],
    )
    def test_by_the_budget(self, reason, goal, fires):
        assert ("search.cut_short" in findings(stop_reason=reason, goal=goal)) is fires

    def test_no_size_is_worse_than_others_where_none_ran(self):
        ended = failure_of(8, "script_ended", detail="the script ended after 3 optimizer steps")
        assert "search.cut_short" not in findings(ended, stop_reason="the budget is spent")

    def test_a_script_that_ends_is_told_to_train_longer(self):
        ended = failure_of(8, "script_ended", detail="the script ended after 60 optimizer steps")
        finding = findings(trial_of(64, 0.1), ended)["trial.script_ended"]
        assert "more epochs" in finding.remedy
        assert "60 optimizer steps" in finding.message


class TestPadding:
    @staticmethod
    def of(*trials):
        record = record_of(numbered(*trials), discovery=discovery_of(native=64))
        return padding(Measurements.of(record), 64)

    @staticmethod
    def trial(share, size=64, evidence="attention mask", num_batches=20, **changes):
        tokens = Tokens(
            num_batches=num_batches,
            evidence=evidence,
            positions_per_step=100.0,
            padding_share=share,
        )
        return trial_of(size, 0.1, tokens=tokens, **changes)

    @pytest.mark.parametrize("evidence", ["attention mask", "lengths", "padding mask"])
    def test_a_large_share_is_worth_a_word(self, evidence):
        (finding,) = self.of(self.trial(0.5, evidence=evidence))
        assert "50% of the positions at batch 64 are padding" in finding.message
        assert evidence in finding.message
        assert "2 positions" in finding.message
        assert finding.remedy == ""  # nothing was tried, and nothing predicted

    @pytest.mark.parametrize(
        ("share", "changes"),
        [
            (HIGH_PADDING - 0.01, {}),
            (None, {}),
            (1.0, {}),  # every batch was empty
            (0.5, {"evidence": "run of one id"}),
            (0.5, {"size": 8}),
        ],
    )
    def test_nothing_to_say(self, share, changes):
        assert self.of(self.trial(share, **changes), trial_of(64, 0.1)) == []

    @pytest.mark.parametrize(("doubts", "said"), [((), "40%"), (("noise",), "30%")])
    def test_the_undisturbed_trial_that_counted_most_speaks(self, doubts, said):
        trials = self.trial(0.3, num_batches=5), self.trial(0.4, num_batches=90, doubts=doubts)
        assert said in self.of(*trials)[0].message
