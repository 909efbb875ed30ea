"""What a callback's looks at memory may cost a training, and what it says where they may not."""

from functools import partial

import pytest
import torch
from batchadvisor.advisor.explain.creep_findings import creep, why_unknown
from batchadvisor.advisor.measured.measurements import Measurements
from batchadvisor.callback.creep_watch import CreepWatch
from batchadvisor.callback.memory_look import HISTORY_STEPS, LOOK_STEP, MAX_ENTRIES, MemoryLook
from batchadvisor.callback.step_counter import NEVER
from batchadvisor.probes.devices import live_tensors
from batchadvisor.probes.devices.live_objects import Bound
from batchadvisor.probes.fake_step import live_tensors as held_tensors
from batchadvisor.records import MemoryExplained, Observed
from batchadvisor.reports.builder.sections.memory import memory_sections

from ..on_paper import GIB, numbered, record_of, trial_of


@pytest.fixture
def few(monkeypatch):
    """A process with more objects than are looked through."""
    for module in (live_tensors, held_tensors):
        monkeypatch.setattr(module, "Bound", partial(Bound, max_objects=10))


def about_to_look():
    """A watch of memory that rises by 1 % of the first reading with every step."""
    steps = iter(range(10**6))
    watch = CreepWatch(lambda: GIB + next(steps) * GIB // 100, "what a test reads")
    num = 1
    while watch.next_look == NEVER:
        num = watch.step(num)
    return watch


@pytest.mark.usefixtures("few")
def test_a_rise_without_a_look_is_said_to_be_one():
    watch = about_to_look()
    assert watch.boundary(watch.next_look) == NEVER
    assert watch.next_look == NEVER  # it does not try again
    assert watch.creep.kept is None
    assert "more than 10 objects" in watch.creep.not_looked
    (finding,) = creep(
        Measurements.of(record_of(observed=Observed(framework="plain", creep=watch.creep)))
    )
    assert finding.severity == "info"  # rubbish may rise so as well
    assert "unavailable: the process has more than 10 objects" in finding.message
    assert "gc.collect()" in finding.remedy


def test_the_second_look_may_be_the_one_that_is_too_long(monkeypatch):
    watch = about_to_look()
    watch.boundary(watch.next_look)
    assert watch.next_look != NEVER
    monkeypatch.setattr(live_tensors, "Bound", partial(Bound, max_objects=10))
    watch.boundary(watch.next_look)
    assert watch.creep.kept is None
    assert "more than 10 objects" in watch.creep.not_looked


def test_a_run_without_looks_says_why():
    reason = "the process has more than 3 objects"
    trials = numbered(trial_of(8, 0.1, unavailable={"kept": reason}))
    assert why_unknown(Measurements.of(record_of(trials))) == reason


@pytest.mark.usefixtures("few")
def test_a_look_that_would_take_too_long_is_unavailable(tmp_path):
    look = MemoryLook(tmp_path, history=False, say=print)
    look.begin("cpu")
    look.boundary(LOOK_STEP)
    assert look.next_step == NEVER
    explained = look.explained()
    assert explained.reason.startswith("the process has more than 10 objects")
    (section,) = memory_sections(record_of(explained=explained), None)
    assert "unavailable" in str(section)


class TestRecorder:
    """torch's recorder on CUDA, stood for by its calls."""

    @pytest.fixture
    def calls(self, monkeypatch):
        calls = []

        def record(**options):
            calls.append(options)

        def dump(path):
            calls.append(path.rpartition("/")[2])

        memory = torch.cuda.memory
        monkeypatch.setattr(memory, "_record_memory_history", record)
        monkeypatch.setattr(memory, "_dump_snapshot", dump)
        monkeypatch.setattr(torch._C, "_cuda_isHistoryEnabled", lambda: False, raising=False)
        return calls

    def begun(self, folder):
        look = MemoryLook(folder, history=True, say=print)
        look.begin("cuda:0")
        look._look = lambda *_: None  # no such device here
        return look

    def test_it_is_on_for_the_first_steps_and_keeps_a_bounded_number(self, calls, tmp_path):
        look = self.begun(tmp_path)
        options = {"max_entries": MAX_ENTRIES, "context": "alloc", "stacks": "python"}
        assert calls == [options]
        look.boundary(LOOK_STEP)
        assert look.next_step == HISTORY_STEPS
        look.boundary(HISTORY_STEPS)
        assert calls == [options, "snapshot.pickle", {"enabled": None}]
        assert look.next_step == NEVER
        look.finish()
        assert len(calls) == 3
        assert look.explained() == MemoryExplained(
            snapshot="snapshot.pickle", reason=look.explained().reason
        )

    @pytest.mark.parametrize("refused", [False, True])
    def test_a_short_training_or_a_refusal_ends_it_with_its_history(self, calls, tmp_path, refused):
        look = self.begun(tmp_path)
        if refused:
            look.refused(2, torch.OutOfMemoryError())
        else:
            look.boundary(LOOK_STEP)
        look.finish()
        assert calls[1:] == ["snapshot.pickle", {"enabled": None}]

    def test_what_was_held_at_a_later_refusal_lies_beside_it(self, calls, tmp_path):
        look = self.begun(tmp_path)
        look.boundary(LOOK_STEP)
        look.boundary(HISTORY_STEPS)
        look.refused(1000, torch.OutOfMemoryError())
        assert calls[-1] == "refused.pickle"
        assert look.snapshot == tmp_path / "refused.pickle"
