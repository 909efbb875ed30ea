"""When a script that is over is started again."""

from batchadvisor.probes.process.endings import WorkerGone
from batchadvisor.probes.process.messages import Raised
from batchadvisor.session.workers.restarts import MAX_RESTARTS, Restarts


def raised(*, past):
    words = {"kind": "ZeroDivisionError", "text": "", "traceback": "", "out_of_memory": False}
    return WorkerGone("exception", "ZeroDivisionError", Raised(**words, just_past_epoch=past))


def test_once_beyond_the_end_of_an_epoch():
    restarts = Restarts()
    assert not restarts.why_again(raised(past=False), 1)
    assert not restarts.ends_epochs
    assert "its epochs end" in restarts.why_again(raised(past=True), 0)
    assert restarts.ends_epochs
    assert not restarts.brief
    assert not restarts.why_again(raised(past=True), 1)  # it was no epoch's end


def test_a_script_that_ends_by_itself():
    restarts, ended = Restarts(), WorkerGone("script_ended", "the script ended")
    for _ in range(MAX_RESTARTS):
        assert restarts.why_again(ended, 1)
        assert restarts.brief
    assert not restarts.why_again(ended, 1)
    assert not Restarts().why_again(WorkerGone("crashed", "SIGSEGV"), 1)
