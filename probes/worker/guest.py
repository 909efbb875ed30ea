"""A guest of the script's process: a module that the order names, and nothing here knows."""

from __future__ import annotations

import importlib
import traceback
from typing import Any

from ..doors.caught_errors import CaughtErrors
from ..process.messages import Answered
from ..process.orders import Ask, WorkOrder
from .task import Boundary, TaskContext


def begin(order: WorkOrder) -> None:
    """The guest joins the process, before the script does anything."""
    if order.guest is not None:
        _module(order).begin(order.guest.argument)


class GuestTask:
    """A question to the guest. It makes no step.

    Args:
        order: the question.
        context: where it is asked; the guest gets it too.
    """

    def __init__(self, order: Ask, context: TaskContext) -> None:
        self._order = order
        self._context = context

    def begin(self) -> bool:
        """Answers at once. A guest that fails says so, and the script goes on."""
        line = self._context.line
        try:
            text = _module(self._context.order).answer(self._order.question, self._context)
        except Exception as error:  # noqa: BLE001  whatever it is, the process is still of use
            traceback.print_exc()  # into the log of the script
            line.send(Answered(reason=f"{type(error).__name__}: {error}"))
        else:
            line.send(Answered(text=text))
        return False

    def arrived(self, num_samples: int | None, proof: str, wait_s: float, *, primary: bool) -> None:
        """No batch comes while it answers."""

    def boundary(self, boundary: Boundary) -> bool:  # noqa: ARG002
        """No step is made for it."""
        return True

    def stepped_elsewhere(self) -> None:
        """As above."""

    def no_step(self, num_fetches: int, caught_errors: CaughtErrors) -> None:
        """As above."""


def _module(order: WorkOrder) -> Any:
    assert order.guest is not None
    return importlib.import_module(order.guest.module)
