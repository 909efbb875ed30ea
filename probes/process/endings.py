"""How a worker comes to its end, and what its last words mean."""

from __future__ import annotations

from ...records import Outcome
from .faults import outcome_of_exit_code
from .messages import CannotSteer, Ended, Raised
from .refusals import headline

WAITED = "it waited for another rank"
"""Detail of a rank that hung inside a collective."""

ENDED = "it was ended with the others"
"""Detail of a rank that we ended because another one was over."""


NO_OPTIMIZER_STEP = "no optimizer stepped"
"""Begins the answer of a process that makes no further steps, and waits for its end."""


OWN_FAULT = "batchadvisor itself failed"
"""Begins the detail of a trial that a bug of ours ended."""


class WorkerGone(Exception):  # noqa: N818  a normal way for a trial to end
    """The worker is over: it raised, ended, died, hung or cannot steer.

    Attributes:
        message: its own last word, if it had one.
        outcome, detail: what that means.
    """

    def __init__(
        self, outcome: Outcome, detail: str, message: Raised | Ended | CannotSteer | None = None
    ) -> None:
        super().__init__(detail)
        self.outcome = outcome
        self.detail = detail
        self.message = message

    @property
    def is_past_epoch(self) -> bool:
        """Whether the script raised where the epoch of its loader would have ended."""
        raised = isinstance(self.message, Raised) and self.message.just_past_epoch
        return raised and self.outcome == "exception"

    @property
    def is_new_size(self) -> bool:
        """Whether it raised before a step of the size was made: the size may be why."""
        return isinstance(self.message, Raised) and self.message.is_new_size

    @property
    def is_own_fault(self) -> bool:
        """Whether it was no fault of the script's."""
        return isinstance(self.message, Raised) and self.message.kind == "batchadvisor"


class RanksStarting(Exception):  # noqa: N818  a normal turn of a script
    """The script is about to start ranks of its own, and waits for us.

    Attributes:
        world_size: how many.
        own_rank: which of them that process is itself; `None` if it is none.
    """

    def __init__(self, world_size: int, own_rank: int | None = None) -> None:
        super().__init__(world_size)
        self.world_size = world_size
        self.own_rank = own_rank


class NoRanks(Exception):  # noqa: N818  a normal turn of a script
    """The processes that the script started trained nothing, and ended: it goes on itself."""


def asserted(message: Raised) -> str:
    """The line that an `assert` without words of its own has; empty for any other exception."""
    lines = [line.strip() for line in message.traceback.splitlines()]
    own = [line for line in lines if line.startswith("assert ")]
    return own[-1] if message.kind == "AssertionError" and own else ""


def over(message: Raised | Ended | CannotSteer, printed: str = "") -> WorkerGone:
    """Turns the last words of a script into the way it ended.

    Args:
        printed: the end of what it printed; a script that leaves by itself may say there why.
    """
    if isinstance(message, Raised):
        outcome: Outcome = "out_of_memory" if message.out_of_memory else "exception"
        said = headline(message.text, refused=message.out_of_memory) or asserted(message)
        kind = OWN_FAULT if message.kind == "batchadvisor" else message.kind
        named = said.startswith(f"{kind}: ")  # a data worker's, which the message quotes whole
        text = said if named else f"{kind}: {said}" if said else kind
        return WorkerGone(outcome, text, message)
    if isinstance(message, Ended):
        what = (
            f"the script ended with exit code {message.exit_code} "
            f"after {message.num_steps} optimizer steps"
        )
        if message.left:
            what = f"the script went on to {message.left} after {message.num_steps} optimizer steps"
        if message.exit_code:  # it gave up
            return WorkerGone(*outcome_of_exit_code(what, printed), message)
        return WorkerGone("script_ended", what, message)
    return WorkerGone("no_step", message.reason, message)
