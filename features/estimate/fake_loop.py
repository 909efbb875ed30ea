"""The script's loop in a worker, whose steps are made on fake tensors."""

from __future__ import annotations

from collections.abc import Callable

from ...advisor.measured.step_law import SMALLEST
from ...errors import BatchAdvisorError, RunError, ScriptError
from ...probes.process.endings import WorkerGone
from ...probes.process.messages import FakeResult, Raised
from ...probes.process.orders import RunFake
from ...probes.process.worker_like import WorkerLike
from ...records import Discovery, FakeTrial, Variant
from ...session.display import Display
from ...session.fake_failures import why_not_faked
from ...session.run import Run
from .records import EvaluationPeak

WHY_NOT = "`batchadvisor run` measures what it takes, on the GPU itself."
TOO_LARGE_HERE = "this machine's memory is too small for the script's first steps, which are real."
RAN_TO_ITS_END = "exit code 0"
"""Detail of a script that ran to its end."""
MOST_STARTS = 4
"""Starts of the script at most, for steps: those that raise end its process."""


class CannotFakeError(Exception):
    """A step that could not be made; its text says why."""


class FakeLoop:
    """Makes steps of one size after the other.

    Args:
        run: whose workers run the script.
        display: told of each.

    Attributes:
        blocks: see `Estimate`.
        eager, grouped: see `assumptions`.
        changes: what was changed for a variant, by its name.
    """

    def __init__(self, run: Run, display: Display) -> None:
        self._workers = run.workers
        self._writer = run.writer
        self._display = display
        self._worker: WorkerLike | None = None
        self._num_starts = 0
        self.blocks = ""
        self.eager = self.grouped = False
        self.changes: dict[str, str] = {}

    def start(self) -> Discovery:
        """Runs the script up to its training loop.

        Raises:
            BatchAdvisorError: the loop was not found, or cannot be estimated.
        """
        self._num_starts += 1
        try:
            if self._num_starts == 1:
                self._first_start()
            else:
                self._workers.start()
        except BatchAdvisorError as error:
            gone = error.__cause__
            if isinstance(gone, WorkerGone) and gone.outcome == "out_of_memory":
                raise RunError(TOO_LARGE_HERE, WHY_NOT) from gone
            raise
        worker = self._workers.current
        if worker is None or not worker.takes(RunFake):
            raise RunError("a script that runs as several ranks is not estimated.", WHY_NOT)
        self._worker = worker
        discovery = self._writer.record.discovery
        assert discovery is not None
        return discovery

    def _first_start(self) -> None:
        """Real steps of a large model are slow on a CPU, and not every script can do without."""
        self._workers.make_only_fakes()
        self._workers.cut_batches(SMALLEST)
        self._workers.fake_large_models(wanted=True)
        ways: tuple[tuple[str, Callable[[], None]], ...] = (
            ("on real parameters", lambda: self._workers.fake_large_models(wanted=False)),
            ("with its own batches", lambda: self._workers.cut_batches(None)),
        )
        for words, change in ways:
            try:
                self._workers.start()
            except ScriptError as error:
                if not _may_be_ours(error):
                    raise
                self._display.note(f"the script fails; starting it again {words}")
                change()
            else:
                return
        self._workers.start()

    def step(self, size: int, variant: Variant) -> tuple[FakeTrial, FakeResult]:
        """A step of a size, the second of two; beside the trial what else is known of it.

        Raises:
            CannotFakeError: it could not be made.
        """
        if self._worker is None and self._num_starts >= MOST_STARTS:
            raise CannotFakeError("the script was started too often for that")
        worker = self._started()
        self._display.note(f"a step on fake tensors at batch {size}, {variant.name}")
        try:
            result = worker.ask(RunFake(batch_size=size, variant=variant, for_gpu=True))
        except WorkerGone as gone:
            self._worker = None
            raise CannotFakeError(why_not_faked(gone)) from None
        self.changes[variant.name] = result.change
        if result.trial is None:
            raise CannotFakeError(result.reason)
        self.blocks, self.eager = result.blocks, result.eager
        self.grouped = self.grouped or bool(result.lived.passing)
        return result.trial, result

    def evaluation(self, size: int) -> EvaluationPeak | str | None:
        """Finds the peak of the script's evaluation after an epoch of this size, or why it is
        unknown.

        `None` where it evaluates nothing before its next epoch, or ends. Nothing can follow.
        """
        try:
            # A change that failed before ended the process; what fits here may hang on this.
            worker = self._started()
            self._display.note("an evaluation on fake tensors")
            result = worker.ask(
                RunFake(batch_size=size, variant=Variant(), for_gpu=True, evaluation=True)
            )
        except WorkerGone as gone:
            self._worker = None
            return None if RAN_TO_ITS_END in gone.detail else why_not_faked(gone)
        except BatchAdvisorError as error:
            return f"the script could not be started again: {error.what}"
        if result.reason:
            return result.reason
        if not result.evaluation_bytes:
            return None
        return EvaluationPeak(peak_bytes=result.evaluation_bytes, batch=result.evaluated)

    def _started(self) -> WorkerLike:
        """The process of the script; a new one where the last step ended it."""
        if self._worker is None:
            self._display.note("a step failed; starting the script again")
            self.start()
            assert self._worker is not None
        return self._worker


def _may_be_ours(error: ScriptError) -> bool:
    """Whether the script may have raised because of what was changed for it."""
    gone = error.__cause__
    if not isinstance(gone, WorkerGone) or not isinstance(gone.message, Raised):
        return True
    return gone.message.is_altered
