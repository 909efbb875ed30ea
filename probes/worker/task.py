"""Tasks of a running script, as the supervisor asks: a trial, pairs of steps, or fake steps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol

from ..devices.device_probe import DeviceProbe
from ..devices.outside import Outside
from ..doors.caught_errors import CaughtErrors
from ..doors.protocols import Door, FoundLoop
from ..doors.training_cycle import parts_of
from ..process.orders import WorkOrder
from .supervisor_line import SupervisorLine

if TYPE_CHECKING:
    from ..distributed.lockstep import Agreement


@dataclass(frozen=True, kw_only=True)
class TaskContext:
    """Tools that every task of a worker uses.

    Attributes:
        order: of this worker.
        door: is asked for sizes.
        loop: that the door found.
        device: reads the time and memory of the device that the script trains on.
        line: to the supervisor.
        agree: where ranks keep in step: waits for all and returns what the leading one decided.
        meeting: the same in two parts; `None` for one rank.
        rank: of this process, where several keep in step; `None` where it is alone.
        outside: tells how many cores processes outside the run use.
        ours: processes whose children are no strangers either.
        before_step: does what is no part of a training's step, before each.
    """

    order: WorkOrder
    door: Door
    loop: FoundLoop
    device: DeviceProbe
    line: SupervisorLine
    outside: Outside
    agree: Callable[[bool], bool] = bool
    meeting: Agreement | None = None
    rank: int | None = None
    ours: tuple[int, ...] = ()
    before_step: Callable[[], None] = lambda: None

    @property
    def is_asynchronous(self) -> bool:
        """Whether the device goes on while the host waits."""
        return self.loop.device.type != "cpu"


class Boundary(NamedTuple):
    """Counts of the script's work since the boundary before.

    Attributes:
        num_batches: of the primary loader that it fetched.
        num_steps: optimizer steps that it made; 0 where no rhythm was found in them.
    """

    num_batches: int
    num_steps: int

    @property
    def parts(self) -> int:
        """Equal steps that it was."""
        return parts_of(self.num_batches, self.num_steps) if self.num_steps else 1


class Task(Protocol):
    """One order of the supervisor's, carried out in the script's loop."""

    def begin(self) -> bool:
        """The script is about to make the first step. False where there is none to make."""

    def arrived(self, num_samples: int | None, proof: str, wait_s: float, *, primary: bool) -> None:
        """See `StepListener`."""

    def boundary(self, boundary: Boundary) -> bool:
        """A step ended. True when the task is over and its result is sent."""

    def stepped_elsewhere(self) -> None:
        """See `StepListener`."""

    def no_step(self, num_fetches: int, caught_errors: CaughtErrors) -> None:
        """Sends a result that says so; no other task can follow."""
