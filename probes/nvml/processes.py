"""Tells the probed processes on a GPU from the others.

NVML lists compute processes by number. In a container the numbers may be those of the host, the
list may be empty, or the bytes may be hidden: then no process is called ours or foreign.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

from ...records import Record
from ...units import format_bytes
from .calls import NvmlRefusedError, ask

_INITIAL_NAMESPACE = "pid:[4026531836]"
"""The kernel's fixed name for the first process namespace (`PROC_PID_INIT_INO`)."""


class GpuProcess(Record, frozen=True, kw_only=True):
    """A process on the GPU; name and bytes are `None` where the driver does not tell them."""

    pid: int
    name: str | None = None
    memory_bytes: int | None = None

    def __str__(self) -> str:
        known = [] if self.memory_bytes is None else [format_bytes(self.memory_bytes)]
        return f"{self.pid} ({', '.join([self.name or 'name unknown', *known])})"


class Processes(Record, frozen=True, kw_only=True):
    """Who is on the GPU; a field that is `None` has a reason.

    Attributes:
        own_bytes: memory of the probed processes on this GPU.
        others: the rest, by process number.
    """

    own_bytes: int | None = None
    others: tuple[GpuProcess, ...] | None = None
    unavailable: dict[str, str] = msgspec.field(default_factory=dict)


class ProcessTable:
    """Looks up the processes on a GPU, and remembers their names.

    Args:
        pids: the probed processes, as this process numbers them.
        host_numbers: whether this process sees the same numbers as the driver; found out by
            default.
    """

    def __init__(self, pids: Iterable[int], host_numbers: bool | None = None) -> None:
        self._pids = frozenset(pids)
        self._names: dict[int, str] = {}
        self._host_numbers = sees_host_numbers() if host_numbers is None else host_numbers

    def look(self, handle: Any) -> Processes:
        """The processes at this moment."""
        try:
            listing = ask("nvmlDeviceGetComputeRunningProcesses", handle)
        except NvmlRefusedError as error:
            reason = str(error)
            return Processes(
                unavailable={"process_memory_bytes": reason, "other_processes": reason}
            )
        ours = [process for process in listing if process.pid in self._pids]
        others = [process for process in listing if process.pid not in self._pids]
        if ours:
            hidden = any(process.usedGpuMemory is None for process in ours)
            return Processes(
                own_bytes=None if hidden else sum(process.usedGpuMemory for process in ours),
                others=self._describe(others),
                unavailable={"process_memory_bytes": "the driver hides the bytes of this process"}
                if hidden
                else {},
            )
        if self._host_numbers:
            return Processes(
                others=self._describe(others),
                unavailable={"process_memory_bytes": "the probed process is not on this GPU"},
            )
        if not listing:
            reason = "the driver lists no process on this GPU, not even the probed one"
        else:
            numbers = ", ".join(str(process.pid) for process in listing)
            reason = (
                f"the driver lists process {numbers}: in a container its numbers may differ from "
                "those seen inside, so which of them is probed cannot be told"
            )
        return Processes(unavailable={"process_memory_bytes": reason, "other_processes": reason})

    def _describe(self, processes: Iterable[Any]) -> tuple[GpuProcess, ...]:
        return tuple(
            GpuProcess(
                pid=process.pid, name=self._name(process.pid), memory_bytes=process.usedGpuMemory
            )
            for process in sorted(processes, key=lambda process: int(process.pid))
        )

    def _name(self, pid: int) -> str | None:
        if pid not in self._names:
            try:
                self._names[pid] = Path(ask("nvmlSystemGetProcessName", pid)).name
            except NvmlRefusedError:
                self._names[pid] = ""
        return self._names[pid] or None


def sees_host_numbers() -> bool:
    """Whether this process lives in the machine's first process namespace."""
    try:
        return str(Path("/proc/self/ns/pid").readlink()) == _INITIAL_NAMESPACE
    except OSError:
        return False
