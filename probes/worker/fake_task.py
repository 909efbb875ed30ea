"""Steps of one size on fake tensors; see fake_step/fake_steps.py."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from ..doors.caught_errors import CaughtErrors
from ..loader.batch_lengths import lengthened
from ..loader.batch_parts import (
    CannotCutError,
    changed,
    flat_carriers,
    grown_to,
    is_whole,
    scaled_to,
    tensors_in,
    uneven_carriers,
)
from ..loader.batch_size_reader import BatchSizeReader
from ..loader.batch_structure import Path
from ..process.messages import FakeResult
from ..process.orders import RunFake
from .supervisor_line import wait_for_the_end
from .task import Boundary, TaskContext
from .versions import loads_all_kernels

if TYPE_CHECKING:
    from ..fake_step.fake_steps import FakeSteps

NUM_FAKE_STEPS = 2
"""The first makes gradients and the optimizer's state; the second is as all that follow. Where they
are there one step does, unless what a step of another size left would raise its peak."""
MOST_EVALUATED = 2
"""Batches of an evaluation; all are alike."""
MAX_STRAYS = 4
"""Steps with batches of another size that are let pass before it is given up."""
MOST_OTHERS = 2
"""Batches that a part which does not count samples is compared with: two may be alike by chance."""


class Kept(NamedTuple):
    """A batch of the script's own size.

    Attributes:
        carriers: parts of it that carry its samples.
        is_uneven: some are in proportion to the samples, and do not count them.
    """

    batch: Any
    carriers: dict[Path, int]
    is_uneven: bool = False


AHEAD = "the script takes its batches several steps ahead"
BUDGET = "sizes are a budget, and no batch of so many samples can be made"
SEVERAL_LOADERS = (
    "several loaders feed a step, and only the batches of one can be made without contents"
)
NO_BATCHES = "batches of this script do not pass through a DataLoader"


class FakeTask:
    """The steps of one size. No other kind of task can follow in this process.

    They are made on one batch of the script's own size, grown to the size that is asked for.

    Args:
        order: its size and its precision.
        context: where it runs.
        steps: of this process.
        kept: the batch; empty before the first task.
    """

    def __init__(
        self, order: RunFake, context: TaskContext, steps: FakeSteps, kept: list[Kept]
    ) -> None:
        self._order = order
        self._context = context
        self._steps = steps
        self._kept = kept
        self._reason = ""
        self._num_steps = self._strays = 0
        self._is_settled = False
        self._num_evaluated = 0
        self._evaluated = ""
        self._others: list[Any] = []

    def begin(self) -> bool:
        """Asks for the size; the script's next batch begins its first step."""
        context = self._context
        if context.loop.num_queued:
            return self._cannot(AHEAD)
        if context.loop.discovery.axis != "samples":
            return self._cannot(BUDGET)
        if sum(loader.trains for loader in context.loop.discovery.loaders) > 1:
            return self._cannot(SEVERAL_LOADERS)
        batches = context.door.batches
        if batches is None:
            return self._cannot(NO_BATCHES)
        batches.replace_batches(self._given, self._steps.aside)
        try:
            self._is_settled = self._steps.begin(self._order.variant, self._order.batch_size)
        except ValueError as error:
            return self._cannot(str(error))
        context.door.ask(self._own)
        context.line.begin_task()
        return True

    def arrived(self, num_samples: int | None, proof: str, wait_s: float, *, primary: bool) -> None:
        """Batches are looked at as they are replaced."""

    def boundary(self, boundary: Boundary) -> bool:  # noqa: ARG002  each is a step
        """A step ended. True when there are enough."""
        self._steps.leave()
        steps, size = self._steps, self._order.batch_size
        if self._kept:
            self._num_steps += 1
        else:
            self._strays += 1
            if self._strays > MAX_STRAYS + len(self._others):
                self._reason = self._reason or f"no batch of {self._own} samples came"
        if self._reason:
            self._cannot(self._reason)
            return True
        if self._num_steps >= NUM_FAKE_STEPS or (self._is_settled and steps.is_as_the_next(size)):
            batches = self._context.door.batches
            if self._order.evaluation and batches is not None:
                steps.next_step()
                batches.end_epoch(self)
                return False
            result = FakeResult(
                trial=steps.trial(size),
                requests=steps.requests,
                lived=steps.lived,
                eager=loads_all_kernels(),
                blocks=steps.blocks,
                change=steps.change,
                work=steps.work,
                no_work=steps.no_work,
            )
            self._context.line.send(result)
            return True
        steps.next_step()
        self._context.line.show("fitting", num_steps=self._num_steps)
        return False

    def stepped_elsewhere(self) -> None:
        """Steps of other tasks of the script's do not matter here."""

    def no_step(self, num_fetches: int, caught_errors: CaughtErrors) -> None:  # noqa: ARG002
        """There is no step to count."""
        self._cannot(f"no optimizer stepped at batch {self._order.batch_size}")
        wait_for_the_end()

    # between two epochs, see `Evaluation` -----------------------------------------------------

    @property
    def is_enough(self) -> bool:
        """Whether a few batches were fed."""
        return self._num_evaluated >= MOST_EVALUATED

    def take(self, batch: Any, words: str) -> Any:
        """The script works on it, and nothing is computed."""
        self._num_evaluated += 1
        self._evaluated = words
        self._steps.enter(batch)
        return batch

    def over(self) -> None:
        """Nothing can follow in this process."""
        self._steps.leave()
        peak_bytes = self._steps.peak_bytes if self._num_evaluated else 0
        result = FakeResult(evaluation_bytes=peak_bytes, evaluated=self._evaluated)
        self._context.line.send(result)
        wait_for_the_end()

    # inside ----------------------------------------------------------------------------------

    @property
    def _own(self) -> int:
        return self._context.loop.discovery.native_batch_size

    def _given(self, batch: Any, num_samples: int | None, reader: BatchSizeReader) -> Any:
        """The batch that the script gets instead of its own; the first may be of another size."""
        if not self._kept and num_samples == self._own:
            self._keep(batch, reader.carriers(batch, num_samples))
        if not self._kept or self._reason:
            return batch
        kept, carriers, is_uneven = self._kept[0]
        size = self._order.batch_size
        try:
            if is_uneven:
                given = scaled_to(size, self._own, kept, carriers, self._steps.empty)
            else:
                given = grown_to(size, kept, carriers, self._steps.empty)
            if self._order.variant.length:
                length = self._order.variant.length
                given = lengthened(given, carriers, length, self._steps.empty)
        except CannotCutError as error:
            self._reason = str(error)
            return batch
        except Exception as error:  # noqa: BLE001  a batch of whatever kind; no fault of the script
            self._reason = f"a batch cannot be grown: {type(error).__name__}: {error}"
            return batch
        self._steps.enter(tensors_in(given) if is_uneven else given)
        return given

    def _keep(self, batch: Any, carriers: dict[Path, int]) -> None:
        """It is the one that is made longer, unless it takes another one to tell how."""
        try:
            changed(batch, carriers, lambda value, _: value)
        except CannotCutError:
            is_counted = False
        else:
            is_counted = True
        if is_counted and is_whole(batch, carriers):
            self._kept.append(Kept(batch, carriers))
            return
        if not is_counted and self._others:
            uneven = uneven_carriers(batch, self._others[0], self._own)
            self._kept.append(Kept(batch, uneven, is_uneven=bool(uneven)))
            return
        flat: dict[Path, int] = {}
        for other in self._others if is_counted else ():
            flat |= flat_carriers(batch, other, carriers)
        if flat or len(self._others) == MOST_OTHERS:
            self._kept.append(Kept(batch, carriers | flat, is_uneven=bool(flat)))
            return
        self._others.append(batch)
        self._steps.enter(tensors_in(batch))

    def _cannot(self, reason: str) -> bool:
        self._context.line.send(FakeResult(reason=reason))
        return False
