"""A look at how the loss reduces a batch; see windows/loss_steps.py."""

from __future__ import annotations

from typing import Any

from ...records import LossCheck
from ..doors.caught_errors import CaughtErrors
from ..doors.optimizers import OWN_UPDATE
from ..loader.batch_size_reader import BatchSizeReader
from ..process.endings import NO_STEP
from ..process.messages import LossResult
from ..process.orders import RunLoss
from ..windows.loss_steps import LossSteps
from .supervisor_line import wait_for_the_end
from .task import Boundary, TaskContext

AHEAD = "the script takes its batches several steps ahead"
LEARNS = "the script writes its parameters itself, and would learn meanwhile"
NO_BATCHES = "batches cannot be replaced behind this door"


class LossTask:
    """One look. What the script is given meanwhile is no training: no real steps can follow.

    Args:
        order: its size and its time.
        context: where it runs.
    """

    def __init__(self, order: RunLoss, context: TaskContext) -> None:
        self._order = order
        self._context = context
        self._steps: LossSteps | None = None

    def begin(self) -> bool:
        """Asks for the size; from the next batch on the script gets parts of one batch."""
        context, order = self._context, self._order
        if context.loop.num_queued:
            self._send(LossCheck(reason=AHEAD))
            return False
        trains = [each.name for each in context.loop.discovery.optimizers if each.trains]
        if OWN_UPDATE in trains:
            self._send(LossCheck(reason=LEARNS))
            return False
        if not context.door.replace_batches(self._substitute):
            self._send(LossCheck(reason=NO_BATCHES))
            return False
        context.door.ask(order.batch_size)
        self._steps = LossSteps(
            context.door.parameters(), order.batch_size, time_limit_s=order.time_limit_s
        )
        context.line.begin_task()
        return True

    def arrived(self, num_samples: int | None, proof: str, wait_s: float, *, primary: bool) -> None:
        """The batches are counted as they are replaced."""

    def boundary(self, boundary: Boundary) -> bool:  # noqa: ARG002  batches count, not steps
        """A step ended. True when there are enough."""
        steps = self._steps
        assert steps is not None
        steps.boundary()
        if steps.over:
            steps.close()
            self._send(steps.result())
            return True
        self._context.line.show("fitting", num_steps=steps.num_steps)
        return False

    def stepped_elsewhere(self) -> None:
        """Steps of other tasks of the script's do not matter here."""

    def no_step(self, num_fetches: int, caught_errors: CaughtErrors) -> None:  # noqa: ARG002
        """Nothing can be said of the loss."""
        self._send(LossCheck(reason=NO_STEP))
        wait_for_the_end()

    # inside ----------------------------------------------------------------------------------

    def _substitute(self, batch: Any, num_samples: int | None, reader: BatchSizeReader) -> Any:
        if self._steps is None:
            return batch
        return self._steps.substitute(batch, num_samples, reader)

    def _send(self, check: LossCheck) -> None:
        self._context.line.send(LossResult(check=check))
