"""When a script that is over is started again."""

from pathlib import Path
from types import SimpleNamespace

import pytest
from batchadvisor.probes.process.endings import WorkerGone
from batchadvisor.probes.process.messages import Raised
from batchadvisor.reports.terminal.progress import NullDisplay
from batchadvisor.session.setup.options import RunOptions
from batchadvisor.session.workers.restarts import MAX_RESTARTS, Restarts
from batchadvisor.session.workers.worker_pool import WorkerPool, safe_cap

from ..on_paper import discovery_of, failure_of, numbered, record_of, trial_of


def raised(*, past, new=False):
    words = {"kind": "ZeroDivisionError", "text": "", "traceback": "", "out_of_memory": False}
    last = Raised(**words, just_past_epoch=past, is_new_size=new)
    return WorkerGone("exception", "ZeroDivisionError", last)


def test_once_beyond_the_end_of_an_epoch():
    restarts = Restarts()
    assert not restarts.why_again(raised(past=False), 1)
    assert not restarts.ends_epochs
    assert "its epochs end" in restarts.why_again(raised(past=True), 0)
    assert restarts.ends_epochs
    assert not restarts.brief
    assert not restarts.why_again(raised(past=True), 1)  # it was no epoch's end


def test_a_size_that_has_made_no_step_may_be_why():
    restarts = Restarts()
    assert "to tell which of the two" in restarts.why_again(raised(past=True, new=True), 1)
    assert restarts.ends_epochs
    assert not restarts.why_again(raised(past=True, new=True), 1)


def test_a_script_that_ends_by_itself():
    restarts, ended = Restarts(), WorkerGone("script_ended", "the script ended")
    for _ in range(MAX_RESTARTS):
        assert restarts.why_again(ended, 1)
        assert restarts.brief
    assert not restarts.why_again(ended, 1)
    assert not Restarts().why_again(WorkerGone("crashed", "SIGSEGV"), 1)


@pytest.mark.parametrize(
    ("trials", "cap"),
    [
        ([failure_of(256)], 8),
        ([failure_of(256), failure_of(8)], 2),
        ([failure_of(2)], 1),
        ([failure_of(256), failure_of(64), trial_of(16), trial_of(4)], 4),
        ([trial_of(256), failure_of(512)], None),
    ],
)
def test_a_new_process_begins_with_batches_that_fit(trials, cap):
    """One sample would be the surest, and BatchNorm does not take it."""
    assert safe_cap(record_of(numbered(*trials), discovery=discovery_of(256))) == cap


@pytest.mark.parametrize(
    ("trials", "num_said"),
    [([trial_of(32, 100.0)], 1), ([failure_of(32), trial_of(16, 60.0)], 0)],
)
def test_what_did_not_fit_before_the_loop_is_said_beside_an_answer(trials, num_said):
    """The size that is recommended fits, and an evaluation before the first epoch may not."""
    pool, faults = object.__new__(WorkerPool), []
    pool._options, pool._batch_cap, pool._display = RunOptions(script="a.py"), None, NullDisplay()
    pool.end = lambda: None
    pool._writer = SimpleNamespace(
        record=record_of(numbered(*trials), discovery=discovery_of(32)),
        store=SimpleNamespace(log_path=Path("log")),
        add_fault=faults.append,
    )
    worker = SimpleNamespace(order=SimpleNamespace(worker=0))
    pool._smaller_or_raise(worker, WorkerGone("out_of_memory", "no memory"))
    pool.note_early_refusal()
    assert (pool._batch_cap, len(faults)) == (8, num_said)
    assert all("cut to 8 until then: where an evaluation" in fault.detail for fault in faults)
