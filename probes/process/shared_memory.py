"""Segments of shared memory that data workers may leave behind."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path


def files() -> set[str]:
    """All segments in /dev/shm, empty where there is no such folder."""
    try:
        return {f"/dev/shm/{name}" for name in os.listdir("/dev/shm")}  # noqa: PTH208
    except OSError:
        return set()


def held_by(pids: list[int]) -> set[str]:
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


def trackers(pids: list[int]) -> list[int]:
    """Those that remove the semaphores of spawned processes when all who use them are gone."""
    tracker_pids = []
    for pid in pids:
        with contextlib.suppress(OSError):
            if b"resource_tracker" in Path(f"/proc/{pid}/cmdline").read_bytes():  # none of a zombie
                tracker_pids.append(pid)
    return tracker_pids
