"""Starts a worker, listens to it, and ends it with everything that it started."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from ..records import (
    DeviceInfo,
    Discovery,
    FileTouched,
    LossCheck,
    Outcome,
    Parallelism,
    RankPairs,
    Trial,
    Versions,
)
from . import host, shared_memory
from .faults import headline, outcome_of_exit
from .hearing import Hearing, LastWords, Silence
from .interrupts import held_back
from .launch import Launched
from .messages import (
    CannotSteer,
    ChannelClosedError,
    Ended,
    Found,
    FromWorker,
    GpuInUse,
    LossResult,
    Message,
    PairsResult,
    Progress,
    Raised,
    Result,
    RunLoss,
    RunPairs,
    RunTrial,
    Spawning,
    StepSample,
    WorkOrder,
)

GRACE_S = 0.5
"""Time for a stack dump before a hanging process is killed."""

TRACKER_S = 3.0
"""Python's tracker of semaphores gets so long to remove them."""
WAITED = "it waited for another rank"
"""What is said of a rank that hung inside a collective."""
ENDED = "it was ended with the others"
"""What is said of a rank that we ended because another one was over."""
_COLLECTIVE = (
    "/torch/distributed/",
    "/torch/autograd/graph.py",
    "/probes/distributed/lockstep.py",
)
"""Where the main thread is while it waits: DDP's collectives run inside the backward pass, and
between two steps we hold a rank back until the others have come."""


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


class RanksStarting(Exception):  # noqa: N818  a normal turn of a script
    """The script is about to start ranks of its own, and waits for us.

    Attributes:
        world_size: how many.
        own_rank: which of them the process is that starts the others; `None` if it is none.
    """

    def __init__(self, world_size: int, own_rank: int | None = None) -> None:
        super().__init__(world_size)
        self.world_size = world_size
        self.own_rank = own_rank


class NoRanks(Exception):  # noqa: N818  a normal turn of a script
    """The processes that the script started trained nothing, and ended: it goes on itself."""


class Worker:
    """One worker process.

    Args:
        order: what it shall run.
        log: file for everything that the script prints.
        environment: its variables.
        silence_s: longest time without a sign of life inside a trial.
        setup_s: the same before the training loop is found.
        on_progress: told of every sign of life.
        launched: a process that was started ahead of its order; a new one if not given.
    """

    def __init__(
        self,
        order: WorkOrder,
        *,
        log: Path,
        environment: dict[str, str],
        silence_s: float,
        setup_s: float,
        on_progress: Callable[[Progress], None],
        launched: Launched | None = None,
    ) -> None:
        self.order = order
        self.log = log
        self.parallelism: Parallelism | None = None
        self.in_use: tuple[GpuInUse, ...] = ()
        self._silence_s = silence_s
        self._setup_s = setup_s
        self._oom_kills = host.num_oom_kills()
        self._shared_memory = shared_memory.files()
        self._held: set[str] = set()
        self._ending = False
        self._ended = False
        self._killed = False
        launched = launched or Launched(log, environment)
        self._process, self._channel = launched.process, launched.channel
        self._hearing = Hearing(self._channel, on_progress)
        with contextlib.suppress(ChannelClosedError):
            self._channel.send(order)

    @property
    def pid(self) -> int:
        """Its process id, which is the id of its group too."""
        return self._process.pid

    def was_stopped(self) -> bool:
        """Whether the process was stopped or continued since this was last asked."""
        try:
            state = os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WCONTINUED | os.WNOHANG)
        except (AttributeError, ChildProcessError):  # another system; or the process is over
            return False
        return state is not None

    @property
    def versions(self) -> Versions | None:
        """What it told of itself."""
        return self._hearing.versions

    @property
    def files(self) -> list[FileTouched]:
        """What the script touched, as far as it was told."""
        return self._hearing.files

    def add_files(self, files: Iterable[FileTouched]) -> None:
        """What other processes of the script told that they touched."""
        self._hearing.files += files

    def discover(self, until_s: float | None = None) -> tuple[Discovery, DeviceInfo]:
        """Waits until the training loop is found.

        Args:
            until_s: no longer than up to this moment, by `time.monotonic`.

        Raises:
            TimeOver: that moment came first.
            RanksStarting: the script starts ranks of its own; see distributed/self_started.py.
            WorkerGone: it was not found.
        """
        while True:
            message = self._receive(self._setup_s, until_s)
            if isinstance(message, Spawning):
                raise RanksStarting(message.world_size, message.own_rank)
            if isinstance(message, Found):
                self.parallelism = message.parallelism
                self.in_use = message.in_use
                return message.discovery, message.device

    def run(self, order: RunTrial) -> tuple[Trial, tuple[StepSample, ...]]:
        """Runs one size.

        Raises:
            WorkerGone: the process is over; the caller makes the trial's record from it.
        """
        try:
            self._channel.send(order)
        except ChannelClosedError:
            raise self._died() from None
        while True:
            message = self._receive(self._silence_s)
            if isinstance(message, Result) and message.trial.ordinal == order.ordinal:
                return message.trial, message.steps

    def run_pairs(self, batch_size: int, time_limit_s: float) -> RankPairs:
        """Runs steps with and without gradient synchronisation in turn.

        Raises:
            WorkerGone: the process is over.
        """
        try:
            self._channel.send(RunPairs(batch_size=batch_size, time_limit_s=time_limit_s))
        except ChannelClosedError:
            raise self._died() from None
        while True:
            message = self._receive(self._silence_s)
            if isinstance(message, PairsResult):
                return message.pairs

    def run_loss(self, batch_size: int, time_limit_s: float) -> LossCheck:
        """Makes the steps that show how the loss reduces a batch.

        Raises:
            TimeOver: they took longer than they may.
            WorkerGone: the process is over.
        """
        until_s = time.monotonic() + time_limit_s
        self.send(RunLoss(batch_size=batch_size, time_limit_s=time_limit_s))
        while True:
            message = self._receive(self._silence_s, until_s)
            if isinstance(message, LossResult):
                return message.check

    @property
    def ended(self) -> bool:
        """Whether we ended it, or are about to."""
        return self._ending or self._killed

    def check(self) -> None:
        """Takes what it said meanwhile, without waiting.

        Raises:
            WorkerGone: the process is over, or the script in it.
        """
        try:
            self._hearing.heed()
        except ChannelClosedError:
            raise self._died() from None
        except LastWords as last:
            raise self._over(last.message) from None

    def send(self, message: Message) -> None:
        """Tells it something.

        Raises:
            WorkerGone: the process is over.
        """
        try:
            self._channel.send(message)
        except ChannelClosedError:
            raise self._died() from None

    def kill_all(self) -> None:
        """Kills the process and its descendants; `end` sweeps what they leave."""
        if self._ended:
            return
        self._killed = self._killed or self._process.poll() is None
        for pid in reversed(self._group()):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)

    def kill(self) -> None:
        """Kills the process group only; whoever waits for the process hears that it died."""
        if not self._ended and self._process.poll() is None:
            self._killed = True
            self._group()
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGKILL)

    def end(self) -> None:
        """Kills the process, its group and its descendants, and sweeps shared memory.

        Where Ctrl-C cuts it short, another call does the rest.
        """
        if self._ended:
            return
        self._ending = True
        if self._process.poll() is not None:
            self._end_orphans()
        with held_back():
            group = self._group()
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGKILL)
            for pid in group[1:]:  # those that left the group
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)
        self._process.wait()
        with held_back():
            self._channel.close()
            for path in self._held - self._shared_memory:
                with contextlib.suppress(OSError):
                    os.unlink(path)  # noqa: PTH108
            self._ended = True

    # inside ----------------------------------------------------------------------------------

    def _end_orphans(self) -> None:
        """Of a process that died by itself only Python's tracker may still know the semaphores.

        It removes them once nobody else is left.
        """
        with held_back():
            orphans = self._group()[1:]
            trackers = shared_memory.trackers(orphans)
            for pid in set(orphans) - set(trackers):
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)
        deadline = time.monotonic() + TRACKER_S
        while shared_memory.trackers(trackers) and time.monotonic() < deadline:
            time.sleep(0.01)

    def _group(self) -> list[int]:
        """The process and all that it started; asked before a kill, as nobody can tell after it.

        Where it is dead already, its session still names its orphans. What shared memory they hold
        is noted, semaphores among it: the tracker that would remove them is killed as well.
        """
        below = [*host.descendants(self.pid), *host.session_members(self.pid)]
        group = list(dict.fromkeys((self.pid, *below)))
        self._held |= shared_memory.held_by(group)
        return group

    def _receive(self, silence_s: float, until_s: float | None = None) -> FromWorker:
        """The next message; signs of life and notes are taken care of."""
        try:
            return self._hearing.next(silence_s, until_s)
        except ChannelClosedError:
            raise self._died() from None
        except Silence as silence:
            raise self._hung(silence.limit_s) from None
        except LastWords as last:
            raise self._over(last.message) from None

    def _over(self, message: Raised | Ended | CannotSteer) -> WorkerGone:
        if self.order.lockstep is None:  # of several ranks none is ended before all were heard
            self.end()
        return over(message)

    def _died(self) -> WorkerGone:
        status = self._wait(5.0)
        self.end()
        if self._killed:
            return WorkerGone("crashed", ENDED)
        kills = host.num_oom_kills()
        by_kernel = None if kills is None or self._oom_kills is None else kills > self._oom_kills
        said = _end_of(self.log)
        return WorkerGone(*outcome_of_exit(status, killed_for_memory=by_kernel, last_words=said))

    def _hung(self, silence_s: float) -> WorkerGone:
        before = _size_of(self.log)
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGUSR1)  # faulthandler writes all stacks into the log
            time.sleep(GRACE_S)
        self.end()
        detail = f"nothing was heard for {silence_s:.3g} s; stacks are in the log"
        if self.order.lockstep is not None and waits_for_others(self.log, before):
            detail += f"; {WAITED}"
        return WorkerGone("hung", detail)

    def _wait(self, timeout_s: float) -> int:
        try:
            return self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            # It closed the pipe and lives on: not one of the ways a worker ends.
            return -signal.SIGABRT


def _size_of(log: Path) -> int:
    """Bytes in the log; 0 once somebody removed it."""
    with contextlib.suppress(OSError):
        return log.stat().st_size
    return 0


def _end_of(log: Path, num_bytes: int = 4000) -> str:
    """The last that the script printed."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - num_bytes))
            return file.read().decode(errors="replace")
    except OSError:
        return ""


def over(message: Raised | Ended | CannotSteer) -> WorkerGone:
    """What the last words of a script mean."""
    if isinstance(message, Raised):
        outcome: Outcome = "out_of_memory" if message.out_of_memory else "exception"
        said = headline(message.text)
        text = f"{message.kind}: {said}" if said else message.kind
        return WorkerGone(outcome, text, message)
    if isinstance(message, Ended):
        return WorkerGone(
            "crashed" if message.exit_code else "script_ended",  # it gave up, or it was done
            f"the script ended with exit code {message.exit_code} "
            f"after {message.num_steps} optimizer steps",
            message,
        )
    return WorkerGone("no_step", message.reason, message)


def waits_for_others(log: Path, offset: int) -> bool:
    """Whether the stacks written after `offset` show the main thread inside a collective."""
    with contextlib.suppress(OSError):
        text = log.read_bytes()[offset:].decode(errors="replace")
        frames = text.partition("Current thread")[2].splitlines()[1:7]
        return any(part in frame for frame in frames for part in _COLLECTIVE)
    return False
