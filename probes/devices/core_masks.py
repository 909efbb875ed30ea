"""The cores that a process may run on: at its start, and after its imports.

Libraries of OpenMP bind the thread that imports them to one core where their variables ask for it
(torch, numpy); every data worker that is started then inherits that core.
"""

from __future__ import annotations

import contextlib
import os

from ...records import CoreMasks

_BINDING = ("OMP_PROC_BIND", "OMP_PLACES", "GOMP_CPU_AFFINITY", "KMP_AFFINITY")
_OFF = ("", "false", "none", "disabled")


def _mask(pid: int = 0) -> frozenset[int]:
    affinity = getattr(os, "sched_getaffinity", None)
    with contextlib.suppress(OSError):  # the process is over
        return frozenset(affinity(pid)) if affinity is not None else frozenset()
    return frozenset()


_at_start = _mask()
"""When this module was imported, which is before torch in every process of ours."""


def start_on(cores: tuple[int, ...]) -> None:
    """Holds this process to these cores, from the start on."""
    global _at_start  # noqa: PLW0603  there is one start of a process
    os.sched_setaffinity(0, cores)
    _at_start = _mask()


def core_masks() -> CoreMasks | None:
    """Cores on which this process and its data workers may run now; `None` where nobody tells."""
    from multiprocessing import active_children

    if not _at_start:
        return None
    workers = [child.pid for child in active_children() if child.pid is not None]
    return CoreMasks(
        at_start=len(_at_start),
        in_loop=len(_mask()),
        num_workers=len(workers),
        in_workers=len(frozenset().union(*map(_mask, workers))),
        variables=tuple(
            f"{name}={value}"
            for name in _BINDING
            if (value := os.environ.get(name, "")).lower() not in _OFF
        ),
    )
