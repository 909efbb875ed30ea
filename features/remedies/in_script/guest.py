"""The guest of the script's process: joins before the script starts, answers between two steps.

`probes/worker/guest.py` calls `begin` and `answer`. Hooks are installed here, around those of the
core, and never undone: the process is thrown away.
"""

from __future__ import annotations

import random
import sys
from typing import TYPE_CHECKING, Any

import msgspec
import torch

from ..settings import Begin, Drain, Facts, Joining, Question
from .calls import Calls
from .constructions import Constructions
from .drained import drained
from .in_force import InForce
from .numbers import Numbers
from .used import used_already

if TYPE_CHECKING:
    from ....probes.worker.task import TaskContext

SEED = 20_771
"""Both processes of a comparison draw the same numbers, as far as the script sets no seed."""
_QUESTIONS: msgspec.json.Decoder[Question] = msgspec.json.Decoder(Question)


class InScript:
    """The guest of one process.

    Args:
        joining: what is changed, and where.
    """

    def __init__(self, joining: Joining) -> None:
        same_numbers()
        self._joining = joining
        self.constructions = Constructions(joining)
        self.calls = Calls()
        self.numbers = Numbers()
        self.in_force = InForce(joining.settings, self.constructions.optimizers)
        self._cores_at_start = self.in_force.cores_at_start

    def install(self) -> None:
        """Puts all hooks in place."""
        self.constructions.install()
        self.calls.install()
        self.in_force.install()
        self.numbers.install()  # the last: it sees a loss as the script made it

    def answer(self, question: Question, context: TaskContext) -> Any:
        """Does or says what is asked."""
        if isinstance(question, Begin):
            parameters = context.door.parameters()
            self.calls.stop()
            self.in_force.begin(self.calls.roots, parameters, context.loop.device)
            same_numbers()
            self.numbers.begin(parameters, context.loop.device)
            return {}
        if isinstance(question, Facts):
            return used_already(
                self.calls,
                self.constructions,
                self.numbers,
                context.door.parameters(),
                context.loop.device,
                cores_at_start=self._cores_at_start,
                batch_size=question.batch_size,
            )
        if isinstance(question, Drain):
            return drained(self.constructions.loader, question)
        return self.numbers.kept(self.in_force)


def same_numbers() -> None:
    """Random numbers begin where they begin in every other process of this kind."""
    random.seed(SEED)
    torch.manual_seed(SEED)
    numpy: Any = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed(SEED)


_here: list[InScript] = []


def begin(argument: str) -> None:
    """The process is there, the script has not started."""
    joined = InScript(msgspec.json.decode(argument, type=Joining))
    joined.install()
    _here[:] = [joined]


def answer(question: str, context: TaskContext) -> str:
    """Answers between two steps."""
    return msgspec.json.encode(_here[0].answer(_QUESTIONS.decode(question), context)).decode()
