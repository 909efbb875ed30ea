"""How the script's threads wait for each other on a CPU that other programs use as well.

Threads of OpenMP spin while they wait. Beside busy programs the thread that is waited for has lost
its core, and those that spin keep theirs: a step of 5 ms takes 0.3 s, whatever its size, and two
sizes cannot be told apart. Threads that sleep while they wait give their cores away; what a step
takes then still depends on its size (bench/results/spinning-threads_*). On a quiet machine they
cost time, so nothing is changed there.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path

from ...probes.devices.cores import snapshot
from ...probes.devices.host import asked_threads
from ...probes.devices.neighbours import Use, use_between
from .target import Target

SLEEPING = {"OMP_WAIT_POLICY": "PASSIVE"}
_CHOSEN_BY_USER = (*SLEEPING, "GOMP_SPINCOUNT", "KMP_BLOCKTIME", "KMP_LIBRARY")
SAMPLED_S = 0.2
"""The kernel counts in ticks of 10 ms: of twenty, ten are told from a program that just ended."""
BUSY_CORES = 0.5
"""A program that always wants a core gets half of one beside a thread that spins, or more."""
_TOPOLOGY = "/sys/devices/system/cpu/cpu{}/topology/thread_siblings_list"


def variables_beside_others(
    target: Target, environment: Mapping[str, str] = os.environ
) -> dict[str, str]:
    """Variables that a worker needs while other programs use its cores; empty on a quiet machine.

    Takes `SAMPLED_S`, and no time where nothing else runs.

    Args:
        target: `auto` is a machine without an NVIDIA GPU.
        environment: the user's variables; where they say how threads wait, that stands.
    """
    trains_here = target.device in ("cpu", "auto") and not target.cores
    if not trains_here or any(name in environment for name in _CHOSEN_BY_USER):
        return {}
    before = snapshot()
    num_threads = _num_threads(environment, before.cores)
    others_run = any(
        process.running for pid, process in before.processes.items() if pid != os.getpid()
    )
    if num_threads < 2 or not others_run:
        return {}
    time.sleep(SAMPLED_S)
    use = use_between(before, snapshot(), me=os.getpid(), own=())
    return dict(SLEEPING) if use is not None and collide(use, num_threads, before.num_cores) else {}


def collide(use: Use, num_threads: int, num_cores: int) -> bool:
    """Whether so many threads find fewer free cores than they need.

    Args:
        use: of a time in which the script did not run yet.
        num_cores: on which the threads may run.
    """
    others = use.others_s / use.wall_s
    return num_threads > 1 and others >= BUSY_CORES and num_threads + others > num_cores


def _num_threads(environment: Mapping[str, str], cores: frozenset[int]) -> int:
    """Threads that torch will compute with: `OMP_NUM_THREADS`, or one for each physical core."""
    asked = asked_threads(environment)
    if asked is not None:
        return asked
    try:
        return len({Path(_TOPOLOGY.format(core)).read_text() for core in cores})
    except OSError:
        return len(cores)
