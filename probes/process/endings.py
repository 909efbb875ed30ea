"""How a worker comes to its end, and what its last words mean."""

from __future__ import annotations

from ...records import Outcome
from .faults import headline
from .messages import CannotSteer, Ended, Raised
from .orders import Message

WAITED = "it waited for another rank"
"""What is said of a rank that hung inside a collective."""

ENDED = "it was ended with the others"
"""What is said of a rank that we ended because another one was over."""


NO_STEP = "no optimizer stepped"
"""Begins the answer of a process that makes no further steps, and waits for its end."""


OWN_FAULT = "batchadvisor itself failed"
"""Begins the detail of a trial that a bug of ours ended."""


class WorkerGone(Exception):  # noqa: N818  a normal way for a trial to end
    """The worker is over: it raised, ended, died, hung or cannot steer.

    Attributes:
        message: its own last word, if it had one.
        outcome, detail: what that means.
    """

    def __init__(self, outcome: Outcome, detail: str, message: Message | None = None) -> None:
        super().__init__(detail)
        self.outcome = outcome
        self.detail = detail
        self.message = message

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


def over(message: Raised | Ended | CannotSteer) -> WorkerGone:
    """What the last words of a script mean."""
    if isinstance(message, Raised):
        outcome: Outcome = "out_of_memory" if message.out_of_memory else "exception"
        said = headline(message.text)
        kind = OWN_FAULT if message.kind == "batchadvisor" else message.kind
        text = f"{kind}: {said}" if said else kind
        return WorkerGone(outcome, text, message)
    if isinstance(message, Ended):
        return WorkerGone(
            "crashed" if message.exit_code else "script_ended",  # it gave up, or it was done
            f"the script ended with exit code {message.exit_code} "
            f"after {message.num_steps} optimizer steps",
            message,
        )
    return WorkerGone("no_step", message.reason, message)
