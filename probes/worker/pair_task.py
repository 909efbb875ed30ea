"""Steps with and without gradient synchronisation in turn; see distributed/sync_pairs.py."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..doors.caught_errors import CaughtErrors
from ..loader.compiled_modules import compiles
from ..process.messages import PairsResult
from ..process.orders import RunPairs
from .parallelism import ddp_modules
from .supervisor_line import wait_for_the_end
from .task import Boundary, TaskContext

if TYPE_CHECKING:
    from ..distributed.sync_pairs import PairWindow


class PairTask:
    """One measurement of what communication costs.

    Args:
        order: its size and its time.
        context: where it runs; one of several ranks.
    """

    def __init__(self, order: RunPairs, context: TaskContext) -> None:
        self._order = order
        self._context = context
        self._pairs: PairWindow | None = None

    def begin(self) -> bool:
        """Asks for the size and starts the first pair."""
        from ..distributed.alone_turns import AloneTurns
        from ..distributed.sync_pairs import PairWindow

        context = self._context
        assert context.order.lockstep is not None
        context.door.ask(self._order.batch_size)
        lockstep, modules = context.order.lockstep, ddp_modules()
        turns = None
        if context.meeting is not None:
            turns = AloneTurns(
                lockstep.rank,
                lockstep.world_size,
                modules,
                context.meeting,
                bare=not compiles(),
            )
        self._pairs = PairWindow(
            lockstep.rank,
            modules,
            context.device,
            agree=context.agree,
            time_limit_s=self._order.time_limit_s,
            turns=turns,
        )
        self._pairs.resume()
        return True

    def arrived(self, num_samples: int | None, proof: str, wait_s: float, *, primary: bool) -> None:
        """The sizes of these batches were seen in the trials before."""

    def boundary(self, boundary: Boundary) -> bool:
        """A step ended. True when there are enough pairs, on all ranks at once."""
        pairs, line = self._pairs, self._context.line
        assert pairs is not None
        if pairs.boundary(boundary.parts):
            line.send(PairsResult(ranks=(pairs.result(),)))
            return True
        if not pairs.is_within:
            line.show("timing", num_steps=pairs.num_steps)
        pairs.resume()
        return False

    def stepped_elsewhere(self) -> None:
        """Steps of other tasks of the script's do not matter here."""

    def no_step(self, num_fetches: int, caught_errors: CaughtErrors) -> None:  # noqa: ARG002
        """There are no pairs; the supervisor hears nothing more from here."""
        wait_for_the_end()
