"""The machine under the script: cores, memory that can really be had, load.

Linux only where it reads /proc and /sys; elsewhere the functions say `None`.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

_CGROUP = Path("/sys/fs/cgroup")
_UNLIMITED = 1 << 60  # cgroup v1 writes a number near 2^63 for "no limit"
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096


def num_cores() -> int:
    """Cores that this process may use: affinity, bounded by the cgroup's CPU quota."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    quotas = [quota_of(folder) for folder in cgroup_folders("cpu")]
    quota = min((limit for limit in quotas if limit), default=None)
    return max(1, min(cores or 1, round(quota)) if quota else cores or 1)


def asked_threads(environment: Mapping[str, str]) -> int | None:
    """Threads that `OMP_NUM_THREADS` asks for at the outermost level; `None` without a number."""
    asked = environment.get("OMP_NUM_THREADS", "").partition(",")[0].strip()
    return int(asked) if asked.isdecimal() else None


def cpu_name() -> str:
    """The processor's name as the kernel gives it, or its architecture."""
    for line in _lines(Path("/proc/cpuinfo")):
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return os.uname().machine


def machine() -> str | None:
    """A digest that no two machines share; a machine has another one after it was started anew.

    Names of hosts are those of containers, and the number in /etc/machine-id is in every copy of an
    image; the kernel draws this one when it starts.
    """
    drawn = "".join(_lines(Path("/proc/sys/kernel/random/boot_id"))).strip()
    return hashlib.sha256(drawn.encode()).hexdigest()[:16] if drawn else None


def available_bytes() -> tuple[int, str] | None:
    """Memory that a new process can have, in bytes, and where the figure comes from.

    The smaller of what the kernel calls available and what the cgroup has left.
    """
    limits = [(size, "available memory of the machine") for size in _meminfo("MemAvailable:")]
    for folder in cgroup_folders("memory"):
        limit = number_in(folder / "memory.max", folder / "memory.limit_in_bytes")
        used = number_in(folder / "memory.current", folder / "memory.usage_in_bytes")
        if limit is not None and used is not None and limit < _UNLIMITED:
            left = max(0, limit - used + _reclaimable(folder))
            limits.append((left, "memory left in the cgroup"))
    return min(limits) if limits else None


def total_bytes() -> int | None:
    """Memory of the machine or of the cgroup, whichever is smaller, in bytes."""
    sizes = _meminfo("MemTotal:")
    for folder in cgroup_folders("memory"):
        limit = number_in(folder / "memory.max", folder / "memory.limit_in_bytes")
        if limit is not None and limit < _UNLIMITED:
            sizes.append(limit)
    return min(sizes) if sizes else None


def unused_limit_bytes() -> tuple[int, str] | None:
    """Bytes that limits of this process (`ulimit -d`, `ulimit -v`) leave; `None` without any."""
    import resource

    limits = []
    for limit, used, name in (
        (resource.RLIMIT_DATA, "VmData", "RLIMIT_DATA of the process"),
        (resource.RLIMIT_AS, "VmSize", "RLIMIT_AS of the process"),
    ):
        soft, taken = resource.getrlimit(limit)[0], status_bytes(used)
        if soft != resource.RLIM_INFINITY and taken is not None:
            limits.append((max(0, soft - taken), name))
    return min(limits) if limits else None


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


def throttle_files() -> tuple[Path, ...]:
    """`cpu.stat` of the cgroups that may hold this process to a quota, its own first."""
    return tuple(path for folder in cgroup_folders("cpu") if (path := folder / "cpu.stat").exists())


def status_bytes(field: str, pid: int | str = "self") -> int | None:
    """A field of /proc/PID/status that the kernel gives in kB, in bytes: `VmHWM`, `VmRSS` ..."""
    for line in _lines(Path(f"/proc/{pid}/status")):
        if line.startswith(field + ":"):
            return int(line.split()[1]) * 1024
    return None


def resident_bytes() -> int | None:
    """Resident memory of this process; a few microseconds, where VmRSS takes tens of them."""
    try:
        with open("/proc/self/statm", "rb") as file:  # noqa: PTH123  for each step
            return int(file.read().split()[1]) * _PAGE_BYTES
    except (OSError, IndexError, ValueError):
        return None


def descendants(pid: int) -> list[int]:
    """All processes below `pid`, children first; empty where /proc is missing."""
    children: dict[int, list[int]] = {}
    for child, parent, _ in _processes():
        children.setdefault(parent, []).append(child)
    below: list[int] = []
    queue = list(children.get(pid, []))
    while queue:
        child = queue.pop(0)
        below.append(child)
        queue += children.get(child, [])
    return below


def parents() -> dict[int, int]:
    """The parent of every process; empty where /proc is missing."""
    return {pid: parent for pid, parent, _ in _processes()}


def session_members(pid: int) -> list[int]:
    """All processes of the session that `pid` began, also once it is dead."""
    return [member for member, _, session in _processes() if session == pid]


def _processes() -> Iterator[tuple[int, int, int]]:
    """Every process, its parent and its session."""
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            text = (entry / "stat").read_text(errors="replace")  # names are any bytes, cut at 15
        except OSError:
            continue
        _, parent, _, session = text.rpartition(")")[2].split()[:4]
        yield int(entry.name), int(parent), int(session)


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
        folders += [parent for parent in (own, *own.parents) if parent.is_relative_to(base)]
    return folders or [_CGROUP]


def _meminfo(field: str) -> list[int]:
    """A field of /proc/meminfo in bytes, empty where there is none."""
    lines = _lines(Path("/proc/meminfo"))
    return [int(line.split()[1]) * 1024 for line in lines if line.startswith(field)]


def _reclaimable(folder: Path) -> int:
    """Page cache of the cgroup that the kernel drops before it refuses memory, in bytes."""
    wanted = ("inactive_file ", "total_inactive_file ")
    sizes = [
        int(line.split()[1]) for line in _lines(folder / "memory.stat") if line.startswith(wanted)
    ]
    return max(sizes, default=0)


def quota_of(folder: Path) -> float | None:
    """Core-seconds a second that a cgroup may use; `None` without a limit."""
    words = " ".join(_lines(folder / "cpu.max")).split()  # cgroup v2
    if len(words) == 2 and words[0] != "max":
        return int(words[0]) / int(words[1])
    quota, period = number_in(folder / "cpu.cfs_quota_us"), number_in(folder / "cpu.cfs_period_us")
    return quota / period if quota and period and quota > 0 else None  # cgroup v1; -1: no limit


def number_in(*paths: Path) -> int | None:
    """The number in the first of the files that holds one."""
    for path in paths:
        try:
            return int(path.read_text())
        except (OSError, ValueError):
            continue
    return None


def text_of(path: Path) -> str:
    """The text of a file; empty where it cannot be read."""
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""


def _lines(path: Path) -> list[str]:
    return text_of(path).splitlines()
