"""The loss is measured after the search: where nobody can, the reason is kept, and nothing else."""

from types import SimpleNamespace

import pytest
from batchadvisor.probes.process.endings import NO_STEP
from batchadvisor.probes.process.worker_like import ChecksLoss
from batchadvisor.records import Goal, LossCheck
from batchadvisor.session.loss import NO_TIME, measure_loss
from batchadvisor.session.recording.record_writer import RecordWriter

from ..on_paper import discovery_of, numbered, record_of, trial_of

NOBODY = SimpleNamespace(current=None)
KNOWN = LossCheck(reduction="sum", num_samples=58, ratio=2.0, apart=0.0, noise=0.0)


def measured(num_samples=6409, workers=NOBODY, **changes):
    """The loss in the record afterwards: 64 samples a step, none in the script's process."""
    record = record_of(
        numbered(trial_of(64, 0.1)), discovery=discovery_of(64, num_samples), **changes
    )
    writer = RecordWriter(record, None, keep=False)
    measure_loss(workers, writer)
    assert writer.record.trials == record.trials
    return writer.record.loss


def test_nobody_is_asked_where_nothing_depends_on_it():
    assert measured(6400) is None
    assert measured(None) is None


def test_the_process_is_over():
    assert measured() == LossCheck(reason="the script's process had ended by then")


@pytest.mark.parametrize("budget_s", [0.1, 0.5])
def test_no_time_is_left(budget_s):
    """8 steps of a tenth of a second each take longer."""
    assert measured(goal=Goal(budget_s=budget_s)) == LossCheck(reason=NO_TIME)


def test_what_a_resumed_run_knows_is_not_measured_again():
    assert measured(loss=KNOWN) == KNOWN
    noisy = LossCheck(reason="two gradients of the same batch differ by 40%")
    assert measured(loss=noisy) == noisy, "no process lives that could tell more"
    assert measured(loss=LossCheck(reason=NO_TIME)).reason != NO_TIME


class Still(ChecksLoss):
    """A process in which no optimizer steps any more."""

    def run_loss(self, *_):
        return LossCheck(reason=NO_STEP)


def test_a_process_that_steps_no_more_is_asked_nothing_further():
    ended = []
    workers = SimpleNamespace(current=Still(), end=lambda: ended.append(True))
    assert measured(workers=workers) == LossCheck(reason=NO_STEP)
    assert ended
