"""Processes of the script with changes in force, one of which runs while the others stand still."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

import msgspec

from ...errors import BatchAdvisorError, RunError
from ...probes.process.endings import WorkerGone
from ...probes.process.messages import StepSample
from ...probes.process.orders import Ask, Guest, RunTrial
from ...probes.process.worker_like import WorkerLike
from ...records import Trial, TrialRequest
from ...session.display import Display
from ...session.recording.record_writer import RecordWriter
from ...session.setup.options import RunOptions
from ...session.setup.target import Target
from ...session.workers.restarts import Restarts
from ...session.workers.worker_pool import WorkerPool
from ...spread import spread_of
from .settings import Joining, Question, Settings

AnswerT = TypeVar("AnswerT")
GUEST = f"{__package__}.in_script.guest"
PATIENCE_S = 240.0
"""A step may be silent for so long, as far as there is time: the first one may compile."""
PRECISION = 0.005
"""No window is ended for its precision: both sides have windows of the same length."""


LEFT_OUT = "two processes are compared in turn: what else a trial looks at would take their time"


class Refused(Exception):  # noqa: N818  a normal way for a remedy to end
    """A process could not do what was wanted; the text says why.

    Attributes:
        without_step: batches flowed, and no optimizer stepped.
        again: why another process of the script may do it; empty where none would.
    """

    def __init__(self, why: str, *, without_step: bool = False, again: str = "") -> None:
        super().__init__(why)
        self.without_step = without_step
        self.again = again


class ChangedWorkers(WorkerPool):
    """The processes of one side: at most one lives.

    Args:
        settings: what it does otherwise.
        restarts: what all processes do otherwise after one that ended.
        left_s: seconds that there are for all of it.
    """

    may_stand_by = False

    def __init__(
        self,
        options: RunOptions,
        target: Target,
        writer: RecordWriter,
        display: Display,
        settings: Settings,
        *,
        restarts: Restarts,
        left_s: float,
    ) -> None:
        patience_s = max(options.silence_s, min(PATIENCE_S, left_s))
        patient = msgspec.structs.replace(options, silence_s=patience_s)
        super().__init__(patient if settings.compile else options, target, writer, display)
        self.restarts = restarts
        found = writer.record.discovery
        assert found is not None
        self._joining = Joining(
            settings=settings, place=found.primary.place, ordinal=found.primary_loader
        )

    def why_again(self, gone: WorkerGone) -> str:
        """Why the script may go on in another process: its epochs end from then on."""
        return self.restarts.why_again(gone, 0) if gone.is_past_epoch else ""

    def _order_changes(self) -> dict[str, Any]:
        argument = msgspec.json.encode(self._joining).decode()
        return {"guest": Guest(module=GUEST, argument=argument)}

    def _environment(self) -> dict[str, str]:
        return super()._environment() | dict(self._joining.settings.variables)


def as_a_whole(trial: Trial, steps: Sequence[StepSample]) -> Trial:
    """The trial with means over all its steps: few long ones have their part in them."""
    spent_s = sum(each.step_s for each in steps)
    if spent_s <= 0:
        return trial
    waited_s = sum(each.input_wait_s for each in steps)
    return msgspec.structs.replace(
        trial,
        step_s=spread_of([spent_s / len(steps)]),
        samples_per_s=spread_of([sum(each.num_samples for each in steps) / spent_s]),
        input_wait_s=spread_of([waited_s / len(steps)]),
    )


class Process:
    """One process of the script, which stands still unless it is `awake`.

    Args:
        pool: that starts it.
        number: among all processes of this go.

    Attributes:
        lives: whether it can be asked anything more.
    """

    def __init__(self, pool: ChangedWorkers, number: int) -> None:
        self._pool = pool
        self.number = number
        self.lives = True
        self._num_trials = 0
        self._worker: WorkerLike | None = None

    def start(self, until_s: float) -> float:
        """Brings it to its training loop; returns the seconds that it took.

        Raises:
            Refused: it did not come there.
            TimeOver: it took longer than up to `until_s`, by `time.monotonic`.
        """
        begun_s = time.monotonic()
        self._pool.until_s = until_s
        try:
            self._worker = self._pool.start()
        except BatchAdvisorError as error:
            raise Refused(error.what.rstrip(".")) from error
        self._stop()
        return time.monotonic() - begun_s

    def ask(self, question: Question, kind: type[AnswerT], until_s: float | None) -> AnswerT:
        """Asks its guest.

        Raises:
            Refused: the guest could not, or the process ended.
            TimeOver: it took longer.
        """
        with self._awake() as worker:
            if not worker.takes(Ask):
                raise Refused("this kind of process takes no questions")
            answered = worker.ask(Ask(question=msgspec.json.encode(question).decode()), until_s)
        if answered.reason:
            raise Refused(answered.reason.removeprefix("ValueError: "))
        return msgspec.json.decode(answered.text, type=kind)

    def timed(
        self,
        batch_size: int,
        *,
        window_s: float,
        num_warmup: int,
        deadline_s: float,
        until_s: float,
        whole: bool = False,
    ) -> Trial:
        """One window at a size.

        Args:
            until_s: a step that still lasts at this moment is not waited for.
            whole: its times are means over all its steps, in place of medians.

        Raises:
            Refused: the script ended in it, or the size did not arrive.
            TimeOver: a step lasted for too long.
        """
        request = TrialRequest(
            batch_size=batch_size,
            kind="timed",
            purpose="confirm",
            min_warmup_steps=num_warmup,
            min_timed_steps=3,
        )
        order = RunTrial(
            request=request,
            ordinal=self._num_trials,
            precision=PRECISION,
            min_time_s=window_s,
            time_limit_s=window_s,
            deadline_s=deadline_s,
            left_out=LEFT_OUT,
        )
        self._num_trials += 1
        with self._awake() as worker:
            result = worker.ask(order, until_s)
        trial = result.trial
        if not trial.ran:
            raise Refused(trial.detail or trial.outcome, without_step=trial.outcome == "no_step")
        return as_a_whole(trial, result.steps) if whole else trial

    def end(self) -> None:
        """Ends it, and removes its temporary files."""
        self._worker = None
        with contextlib.suppress(RunError):
            self._pool.close()

    # inside ----------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _awake(self) -> Iterator[WorkerLike]:
        worker = self._worker
        assert worker is not None
        self._signal(signal.SIGCONT)
        try:
            yield worker
        except WorkerGone as gone:
            self.lives = False
            raise Refused(gone.detail, again=self._pool.why_again(gone)) from gone
        finally:
            self._stop()

    def _stop(self) -> None:
        self._signal(signal.SIGSTOP)

    def _signal(self, number: int) -> None:
        """To the process and its data workers: those that wait take no time of the others."""
        if self._worker is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._worker.pid, number)
