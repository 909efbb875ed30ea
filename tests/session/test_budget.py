"""What counts against a budget: of the first start a part, then everything; what costs none."""

import time
from types import SimpleNamespace

import msgspec
import pytest
from batchadvisor.advisor.measured.thresholds import BUDGET_SPENT
from batchadvisor.advisor.search.cost import end_s
from batchadvisor.probes.process.worker_listener import TimeOver
from batchadvisor.records import Goal
from batchadvisor.reports.terminal.progress import NullDisplay
from batchadvisor.session import run as session_run
from batchadvisor.session.memory_explained import (
    NO_TIME_TO_EXPLAIN,
    TOO_SLOW,
    explain_memory,
)
from batchadvisor.session.prior import predict_memory
from batchadvisor.session.recording import record_writer
from batchadvisor.session.recording.record_writer import RecordWriter
from batchadvisor.session.recording.store import RunStore
from batchadvisor.session.run import NoTimeLeftError, Run, plan_of
from batchadvisor.session.setup.options import RunOptions

from ..on_paper import GIB, discovery_of, failure_of, loader_of, record_of, trial_of


@pytest.mark.parametrize(("start_s", "counted_s"), [(0.0, 0.0), (4.0, 4.0), (99.0, 10.0)])
def test_the_first_start_counts_up_to_a_third(start_s, counted_s, tmp_path, monkeypatch):
    now = [100.0]
    monkeypatch.setattr(record_writer.time, "monotonic", lambda: now[0])
    record = msgspec.structs.replace(record_of(goal=Goal(budget_s=30.0)), search_s=0.0)
    writer = RecordWriter(record, RunStore(tmp_path), keep=True)
    now[0] += start_s
    writer.search_begins()
    assert writer.record.search_s == writer.search_s == pytest.approx(counted_s)
    now[0] += 5.0
    writer.change()
    assert writer.record.search_s == pytest.approx(counted_s + 5.0)
    assert writer.record.elapsed_s - record.elapsed_s == pytest.approx(start_s + 5.0)


def test_a_search_whose_time_is_over_ends():
    """A process that came too late is not waited for again with another size."""
    asked = []

    def ready_for(request):
        asked.append(request.batch_size)
        raise TimeOver

    run = object.__new__(Run)
    record = record_of((trial_of(8, 0.1),), goal=Goal(sizes=(8, 16, 32, 64)))
    run.writer = SimpleNamespace(record=record, change=lambda: None, search_s=0.0)
    run.workers = SimpleNamespace(ready_for=ready_for, end=lambda: None, until_s=None)
    run._display = NullDisplay()
    run._options = RunOptions(script="train.py")
    assert run._trials().reason == BUDGET_SPENT
    assert asked == [16]


def test_a_script_that_the_budget_does_not_start_again_is_cut_short(tmp_path, monkeypatch):
    """Its answer then says that other sizes may be better, and how to go on."""

    def no_time(*_):
        raise NoTimeLeftError("train.py trains only at 8.", "Continue with --resume.")

    monkeypatch.setattr(session_run, "predict_memory", no_time)
    record = record_of((trial_of(8, 0.1), failure_of(32)), discovery=discovery_of())
    run, store = object.__new__(Run), RunStore(tmp_path)
    run.writer = RecordWriter(record, store, keep=True)
    run.workers = SimpleNamespace()
    run._display = NullDisplay()
    paths = {"folder": tmp_path, "log_path": tmp_path / "script.log"}
    run._store = SimpleNamespace(problem="", forget_aside=lambda: None, **paths)
    run._options, run._by_loader = RunOptions(script="train.py"), None
    result = run.search()
    assert isinstance(result.error, NoTimeLeftError)
    assert result.record.stop_reason == BUDGET_SPENT
    assert "search.cut_short" in {finding.rule for finding in result.advice.findings}


def test_nothing_runs_after_the_budget():
    """The confirmation, the last batch and the looks after them are within it."""
    assert all(0.9 * budget_s < end_s(budget_s) < budget_s for budget_s in (5.0, 15.0, 120.0))


@pytest.mark.parametrize(
    ("step_s", "words"),
    [
        (0.00001, "about 7 sizes and"),
        (0.001, "about 5 to 7 sizes and"),
        (0.1, "2 to 5 sizes fit in the 20.0 s that are left"),
        (1.2, "1 size fits in the 20.0 s that are left; to compare two, use --budget 37s"),
    ],
)
def test_a_forecast_is_of_what_is_left(step_s, words):
    """Larger sizes may take longer in proportion, and a part is kept for the confirmation."""
    record = record_of(goal=Goal(budget_s=30.0), discovery=discovery_of(native_step_s=step_s))
    assert words in plan_of(msgspec.structs.replace(record, search_s=10.0))


def test_a_forecast_names_the_budget_of_the_whole_command():
    """A device's run has a part of it; what the user types is for all devices."""
    record = record_of(goal=Goal(budget_s=30.0), discovery=discovery_of(native_step_s=1.2))
    said = plan_of(msgspec.structs.replace(record, search_s=10.0), 0.5)
    assert said.endswith("to compare two, use --budget 73s")


def test_one_size_that_was_asked_for_is_compared_with_none():
    record = record_of(
        goal=Goal(budget_s=4.0, sizes=(8,)), discovery=discovery_of(native_step_s=1.2)
    )
    assert plan_of(record).endswith("1 size fits in the 4.0 s that are left")


def test_a_forecast_counts_the_start_of_each_process():
    """The first runs already; each further size costs another start."""
    discovery = discovery_of(native_step_s=0.00001, door="template", setup_s=3.9)
    record = record_of(goal=Goal(budget_s=30.0), discovery=discovery)
    said = plan_of(msgspec.structs.replace(record, search_s=10.0))
    assert "one process takes about 3.9 s: 3 sizes fit in the 20.0 s that are left" in said


def test_memory_is_not_predicted_by_another_start_where_sizes_are_budgets():
    discovery = discovery_of(loader=loader_of(batch_size=512, axis="tokens"))
    record = record_of([], discovery=discovery, goal=Goal(kind="memory"))
    written, said = {}, []
    writer = SimpleNamespace(record=record, change=written.update)
    predict_memory(SimpleNamespace(current=None), writer, SimpleNamespace(note=said.append))
    assert "budget" in written["prior"].reason
    assert written["prior"].reason in said[0]


@pytest.mark.parametrize("door", ["keras", "live", "template", "workload"])
def test_memory_is_not_predicted_by_another_start_without_batches_of_a_loader(door):
    record = record_of([], discovery=discovery_of(door=door), goal=Goal(kind="memory"))
    written, asked = {}, []
    worker = SimpleNamespace(takes=lambda _: door != "live", ask=asked.append)
    workers = SimpleNamespace(current=worker, end=lambda: asked.append("end"))
    writer = SimpleNamespace(record=record, change=written.update)
    predict_memory(workers, writer, NullDisplay())
    assert "batches of a DataLoader" in written["prior"].reason
    assert asked == []


class TestWhereMemoryGoes:
    def explained(self, setup_s, worker=None):
        """The reason, and until when a process had time to start."""
        record = record_of(
            (trial_of(8, 0.1, peak=GIB), failure_of(16)),
            goal=Goal(budget_s=600.0),
            discovery=discovery_of(setup_s=setup_s),
        )
        workers = SimpleNamespace(current=worker, until_s=None, end=lambda: None)

        def start():
            workers.current = SimpleNamespace(takes=lambda _: True, ask=over)

        def over(*_):
            raise TimeOver

        workers.start = start
        written = {}
        writer = SimpleNamespace(record=record, search_s=100.0, change=written.update)
        writer.store = SimpleNamespace(folder=self.folder)
        explain_memory(workers, writer, NullDisplay())
        return written["explained"].reason, workers.until_s

    @pytest.fixture(autouse=True)
    def _folder(self, tmp_path):
        self.folder = tmp_path

    def test_a_slow_start_has_the_time_that_is_left(self):
        reason, until_s = self.explained(setup_s=60.0)
        assert until_s - time.monotonic() > 60.0
        assert reason == TOO_SLOW

    def test_a_budget_that_is_spent_is_said_to_be_so(self):
        assert self.explained(setup_s=500.0) == (NO_TIME_TO_EXPLAIN, None)
