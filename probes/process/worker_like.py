"""The interface of a worker to a run: a process, one on every rank, or a live function."""

from __future__ import annotations

from typing import Any, Protocol

from ...records import DeviceInfo, Discovery, Distribution, FileTouched, Versions
from ..devices.gpu_in_use import GpuInUse
from .orders import AnswerT, Order, WorkOrder


class WorkerLike(Protocol):
    """Carries out one order after the other.

    Attributes:
        order: what it was told to run.
        pid: of the process that stands for the script.
        versions: what that process told of itself.
        files: what the script touched, as far as it was told.
        in_use: the GPUs that it trains on, where it told of any.
        distribution: its ranks, or the parallelism inside its process, once it was discovered;
            `None` without either.
    """

    @property
    def order(self) -> WorkOrder: ...
    @property
    def pid(self) -> int: ...
    @property
    def versions(self) -> Versions | None: ...
    @property
    def files(self) -> list[FileTouched]: ...
    @property
    def in_use(self) -> tuple[GpuInUse, ...]: ...
    @property
    def distribution(self) -> Distribution | None: ...

    def discover(self, until_s: float | None = None) -> tuple[Discovery, DeviceInfo]:
        """Brings it to its training loop.

        Args:
            until_s: a single process takes no longer than up to this moment, by `time.monotonic`.

        Raises:
            TimeOver: that moment came first.
            RanksStarting: the script starts ranks of its own.
            NoRanks: those that it started trained nothing.
            WorkerGone: the loop was not found.
        """

    def takes(self, kind: type[Order[Any]]) -> bool:
        """Whether it can carry out such orders."""

    def ask(self, order: Order[AnswerT], until_s: float | None = None) -> AnswerT:
        """Gives an order that it takes, and waits for the answer.

        Args:
            until_s: a single process takes no longer than up to this moment, by `time.monotonic`.

        Raises:
            TimeOver: that moment came first.
            WorkerGone: it is over; the caller makes the trial's record from it.
        """

    def was_stopped(self) -> bool:
        """Whether somebody else stopped it since this was last asked, as far as can be told."""

    def end(self) -> None:
        """Ends it; where Ctrl-C cuts this short, another call does the rest."""
