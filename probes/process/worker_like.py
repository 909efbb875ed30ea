"""The interface of a worker to a run: a process, one on every rank, or a live function."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol, runtime_checkable

from ...records import (
    DeviceInfo,
    Discovery,
    Distribution,
    FileTouched,
    RankPairs,
    Trial,
    Variant,
    Versions,
)
from ..devices.gpu_in_use import GpuInUse
from .messages import Answered, FakeResult, StepSample
from .orders import RunTrial, WorkOrder


class WorkerLike(Protocol):
    """Runs one trial after the other.

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

    def run(self, order: RunTrial) -> tuple[Trial, tuple[StepSample, ...]]:
        """Runs one size.

        Raises:
            WorkerGone: it is over; the caller makes the trial's record from it.
        """

    def was_stopped(self) -> bool:
        """Whether somebody else stopped it since this was last asked, as far as can be told."""

    def end(self) -> None:
        """Ends it; where Ctrl-C cuts this short, another call does the rest."""


@runtime_checkable
class RecordsMemory(WorkerLike, Protocol):
    """A worker in which torch can record the memory of a step."""

    def run_recorded(self, batch_size: int, path: Path, until_s: float) -> str:
        """Has it recorded into a file; returns why not, if not.

        Raises:
            TimeOver: it took longer than up to `until_s`, by `time.monotonic`.
            WorkerGone: it is over.
        """


@runtime_checkable
class FakesSteps(WorkerLike, Protocol):
    """A worker that can make steps on tensors without contents."""

    def run_fake(
        self,
        batch_size: int,
        variant: Variant,
        until_s: float | None = None,
        *,
        for_gpu: bool,
        evaluation: bool = False,
    ) -> FakeResult:
        """Makes them, or says why it cannot; nothing else can be asked of it then.

        Args:
            for_gpu: they stand for those of a GPU, in all calls or in none.
            evaluation: also what the script does after its epoch; the last that can be asked.

        Raises:
            TimeOver: they took longer than up to `until_s`, by `time.monotonic`.
            WorkerGone: it is over.
        """


@runtime_checkable
class PairsSteps(WorkerLike, Protocol):
    """A worker of several ranks, which can leave their gradients unsynchronised."""

    def pairs_of_ranks(self, batch_size: int, time_limit_s: float) -> tuple[RankPairs, ...]:
        """Runs steps with and without synchronisation in turn, on every rank.

        Raises:
            WorkerGone: a rank is over, and so are all.
        """


@runtime_checkable
class HasGuest(WorkerLike, Protocol):
    """A worker in which a guest can be asked; see `orders.Guest`."""

    def ask(self, question: str, until_s: float | None = None) -> Answered:
        """Asks it, between two steps.

        Raises:
            TimeOver: it took longer than up to `until_s`, by `time.monotonic`.
            WorkerGone: it is over.
        """
