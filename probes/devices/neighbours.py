"""Causes outside the script that took time from a trial, by name, with what removes them.

Each cause rests on a counter of its own: the CPU time of other processes, the time that a
hypervisor took, the time that a quota held back, the clock of our core, the number of threads.
"""

from __future__ import annotations

import math
import os
import re
from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from ...records import Cause
from ...records.quality import ANOTHER_HOUR
from . import host
from .cores import Snapshot, command_of, snapshot

OTHERS_CORES = 0.15
FULL_SHARE = 0.85
"""Others are a cause from so many cores on, when so much of the machine is busy.

A little is enough to matter: threads that wait for each other at barriers all wait for the one that
lost its core.
"""
STOLEN_CORES = 0.05
"""Cores' worth of time taken by a hypervisor or a quota that is a cause: nobody else takes that."""
MIN_WALL_S = 0.05
MIN_TAKEN_S = 0.05
"""The kernel counts in ticks of 10 ms; fewer than five say nothing."""
SLOW_CLOCK = 0.8
"""Share of the highest clock below which a core is slow. All cores at work stay above it, mostly:
where the driver tells what they hold under full load, the clock must lie below that too."""
NUM_NAMES = 3
_HIDDEN = "name not readable"
INTERPRETERS = re.compile(r"(python|pypy|node|java|ruby|perl|php|julia|Rscript|bash|sh)[\d.]*$")
"""Programs whose name does not tell what they do."""
ONE = 0.8
"""A process that used so much of what all of its name did is the one that is meant."""
MAX_WORD = 40
"""Letters of a script's name."""
PASSIVE = "OMP_WAIT_POLICY=PASSIVE lets threads that wait give their cores away meanwhile"
"""Beside one and three busy processes on two cores small networks trained 26 to 310 times as fast
with it, and 0.17 to 0.57 times as fast on a quiet machine (bench/results/spinning-threads_*)."""


class Surroundings:
    """Watches what else the machine does around a trial, from this moment on.

    Args:
        num_threads: with which the script computes, as torch says; `None` where nobody knows.
    """

    def __init__(self, num_threads: int | None = None) -> None:
        self._num_threads = num_threads
        self._before = snapshot()

    def causes(self, own: Collection[int] = ()) -> tuple[Cause, ...]:
        """Causes that took time since then, the most certain first; empty without any.

        Args:
            own: processes that belong to the trial with all that is below them, besides this
                process and its parent: the supervisor, whose other children are ours.
        """
        return causes_between(
            self._before,
            snapshot(),
            me=os.getpid(),
            own=own,
            num_threads=self._num_threads,
            num_cores=host.num_cores(),
            gives_way=os.environ.get("OMP_WAIT_POLICY", "").upper() == "PASSIVE",
        )


def causes_between(
    before: Snapshot,
    after: Snapshot,
    *,
    me: int,
    own: Collection[int],
    num_threads: int | None,
    num_cores: int,
    gives_way: bool = False,
) -> tuple[Cause, ...]:
    """Causes that took time between two snapshots.

    Args:
        me: this process.
        own: see `Surroundings.causes`.
        num_threads: with which the script computes.
        num_cores: that it may use, the quota included.
        gives_way: whether its threads give their cores away while they wait.
    """
    causes: list[Cause | None] = []
    if after.at_s - before.at_s >= MIN_WALL_S:
        use = use_between(before, after, me=me, own=own)
        causes = [
            _hypervisor(use, after),
            _quota(before, after, num_threads),
            None if use is None else _processes(use, before, after, num_threads, gives_way),
            _frequency(before, after),
        ]
    quota = min((quota.cores for quota in after.quotas.values()), default=float(num_cores))
    causes.append(_threads(num_threads, num_cores, max(1, min(num_cores, math.floor(quota)))))
    return tuple(cause for cause in causes if cause is not None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Use:
    """Who used the cores that the script may use, in core-seconds.

    Attributes:
        busy_s: all together.
        stolen_s: what the hypervisor took.
        own_s: what the trial and batchadvisor used.
        by_name: what others used, on whatever core.
        most: of those of a name the process that used the most, and how much.
        num_running: others that wanted a core at both ends.
    """

    wall_s: float
    busy_s: float
    stolen_s: float
    own_s: float
    by_name: Mapping[str, float]
    most: Mapping[str, tuple[int, float]]
    num_running: int

    @property
    def others_s(self) -> float:
        """Core-seconds of all processes but ours."""
        return max(0.0, self.busy_s - self.own_s)


def use_between(before: Snapshot, after: Snapshot, *, me: int, own: Collection[int]) -> Use | None:
    """Who used the cores between two snapshots; `None` where the kernel does not count that."""
    if before.busy_s is None or after.busy_s is None:
        return None
    ours = _ours(before, me, own) | _ours(after, me, own)
    spent = _spent_s(before, after)
    by_name: defaultdict[str, float] = defaultdict(float)
    most: dict[str, tuple[int, float]] = {}
    num_running = 0
    for pid, seconds in spent.items():
        process = after.processes[pid]
        if pid in ours:
            continue
        if after.all_cores or process.core in after.cores:
            by_name[process.name] += seconds
            if seconds > most.get(process.name, (0, 0.0))[1]:
                most[process.name] = pid, seconds
        known = before.processes.get(pid)
        if known is not None and known.started == process.started:  # numbers are given again
            num_running += process.running and known.running
    return Use(
        wall_s=after.at_s - before.at_s,
        busy_s=after.busy_s - before.busy_s,
        stolen_s=(after.stolen_s or 0.0) - (before.stolen_s or 0.0),
        own_s=sum(seconds for pid, seconds in spent.items() if pid in ours),
        by_name=by_name,
        most=most,
        num_running=num_running,
    )


def _ours(snap: Snapshot, me: int, own: Collection[int]) -> set[int]:
    """The trial's processes and batchadvisor: `me`, its parent, `own`, and what they started.

    A session that `me` began names also those whose parent is dead.
    """
    mine = snap.processes.get(me)
    roots = {me, *own}
    if mine is not None and mine.session == me:
        roots |= {pid for pid, process in snap.processes.items() if process.session == me}
    children: dict[int, list[int]] = {}
    for pid, process in snap.processes.items():
        children.setdefault(process.parent, []).append(pid)
    ours: set[int] = set()
    queue = list(roots)
    while queue:
        pid = queue.pop()
        if pid not in ours:
            ours.add(pid)
            queue += children.get(pid, [])
    return ours if mine is None else ours | {mine.parent}


def _spent_s(before: Snapshot, after: Snapshot) -> dict[int, float]:
    """Core-seconds of each process between two snapshots, with those of children that ended.

    A parent is charged with the whole life of a child that it waited for; what the child had used
    by the first snapshot is taken off again.
    """
    same = {
        pid: known
        for pid, known in before.processes.items()
        if pid in after.processes and after.processes[pid].started == known.started
    }
    earlier: defaultdict[int, float] = defaultdict(float)
    for pid, ended in before.processes.items():
        parent = ended.parent
        while parent not in same and parent in before.processes:
            parent = before.processes[parent].parent  # it ended too: its parent was charged
        if pid not in same:
            earlier[parent] += ended.total_s
    spent = {}
    for pid, process in after.processes.items():
        own_s, children_s = process.own_s, process.children_s
        if pid in same:
            own_s -= same[pid].own_s
            children_s = max(0.0, children_s - same[pid].children_s - earlier[pid])
        spent[pid] = max(0.0, own_s) + children_s
    return spent


def _hypervisor(use: Use | None, after: Snapshot) -> Cause | None:
    if use is None or use.stolen_s < max(MIN_TAKEN_S, STOLEN_CORES * use.wall_s):
        return None
    cores = use.stolen_s / use.wall_s
    return Cause(
        kind="hypervisor",
        message=f"the hypervisor took {cores:.{1 if cores >= 0.1 else 2}f} of {_of(after)}",
        cores=cores,
        lost_s=use.stolen_s,
        remedy=f"{ANOTHER_HOUR} or on a machine whose cores are its own",
    )


def _quota(before: Snapshot, after: Snapshot, num_threads: int | None) -> Cause | None:
    """The quota that held back the most."""
    lost = {
        folder: quota.throttled_s - before.quotas[folder].throttled_s
        for folder, quota in after.quotas.items()
        if folder in before.quotas
    }
    folder = max(lost, key=lost.__getitem__, default="")
    wall_s = after.at_s - before.at_s
    if not folder or lost[folder] < max(MIN_TAKEN_S, STOLEN_CORES * wall_s):
        return None
    cores = after.quotas[folder].cores
    fewer = max(1, math.floor(cores))
    remedy = "raise the quota (docker: --cpus, Kubernetes: limits.cpu)"
    if num_threads is not None and fewer < num_threads and cores >= 1:
        remedy += f", or set OMP_NUM_THREADS={fewer}"
    return Cause(
        kind="quota",
        message=f"the cgroup's CPU quota of {cores:.2g} core{'s' * (cores != 1)} was used up and "
        f"held back {lost[folder]:.1f} core-seconds",
        cores=lost[folder] / wall_s,
        lost_s=lost[folder],
        remedy=remedy,
    )


def _processes(
    use: Use, before: Snapshot, after: Snapshot, num_threads: int | None, gives_way: bool
) -> Cause | None:
    """Other programs, where they took cores that the script could have used."""
    others, full = use.others_s / use.wall_s, FULL_SHARE * after.num_cores
    if others < OTHERS_CORES or use.others_s < MIN_TAKEN_S:
        return None
    if (use.busy_s + use.stolen_s) / use.wall_s < full:
        return None
    if num_threads is not None:
        wanted = max(num_threads, use.own_s / use.wall_s)
        if wanted + others < after.num_cores + OTHERS_CORES:
            return None  # the machine is full, and there was a core for everybody
    message = f"other programs used {others:.1f} of {_of(after)} ({_names(use, after)})"
    if before.pressure_s is not None and after.pressure_s is not None:
        share = (after.pressure_s - before.pressure_s) / use.wall_s
        message += f", and {min(1.0, share):.0%} of the time some program waited for a core"
    return Cause(
        kind="processes",
        message=message,
        cores=others,
        lost_s=use.others_s,
        remedy=_leave_them_room(use, after, num_threads, gives_way),
    )


def _of(after: Snapshot) -> str:
    """`2 cores`, or which of them where the script may not use all."""
    cores = _cores(after.num_cores)
    return cores if after.all_cores else f"the {cores} that it may use"


def _cores(num: int) -> str:
    return "1 core" if num == 1 else f"{num} cores"


def _top(use: Use) -> list[tuple[str, float]]:
    ordered = sorted(use.by_name.items(), key=lambda item: -item[1])
    return [
        (_told(name, seconds, *use.most[name]), seconds / use.wall_s)
        for name, seconds in ordered[:NUM_NAMES]
        if seconds >= MIN_TAKEN_S and seconds / use.wall_s >= OTHERS_CORES / NUM_NAMES
    ]


def _told(name: str, seconds: float, pid: int, most_s: float) -> str:
    """Names a process; of an interpreter its script and process id, where one process is meant."""
    if not INTERPRETERS.match(name) or most_s < ONE * seconds:
        return name
    words = command_of(pid)[1:]
    script = next((word for word in words if word == "-c" or not word.startswith("-")), "")
    module = "-m " if script and "-m" in words[: words.index(script)] else ""
    shown = f" {module}{script.rpartition('/')[2][:MAX_WORD]}" if script else ""
    return f"{name}{shown} [pid {pid}]"


def _names(use: Use, after: Snapshot) -> str:
    """`rustc 0.9, make 0.2`: with cores where these are surely cores of the script."""
    top = _top(use)
    if not after.all_cores:
        return ", ".join(name for name, _ in top) or _HIDDEN
    shown = [f"{name} {cores:.1f}" for name, cores in top]
    rest = (use.others_s - sum(use.by_name.values())) / use.wall_s
    if rest >= OTHERS_CORES and rest >= 0.2 * use.others_s / use.wall_s:
        shown.append(f"{_HIDDEN} {rest:.1f}" if shown else _HIDDEN)
    return ", ".join(shown) or "many small ones"


def _leave_them_room(use: Use, after: Snapshot, num_threads: int | None, gives_way: bool) -> str:
    names = [name for name, _ in _top(use) if name != "kernel"]
    remedy = f"stop {', '.join(names)}, or " if names else ""
    remedy += ANOTHER_HOUR
    # They may want more than they got: whoever waits at both ends wants a core of its own.
    free = math.floor(after.num_cores - max(use.others_s / use.wall_s, use.num_running) + 0.1)
    if not use.num_running or num_threads is None or num_threads < 2 or free >= num_threads:
        return remedy
    if free < 1:
        return remedy if gives_way else f"{remedy}; {PASSIVE}"
    return f"{remedy}; OMP_NUM_THREADS={free} leaves them their cores"


def _frequency(before: Snapshot, after: Snapshot) -> Cause | None:
    """A clock that was low before and after; before a trial alone, the core may have been idle."""
    clocks = [clock for clock in (before.clock, after.clock) if clock is not None]
    if len(clocks) < 2:
        return None
    for clock in clocks:
        if clock.khz >= SLOW_CLOCK * clock.highest_khz or clock.khz >= (
            clock.base_khz or clock.highest_khz
        ):
            return None
    now = clocks[-1]
    remedy = ""
    if now.allowed_khz and now.allowed_khz < SLOW_CLOCK * now.highest_khz:
        remedy = f"allow more: cpupower frequency-set --max {now.highest_khz / 1e6:.2f}GHz"
    elif now.governor not in ("", "performance"):
        remedy = f"cpupower frequency-set --governor performance (it is {now.governor})"
    return Cause(
        kind="frequency",
        message=f"the core ran at {now.khz / 1e6:.1f} of {now.highest_khz / 1e6:.1f} GHz",
        remedy=remedy,
    )


def _threads(num_threads: int | None, num_cores: int, fitting: int) -> Cause | None:
    """More computing threads than cores: they spin at barriers for one that waits for a core.

    Args:
        fitting: how many threads never wait.
    """
    if num_threads is None or num_threads <= num_cores:
        return None
    by_script = host.asked_threads(os.environ) not in (None, num_threads)
    return Cause(
        kind="threads",
        message=f"torch computes with {num_threads} threads on {_cores(num_cores)}",
        remedy=f"torch.set_num_threads({fitting}), which the script sets higher"
        if by_script
        else f"set OMP_NUM_THREADS={fitting}",
    )
