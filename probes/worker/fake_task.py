"""Steps of one size on fake tensors; see fake_step/fake_steps.py."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..doors.caught_errors import CaughtErrors
from ..loader.batch_size_reader import BatchSizeReader
from ..process.messages import FakeResult, RunFake
from .supervisor_line import wait_for_the_end
from .task import Boundary, TaskContext

if TYPE_CHECKING:
    from ..fake_step.fake_steps import FakeSteps

NUM_STEPS = 2
"""The first makes gradients and the optimizer's state; the second is as all that follow."""
MAX_STRAYS = 4
"""Steps with batches of another size that are let pass before it is given up."""
AHEAD = "the script takes its batches several steps ahead"
NO_BATCHES = "batches of this script do not pass through a DataLoader"
NO_STEP = "no optimizer stepped"


class FakeTask:
    """The steps of one size. No other kind of task can follow in this process.

    Args:
        order: its size and its precision.
        context: where it runs.
        steps: of this process.
    """

    def __init__(self, order: RunFake, context: TaskContext, steps: FakeSteps) -> None:
        self._order = order
        self._context = context
        self._steps = steps
        self._sizes: set[int | None] = set()
        self._num_steps = self._strays = 0

    def begin(self) -> bool:
        """Asks for the size; the script's next batch begins its first step."""
        context = self._context
        if context.loop.num_ahead:
            return self._cannot(AHEAD)
        if not context.door.replace_batches(self._given, self._steps.aside):
            return self._cannot(NO_BATCHES)
        context.door.ask(self._order.batch_size)
        context.line.begin_task()
        self._steps.begin(bf16=self._order.bf16)
        return True

    def arrived(self, num_samples: int | None, proof: str, wait_s: float, *, primary: bool) -> None:
        """A batch of the step came."""
        del proof, wait_s
        if primary:
            self._sizes.add(num_samples)

    def boundary(self, boundary: Boundary) -> bool:  # noqa: ARG002  each is a step
        """A step ended. True when there are enough."""
        self._steps.leave()
        size = self._order.batch_size
        if self._sizes != {size}:
            self._strays += 1
            if self._strays > MAX_STRAYS:
                self._cannot(f"no batch of {size} samples came")
                return True
        else:
            self._num_steps += 1
        if self._num_steps == NUM_STEPS:
            self._context.line.send(FakeResult(trial=self._steps.trial(size)))
            return True
        self._sizes.clear()
        self._steps.next_step()
        self._context.line.show("fitting", num_steps=self._num_steps)
        return False

    def stepped_elsewhere(self) -> None:
        """Steps of other tasks of the script's do not matter here."""

    def no_step(self, num_fetches: int, caught_errors: CaughtErrors) -> None:  # noqa: ARG002
        """There is no step to count."""
        self._cannot(NO_STEP)
        wait_for_the_end()

    # inside ----------------------------------------------------------------------------------

    def _given(self, batch: Any, _num_samples: int | None, _reader: BatchSizeReader) -> Any:
        self._steps.enter(batch)
        return batch

    def _cannot(self, reason: str) -> bool:
        self._context.line.send(FakeResult(reason=reason))
        return False
