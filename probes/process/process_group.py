"""A process of ours with everything that it started: who they are, what they hold, how they end."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Collection, Iterable
from pathlib import Path

from ..devices import host
from .interrupts import held_back

TRACKER_S = 3.0
"""Python's tracker of semaphores gets so long to remove them."""


class ProcessGroup:
    """The process leads a session of its own.

    Args:
        process: that leads it.
        others_shared_memory: files in shared memory from before it began, which are not its own.
    """

    def __init__(
        self, process: subprocess.Popen[bytes], others_shared_memory: Collection[str]
    ) -> None:
        self._process = process
        self._others = set(others_shared_memory)
        self._held: set[str] = set()

    def members(self) -> list[int]:
        """The process and all that it started; asked before a kill, as nobody can tell after it.

        Where it is dead already, its session still names its orphans. What shared memory they hold
        is noted, semaphores among it: the tracker that would remove them is killed as well.
        """
        leader = self._process.pid
        below = [*host.descendants(leader), *host.session_members(leader)]
        members = list(dict.fromkeys((leader, *below)))
        self._held |= segments_held_by(members)
        return members

    def kill_each(self) -> None:
        """Kills every process, the last that was started first; `end` does the rest."""
        _kill(reversed(self.members()))

    def kill_group(self) -> None:
        """Kills those that did not leave the group."""
        self.members()
        self._kill_group()

    def end(self) -> None:
        """Kills all, and waits for the process; where Ctrl-C cuts it short, call it again."""
        if self._process.poll() is not None:
            self._end_orphans()
        with held_back():
            members = self.members()
            self._kill_group()
            _kill(members[1:])  # those that left the group
        self._process.wait()

    def sweep(self) -> None:
        """Removes the shared memory that they held, and left."""
        for path in self._held - self._others:
            with contextlib.suppress(OSError):
                os.unlink(path)  # noqa: PTH108

    def _kill_group(self) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)

    def _end_orphans(self) -> None:
        """Ends what a process that died by itself left; only Python's tracker may know its
        semaphores.

        It removes them once nobody else is left.
        """
        with held_back():
            orphans = self.members()[1:]
            trackers = trackers_of(orphans)
            _kill(set(orphans) - set(trackers))
        deadline = time.monotonic() + TRACKER_S
        while trackers_of(trackers) and time.monotonic() < deadline:
            time.sleep(0.01)


def _kill(pids: Iterable[int]) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)


def shared_segments() -> set[str]:
    """All segments in /dev/shm, empty where there is no such folder."""
    try:
        return {f"/dev/shm/{name}" for name in os.listdir("/dev/shm")}  # noqa: PTH208
    except OSError:
        return set()


def segments_held_by(pids: list[int]) -> set[str]:
    """Segments in /dev/shm that these processes have mapped or open."""
    segments: set[str] = set()
    for pid in pids:
        with contextlib.suppress(OSError):
            maps = Path(f"/proc/{pid}/maps").read_text(errors="surrogateescape")  # as os.fsdecode
            for line in maps.splitlines():
                path = line.partition("/dev/shm/")
                if path[1] and not line.endswith("(deleted)"):
                    segments.add(path[1] + path[2])
        with contextlib.suppress(OSError):
            for link in Path(f"/proc/{pid}/fd").iterdir():
                with contextlib.suppress(OSError):
                    target = os.readlink(link)  # noqa: PTH115
                    if target.startswith("/dev/shm/") and not target.endswith("(deleted)"):
                        segments.add(target)
    return segments


def trackers_of(pids: list[int]) -> list[int]:
    """Those that remove the semaphores of spawned processes when all who use them are gone."""
    tracker_pids = []
    for pid in pids:
        with contextlib.suppress(OSError):
            if b"resource_tracker" in Path(f"/proc/{pid}/cmdline").read_bytes():  # none of a zombie
                tracker_pids.append(pid)
    return tracker_pids
