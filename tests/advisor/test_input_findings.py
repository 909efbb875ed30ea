"""Findings of inputs that differ in length, and of comparisons that were cut short."""

import msgspec
import pytest
from batchadvisor.advisor.advise import advise
from batchadvisor.advisor.measured.measurements import Measurements
from batchadvisor.records import Goal, InputSize

from ..on_paper import GIB, failure_of, numbered, record_of, trial_of
from .finding_cases import findings


class TestVaryingInputs:
    def record(self, *largest, **goal):
        inputs = [InputSize(num_batches=3, smallest=10.0, largest=size) for size in largest]
        trials = [trial_of(8, 0.1, peak=GIB, inputs=input_size) for input_size in inputs]
        return record_of(numbered(*trials), goal=Goal(**goal))

    def test_room_is_left_for_the_longest_seen(self):
        plain = Measurements.of(record_of()).target_bytes
        assert Measurements.of(self.record(100.0, 100.0, 120.0)).target_bytes == int(plain / 1.2)
        assert Measurements.of(self.record(100.0, 100.0)).target_bytes == plain

    def test_not_without_end(self):
        assert Measurements.of(self.record(10.0, 10.0, 1000.0)).target_bytes == int(
            Measurements.of(record_of()).target_bytes / 1.5
        )

    def test_the_worst_case_needs_none(self):
        record = self.record(10.0, 10.0, 1000.0, worst_case=True)
        assert Measurements.of(record).target_bytes == Measurements.of(record_of()).target_bytes

    @pytest.mark.parametrize(
        ("door", "missing", "said"),
        [
            ("loader", {}, None),
            ("loader", {"worst_case": "the dataset is iterable"}, "the dataset is iterable"),
            ("template", {}, "only a DataLoader"),
        ],
    )
    def test_a_worst_case_that_cannot_be_kept(self, door, missing, said):
        record = self.record(10.0, 10.0, 1000.0, worst_case=True)
        discovery = msgspec.structs.replace(record.discovery, door=door, unavailable=missing)
        record = msgspec.structs.replace(record, discovery=discovery)
        rules = {finding.rule: finding for finding in advise(record).findings}
        assert ("inputs.unordered" in rules) is (said is not None)
        assert (
            Measurements.of(record).target_bytes < Measurements.of(record_of()).target_bytes
        ) is (said is not None)
        if said is not None:
            assert said in rules["inputs.unordered"].message
            assert "--worst-case" not in rules["inputs.vary"].remedy

    def test_a_worst_case_that_nothing_needed_is_not_kept_either(self):
        record = record_of(goal=Goal(worst_case=True))
        discovery = msgspec.structs.replace(record.discovery, unavailable={"worst_case": "why not"})
        record = msgspec.structs.replace(record, discovery=discovery)
        assert "inputs.unordered" in {finding.rule for finding in advise(record).findings}

    def test_an_order_that_nobody_can_choose_is_not_recommended(self):
        record = self.record(10.0, 10.0, 1000.0)
        remedies = []
        for door in ("loader", "template"):
            discovery = msgspec.structs.replace(record.discovery, door=door)
            changed = msgspec.structs.replace(record, discovery=discovery)
            remedies += [
                finding.remedy
                for finding in advise(changed).findings
                if finding.rule == "inputs.vary"
            ]
        assert ["--worst-case" in remedy for remedy in remedies] == [True, False]

    def test_it_is_said_how_much(self):
        (finding,) = (
            candidate
            for candidate in advise(self.record(100.0, 100.0, 125.0)).findings
            if candidate.rule == "inputs.vary"
        )
        assert "20% more of the memory is left free" in finding.message


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
        by_rule = findings(stop_reason=reason, goal=goal)
        assert ("search.cut_short" in by_rule) is fires

    def test_a_script_that_ends_is_told_to_train_longer(self):
        ended = failure_of(8, "script_ended", detail="the script ended after 60 optimizer steps")
        by_rule = findings(trial_of(64, 0.1), ended)
        assert "more epochs" in by_rule["trial.script_ended"].remedy
        assert "60 optimizer steps" in by_rule["trial.script_ended"].message
