"""Starts a worker, listens to it, and ends it with everything that it started."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterable
from itertools import takewhile
from pathlib import Path
from typing import Any, TypeVar

from ...records import (
    DeviceInfo,
    Discovery,
    Distribution,
    FileTouched,
    Parallelism,
    Versions,
)
from ..devices import host
from ..devices.gpu_in_use import GpuInUse
from ..source.call_site import is_users, shown_path
from .channel import ChannelClosedError
from .endings import ENDED, WAITED, RanksStarting, WorkerGone, over
from .faults import outcome_of_exit
from .interrupts import held_back
from .messages import CannotSteer, Ended, Found, Message, Progress, Raised, Spawning
from .orders import AnswerT, Ask, Order, WorkOrder
from .process_group import ProcessGroup, shared_segments
from .worker_launch import Launched
from .worker_listener import LastWords, Silence, WorkerListener

MessageT = TypeVar("MessageT", bound=Message)

DUMP_GRACE_S = 0.5
"""Time for a stack dump before a hanging process is killed."""
LAST_WORDS_BYTES = 8000


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
        self._log_start = size_of(log)
        self._silence_s = silence_s
        self._setup_s = setup_s
        self._oom_kills = host.num_oom_kills()
        others = shared_segments()
        self._ending = False
        self._ended = False
        self._killed = False
        launched = launched or Launched(log, environment)
        self._process, self._channel = launched.process, launched.channel
        self._processes = ProcessGroup(self._process, others)
        self._listener = WorkerListener(self._channel, on_progress)
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
    def distribution(self) -> Distribution | None:
        """The parallelism inside this one process; `None` without any."""
        seen = self.parallelism
        if seen is None or not (seen.shapes or seen.world_size):
            return None
        return Distribution(world_size=seen.world_size or 1, launcher="none", parallelism=seen)

    @property
    def versions(self) -> Versions | None:
        """Versions that the worker told."""
        return self._listener.versions

    @property
    def files(self) -> list[FileTouched]:
        """Files that the script touched, as far as the worker told."""
        return self._listener.files

    def add_files(self, files: Iterable[FileTouched]) -> None:
        """Adds files that other processes of the script touched."""
        self._listener.files += files

    def discover(self, until_s: float | None = None) -> tuple[Discovery, DeviceInfo]:
        """Waits until the training loop is found.

        Args:
            until_s: no longer than up to this moment, by `time.monotonic`.

        Raises:
            TimeOver: that moment came first.
            RanksStarting: the script starts ranks of its own; see distributed/self_started.py.
            WorkerGone: it was not found.
        """
        message = self._await((Spawning, Found), self._setup_s, until_s)
        if isinstance(message, Spawning):
            raise RanksStarting(message.world_size, message.own_rank)
        assert isinstance(message, Found)
        self.parallelism = message.parallelism
        self.in_use = message.in_use
        return message.discovery, message.device

    def takes(self, kind: type[Order[Any]]) -> bool:
        """Any order: the process has the whole script."""
        del kind
        return True

    def ask(self, order: Order[AnswerT], until_s: float | None = None) -> AnswerT:
        """Gives an order, and waits for its answer.

        Args:
            until_s: no longer than up to this moment, by `time.monotonic`.

        Raises:
            TimeOver: that moment came first.
            WorkerGone: the process is over.
        """
        self.send(order)
        # A guest may compile for minutes, and says nothing meanwhile.
        silence_s = self._setup_s if isinstance(order, Ask) else self._silence_s
        while True:
            message = self._await((order.answer(),), silence_s, until_s)
            if order.is_answered_by(message):
                return message

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
            self._listener.read_waiting()
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
        self._processes.kill_each()

    def kill(self) -> None:
        """Kills the process group only; whoever waits for the process hears that it died."""
        if not self._ended and self._process.poll() is None:
            self._killed = True
            self._processes.kill_group()

    def end(self) -> None:
        """Kills the process, its group and its descendants, and sweeps shared memory.

        Where Ctrl-C cuts it short, another call does the rest.
        """
        if self._ended:
            return
        self._ending = True
        self._processes.end()
        with held_back():
            self._channel.close()
            self._processes.sweep()
            self._ended = True

    # inside ----------------------------------------------------------------------------------

    def _await(
        self, kinds: tuple[type[MessageT], ...], timeout_s: float, until_s: float | None = None
    ) -> MessageT:
        """The next message of these kinds; all others are let go.

        Raises:
            TimeOver: `until_s` came first.
            WorkerGone: the process is over, or the script in it.
        """
        try:
            while True:
                message = self._listener.next(timeout_s, until_s)
                if isinstance(message, kinds):
                    return message
        except ChannelClosedError:
            raise self._died() from None
        except Silence as silence:
            raise self._hung(silence.limit_s) from None
        except LastWords as last:
            raise self._over(last.message) from None

    def _over(self, message: Raised | Ended | CannotSteer) -> WorkerGone:
        if self.order.lockstep is None:  # of several ranks none is ended before all were heard
            self.end()
        return over(message, self._printed())

    def _died(self) -> WorkerGone:
        status = self._wait(5.0)
        self.end()
        if self._killed:
            return WorkerGone("crashed", ENDED)
        kills = host.num_oom_kills()
        by_kernel = None if kills is None or self._oom_kills is None else kills > self._oom_kills
        said = self._printed()
        return WorkerGone(*outcome_of_exit(status, killed_for_memory=by_kernel, last_words=said))

    def _printed(self) -> str:
        """The end of what was printed since this process was started."""
        return end_of(self.log, self._log_start)

    def _hung(self, limit_s: float) -> WorkerGone:
        before = size_of(self.log)
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGUSR1)  # faulthandler writes all stacks into the log
            time.sleep(DUMP_GRACE_S)
        self.end()
        stood = line_of_the_script(self.log, before)
        at = f"; it stood at {stood}" if stood else ""
        detail = f"nothing was heard for {limit_s:.3g} s{at}; stacks are in the log"
        if self.order.lockstep is not None and waits_for_others(self.log, before):
            detail += f"; {WAITED}"
        return WorkerGone("hung", detail)

    def _wait(self, timeout_s: float) -> int:
        try:
            return self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            # It closed the pipe and lives on: not one of the ways a worker ends.
            return -signal.SIGABRT


# What the log of a script's output says of its end.

_COLLECTIVE = (
    "/torch/distributed/",
    "/torch/autograd/graph.py",
    "/probes/distributed/lockstep.py",
)
"""Where the main thread is while it waits: DDP's collectives run inside the backward pass, and
between two steps we hold a rank back until the others have come."""


def size_of(log: Path) -> int:
    """Bytes in the log; 0 once somebody removed it."""
    with contextlib.suppress(OSError):
        return log.stat().st_size
    return 0


def end_of(log: Path, since: int) -> str:
    """The last that the script printed, after the first `since` bytes."""
    try:
        with log.open("rb") as file:
            file.seek(max(since, file.seek(0, os.SEEK_END) - LAST_WORDS_BYTES))
            return file.read().decode(errors="replace")
    except OSError:
        return ""


def waits_for_others(log: Path, offset: int) -> bool:
    """Whether the stacks written after `offset` show the main thread inside a collective."""
    return any(part in frame for frame in _stack(log, offset)[:6] for part in _COLLECTIVE)


def line_of_the_script(log: Path, offset: int) -> str:
    """The user's outermost function, or line, that the stacks written after `offset` show.

    The innermost one may be another each time, deep in a model; the outermost one is named by what
    it does: `evaluate`, `read_corpus`. Empty where no stack was written.
    """
    outermost = ""
    for frame in _stack(log, offset):
        found = re.match(r'\s*File "(.+)", line (\d+) in (\S+)', frame)
        if found is None or not is_users(found[1]):
            continue
        inside = "" if found[3] == "<module>" else f" in {found[3]}"
        if inside or not outermost:
            outermost = f"{shown_path(found[1])}:{found[2]}{inside}"
    return outermost


def _stack(log: Path, offset: int) -> list[str]:
    """The frames of the main thread among the stacks written after `offset`, innermost first."""
    with contextlib.suppress(OSError):
        text = log.read_bytes()[offset:].decode(errors="replace")
        lines = text.partition("Current thread")[2].splitlines()[1:]
        return list(takewhile(lambda line: line.startswith("  File "), lines))
    return []
