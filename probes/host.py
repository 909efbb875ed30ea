"""The machine under the script: cores, memory that can really be had, load.

Linux only where it reads /proc and /sys; elsewhere the functions say `None`.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

_CGROUP = Path("/sys/fs/cgroup")
MIN_CPU_USE_S = 0.05
"""The kernel counts in ticks of 10 ms; over less than this they say nothing."""
OTHERS_CORES = 0.15
FULL_SHARE = 0.85
"""Others are a doubt from so many cores on, when so much of the machine is busy."""
_UNLIMITED = 1 << 60  # cgroup v1 writes a number near 2^63 for "no limit"


def num_cores() -> int:
    """Cores that this process may use: affinity, bounded by the cgroup's CPU quota."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    quotas = [quota_of(folder) for folder in cgroup_folders("cpu")]
    quota = min((one for one in quotas if one), default=None)
    return max(1, min(cores or 1, round(quota)) if quota else cores or 1)


def cpu_name() -> str:
    """The processor's name as the kernel gives it, or its architecture."""
    for line in _lines(Path("/proc/cpuinfo")):
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return os.uname().machine


def available_bytes() -> tuple[int, str] | None:
    """Memory that a new process can have, in bytes, and where the figure comes from.

    The smaller of what the kernel calls available and what the cgroup has left.
    """
    found = [(size, "available memory of the machine") for size in _meminfo("MemAvailable:")]
    for folder in cgroup_folders("memory"):
        limit = _number(folder / "memory.max", folder / "memory.limit_in_bytes")
        used = _number(folder / "memory.current", folder / "memory.usage_in_bytes")
        if limit is not None and used is not None and limit < _UNLIMITED:
            left = max(0, limit - used + _reclaimable(folder))
            found.append((left, "memory left in the cgroup"))
    return min(found) if found else None


def total_bytes() -> int | None:
    """Memory of the machine or of the cgroup, whichever is smaller, in bytes."""
    found = _meminfo("MemTotal:")
    for folder in cgroup_folders("memory"):
        limit = _number(folder / "memory.max", folder / "memory.limit_in_bytes")
        if limit is not None and limit < _UNLIMITED:
            found.append(limit)
    return min(found) if found else None


def unused_limit_bytes() -> tuple[int, str] | None:
    """What limits of this process (`ulimit -d`, `ulimit -v`) still let it have; `None` without."""
    import resource

    found = []
    for limit, used, name in (
        (resource.RLIMIT_DATA, "VmData", "RLIMIT_DATA of the process"),
        (resource.RLIMIT_AS, "VmSize", "RLIMIT_AS of the process"),
    ):
        soft, taken = resource.getrlimit(limit)[0], status_bytes(used)
        if soft != resource.RLIM_INFINITY and taken is not None:
            found.append((max(0, soft - taken), name))
    return min(found) if found else None


def num_oom_kills() -> int | None:
    """How often the kernel killed a process for memory: here, or in this cgroup."""
    for folder in cgroup_folders("memory"):
        for line in _lines(folder / "memory.events"):
            if line.startswith("oom_kill "):
                return int(line.split()[1])
    for line in _lines(Path("/proc/vmstat")):
        if line.startswith("oom_kill "):
            return int(line.split()[1])
    return None


class CpuUse:
    """Who used the cores since this object was made."""

    def __init__(self) -> None:
        self._started_s = time.monotonic()
        self._own_s = _own_cpu_s()
        self._machine = _machine_cpu_s()

    def doubt(self) -> str | None:
        """A sentence when others took cores that the script could have used, else `None`.

        A little is enough to matter: threads that wait for each other at barriers all wait for
        the one that lost its core.
        """
        wall_s = time.monotonic() - self._started_s
        now = _machine_cpu_s()
        if now is None or self._machine is None or wall_s < MIN_CPU_USE_S:
            return None
        busy = (now[0] - self._machine[0]) / wall_s
        stolen = (now[1] - self._machine[1]) / wall_s
        others = max(0.0, busy - (_own_cpu_s() - self._own_s) / wall_s)
        cores = os.cpu_count() or 1
        if stolen > OTHERS_CORES:
            return (
                f"the hypervisor took {stolen:.1f} of {cores} cores meanwhile; "
                "step times may be too long"
            )
        if others > OTHERS_CORES and busy + stolen > FULL_SHARE * cores:
            return (
                f"other processes used {others:.1f} of {cores} cores meanwhile; "
                "step times may be too long"
            )
        return None


def status_bytes(field: str, pid: int | str = "self") -> int | None:
    """A field of /proc/PID/status that the kernel gives in kB, in bytes: `VmHWM`, `VmRSS` ..."""
    for line in _lines(Path(f"/proc/{pid}/status")):
        if line.startswith(field + ":"):
            return int(line.split()[1]) * 1024
    return None


def descendants(pid: int) -> list[int]:
    """All processes below `pid`, children first; empty where /proc is missing."""
    children: dict[int, list[int]] = {}
    for one, parent, _ in _processes():
        children.setdefault(parent, []).append(one)
    found: list[int] = []
    queue = list(children.get(pid, []))
    while queue:
        one = queue.pop(0)
        found.append(one)
        queue += children.get(one, [])
    return found


def session_members(pid: int) -> list[int]:
    """All processes of the session that `pid` began, also once it is dead."""
    return [one for one, _, session in _processes() if session == pid]


def _processes() -> Iterator[tuple[int, int, int]]:
    """Every process, its parent and its session."""
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            text = (entry / "stat").read_text(errors="replace")  # names are any bytes, cut at 15
        except OSError:
            continue
        _, parent, _, session = text.rpartition(")")[2].split()[:4]
        yield int(entry.name), int(parent), int(session)


def _machine_cpu_s() -> tuple[float, float] | None:
    """Busy and stolen core-seconds of the machine since it started."""
    for line in _lines(Path("/proc/stat")):
        if line.startswith("cpu "):
            ticks = [int(one) for one in line.split()[1:]]
            tick_s = 1 / os.sysconf("SC_CLK_TCK")
            user, nice, system, _, _, irq, softirq = ticks[:7]
            stolen = ticks[7] if len(ticks) > 7 else 0
            return (user + nice + system + irq + softirq) * tick_s, stolen * tick_s
    return None


def _own_cpu_s() -> float:
    """Core-seconds of this process and of the data workers below it."""
    tick_s = 1 / os.sysconf("SC_CLK_TCK")
    total = time.process_time()
    for pid in descendants(os.getpid()):
        words = " ".join(_lines(Path(f"/proc/{pid}/stat"))).rpartition(")")[2].split()
        if len(words) > 12:
            total += (int(words[11]) + int(words[12])) * tick_s
    return total


def cgroup_folders(controller: str) -> list[Path]:
    """The cgroup of this process and its parents that carry a controller: `memory`, `cpu`."""
    folders: list[Path] = []
    for line in _lines(Path("/proc/self/cgroup")):
        _, controllers, path = line.strip().split(":", 2)
        if controllers == "":
            base = _CGROUP
        elif controller in controllers.split(","):
            base = _CGROUP / controller
        else:
            continue
        own = base / path.lstrip("/")
        folders += [one for one in (own, *own.parents) if one.is_relative_to(base)]
    return folders or [_CGROUP]


def _meminfo(field: str) -> list[int]:
    """A field of /proc/meminfo in bytes, empty where there is none."""
    lines = _lines(Path("/proc/meminfo"))
    return [int(one.split()[1]) * 1024 for one in lines if one.startswith(field)]


def _reclaimable(folder: Path) -> int:
    """Page cache of the cgroup that the kernel drops before it refuses memory, in bytes."""
    wanted = ("inactive_file ", "total_inactive_file ")
    found = [
        int(line.split()[1]) for line in _lines(folder / "memory.stat") if line.startswith(wanted)
    ]
    return max(found, default=0)


def quota_of(folder: Path) -> float | None:
    """Core-seconds a second that a cgroup may use; `None` without a limit."""
    words = " ".join(_lines(folder / "cpu.max")).split()  # cgroup v2
    if len(words) == 2 and words[0] != "max":
        return int(words[0]) / int(words[1])
    quota, period = _number(folder / "cpu.cfs_quota_us"), _number(folder / "cpu.cfs_period_us")
    return quota / period if quota and period and quota > 0 else None  # cgroup v1; -1: no limit


def _number(*paths: Path) -> int | None:
    """The number in the first of the files that holds one."""
    for path in paths:
        try:
            return int(path.read_text())
        except (OSError, ValueError):
            continue
    return None


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(errors="replace").splitlines()
    except OSError:
        return []
