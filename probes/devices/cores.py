"""The kernel's counters of the cores: who ran on them, who took them, how fast they are.

Linux only; where a file is missing its part of the snapshot is `None` or empty. One snapshot reads
a small file for each process of the machine, about 20 us each.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from . import host
from .host import number_in, text_of

_PROC = Path("/proc")
_CPUS = Path("/sys/devices/system/cpu")
_KERNEL = 2
"""The process that is the parent of all threads of the kernel."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """One process of the machine, its own threads and the children that it waited for.

    Attributes:
        started: when, in the kernel's ticks: tells apart two that had the same number.
        running: whether it ran, or waited for nothing but a core.
        core: on which its main thread ran last.
        own_s, children_s: core-seconds since it started, of its threads and of children that
            ended.
    """

    name: str
    parent: int
    session: int
    started: int
    running: bool
    core: int
    own_s: float
    children_s: float

    @property
    def total_s(self) -> float:
        """Core-seconds with those of children that ended."""
        return self.own_s + self.children_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Quota:
    """A cgroup's quota of CPU time, and how often it was used up.

    Attributes:
        cores: core-seconds that it allows in a second.
        throttled_s: seconds that its cores were held back, summed over cores.
    """

    cores: float
    throttled_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Clock:
    """The clock of the core that this thread runs on, in kHz.

    Attributes:
        base_khz: what it holds under full load; `None` where the driver does not tell.
        allowed_khz: the highest that the settings allow.
        governor: the kernel's policy; empty where it does not tell.
    """

    khz: int
    highest_khz: int
    base_khz: int | None = None
    allowed_khz: int | None = None
    governor: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """All counters at one moment.

    Attributes:
        at_s: monotonic.
        num_cores: on which this process may run; `busy_s` and `stolen_s` are of these.
        all_cores: whether these are all that the machine has.
        busy_s, stolen_s: core-seconds since the machine started; `None` where nobody counts.
        pressure_s: seconds in which some process of the machine waited for a core.
    """

    at_s: float
    num_cores: int
    all_cores: bool
    cores: frozenset[int]
    busy_s: float | None
    stolen_s: float | None
    processes: Mapping[int, Process]
    quotas: Mapping[str, Quota]
    pressure_s: float | None
    clock: Clock | None


def snapshot() -> Snapshot:
    """The counters now; never raises, and claims nothing that it could not read."""
    every = os.cpu_count() or 1
    affinity = getattr(os, "sched_getaffinity", None)
    cores = frozenset(affinity(0) if affinity else range(every))
    busy = _machine_s(cores)
    return Snapshot(
        at_s=time.monotonic(),
        num_cores=len(cores),
        all_cores=len(cores) >= every,
        cores=cores,
        busy_s=None if busy is None else busy[0],
        stolen_s=None if busy is None else busy[1],
        processes=_processes(),
        quotas=_quotas(),
        pressure_s=_pressure_s(),
        clock=_clock(),
    )


def command_of(pid: int) -> list[str]:
    """The words of a process's command; empty where it is gone or may not be read."""
    return text_of(_PROC / str(pid) / "cmdline").rstrip("\0").split("\0")


def _tick_s() -> float:
    return 1 / os.sysconf("SC_CLK_TCK")


def _machine_s(cores: frozenset[int]) -> tuple[float, float] | None:
    """Core-seconds that these cores were busy, and that a hypervisor took from them."""
    busy = stolen = num_seen = 0
    for line in text_of(_PROC / "stat").splitlines():
        name, *words = line.split()
        if not name.startswith("cpu"):
            break
        if name == "cpu" or int(name[3:]) not in cores or len(words) < 7:
            continue
        user, nice, system, _, _, irq, softirq, *rest = map(int, words)
        busy += user + nice + system + irq + softirq
        stolen += rest[0] if rest else 0
        num_seen += 1
    tick_s = _tick_s() if num_seen else 0.0
    return (busy * tick_s, stolen * tick_s) if num_seen else None


def _processes() -> dict[int, Process]:
    """Every process that may be seen."""
    processes: dict[int, Process] = {}
    try:
        entries = os.listdir(_PROC)  # noqa: PTH208  faster, and there may be thousands
    except OSError:
        return processes
    tick_s, folder = _tick_s(), str(_PROC)
    for entry in entries:
        if not entry.isdigit():
            continue
        with contextlib.suppress(OSError, ValueError, IndexError):  # it ended, or is hidden
            head, _, tail = _start_of(f"{folder}/{entry}/stat").rpartition(b")")
            processes[int(entry)] = _process(head.partition(b"(")[2], tail.split(), tick_s)
    return processes


def _start_of(path: str) -> bytes:
    """Reads the first 4 KiB of a small file, without what a file object costs."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(descriptor, 4096)
    finally:
        os.close(descriptor)


def _process(name: bytes, words: list[bytes], tick_s: float) -> Process:
    """One line of /proc/PID/stat (proc(5)), from its third field on."""
    user, system, child_user, child_system = map(int, words[11:15])
    parent = int(words[1])
    shown = "kernel" if parent == _KERNEL else name.decode(errors="replace")
    return Process(
        name="".join(letter if letter.isprintable() else "?" for letter in shown),
        parent=parent,
        session=int(words[3]),
        started=int(words[19]),
        running=words[0] == b"R",
        core=int(words[36]) if len(words) > 36 else -1,
        own_s=(user + system) * tick_s,
        children_s=(child_user + child_system) * tick_s,
    )


def _quotas() -> dict[str, Quota]:
    """The quota of this process's cgroup and those of its parents, by folder."""
    quotas = {}
    for folder in host.cgroup_folders("cpu"):
        cores = host.quota_of(folder)
        counts = dict(
            line.split() for line in text_of(folder / "cpu.stat").splitlines() if " " in line
        )
        throttled_s = None
        if "throttled_usec" in counts:
            throttled_s = int(counts["throttled_usec"]) / 1e6
        elif "throttled_time" in counts:
            throttled_s = int(counts["throttled_time"]) / 1e9
        if cores is not None and throttled_s is not None:
            quotas[str(folder)] = Quota(cores=cores, throttled_s=throttled_s)
    return quotas


def _pressure_s() -> float | None:
    """Docs: kernel.org/doc/html/latest/accounting/psi.html; the total is in microseconds."""
    for line in text_of(_PROC / "pressure" / "cpu").splitlines():
        total = line.rpartition("total=")[2]
        if line.startswith("some ") and total.isdigit():
            return int(total) / 1e6
    return None


def _clock() -> Clock | None:
    """The one core that is surely awake is ours: others may idle at a low clock."""
    words = text_of(_PROC / "thread-self" / "stat").rpartition(")")[2].split()
    if len(words) <= 36:
        return None
    folder = _CPUS / f"cpu{words[36]}" / "cpufreq"
    khz, highest = number_in(folder / "scaling_cur_freq"), number_in(folder / "cpuinfo_max_freq")
    if not khz or not highest:
        return None
    return Clock(
        khz=khz,
        highest_khz=highest,
        base_khz=number_in(folder / "base_frequency"),
        allowed_khz=number_in(folder / "scaling_max_freq"),
        governor=text_of(folder / "scaling_governor").strip(),
    )
