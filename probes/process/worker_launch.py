"""A worker process, the two pipes to it, and a process that is started ahead of its order."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import struct
import subprocess
from pathlib import Path

from .channel import Channel, ChannelClosedError
from .messages import Ready, decode_from_worker
from .orders import WorkOrder
from .worker_environment import variables_for, worker_command


class Launched:
    """A new process that awaits its order.

    Args:
        log: file for everything that it prints.
        environment: its variables; TMPDIR is the run's own and goes with it.
    """

    def __init__(self, log: Path, environment: dict[str, str]) -> None:
        environment = variables_for(environment, Path(environment["TMPDIR"]))
        their_read, our_write = os.pipe()
        our_read, their_write = os.pipe()
        ours, theirs = open_terminal() or (None, None)
        with log.open("ab") as output:
            self.process = subprocess.Popen(
                worker_command(their_read, their_write, environment),
                stdin=subprocess.DEVNULL if theirs is None else theirs,
                stdout=output,
                stderr=output,
                pass_fds=(their_read, their_write),
                env=environment,
                start_new_session=True,
            )
        os.close(their_read)
        os.close(their_write)
        if theirs is not None:
            os.close(theirs)
        self.channel = Channel(our_read, our_write, terminal=ours)


class Standby:
    """A process that has imported what every worker imports, and sleeps until it is wanted.

    It has seen nothing of the script but its name and its folder, which its imports search first,
    as those of the script do; no device knows of it.

    Args:
        order: of a worker as it may be wanted; the one that counts is sent when it is.
        log, environment: as of a worker.
    """

    def __init__(self, order: WorkOrder, log: Path, environment: dict[str, str]) -> None:
        self._order = order
        self._environment = environment
        self._asleep = False
        self._launched = Launched(log, environment)
        with contextlib.suppress(ChannelClosedError):
            self._launched.channel.send(order)

    @property
    def pid(self) -> int:
        """Its process id, which is the id of its group too."""
        return self._launched.process.pid

    def is_asleep(self, timeout_s: float) -> bool:
        """Whether it is ready and sleeps, waited for so long."""
        with contextlib.suppress(ChannelClosedError):
            line = None if self._asleep else self._launched.channel.receive_line(timeout_s)
            self._asleep |= line is not None and isinstance(decode_from_worker(line), Ready)
        return self._asleep

    def fits(self, order: WorkOrder, environment: dict[str, str]) -> bool:
        """Whether a worker of this order would have begun as it did, and it still lives."""
        same = _beginning(order) == _beginning(self._order)
        return same and environment == self._environment and self._launched.process.poll() is None

    def take(self) -> Launched:
        """The process, to whoever gives it its order and ends it."""
        return self._launched

    def end(self) -> None:
        """Kills it; it has started nothing."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)
        self._launched.process.wait()
        self._launched.channel.close()


def _beginning(order: WorkOrder) -> tuple[object, ...]:
    """The parts of an order that a worker heeds before the script runs."""
    return order.script, order.arguments, order.module, order.door, order.cores


# A terminal for the script's standard input: as wide as the user's, with nobody who types.
#
# Scripts ask for its size (`stty size`). Each read of it says end of file, as those of a closed
# input do; it controls no session, so that nothing that is typed reaches the script.

USUAL = (80, 24)


def open_terminal() -> tuple[int, int] | None:
    """Our end and the script's; `None` where there is none to be had.

    It is one for as long as ours stays open.
    """
    if not hasattr(os, "openpty"):  # not a POSIX system
        return None
    import fcntl
    import termios

    try:
        ours, theirs = os.openpty()
    except OSError:
        return None
    with contextlib.suppress(termios.error, OSError):
        modes = termios.tcgetattr(theirs)
        modes[3] &= ~(termios.ICANON | termios.ECHO)
        modes[6][termios.VMIN] = modes[6][termios.VTIME] = 0  # a read waits for nothing
        termios.tcsetattr(theirs, termios.TCSANOW, modes)
        columns, lines = _size()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        return ours, theirs
    os.close(ours)
    os.close(theirs)
    return None


def _size() -> tuple[int, int]:
    """Columns and lines of the user's terminal, or those that the environment names."""
    for stream in range(3):
        with contextlib.suppress(OSError):
            size = os.get_terminal_size(stream)
            if min(size) > 0:
                return size
    return shutil.get_terminal_size(USUAL)
