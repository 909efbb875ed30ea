"""The working folder before and after: what an audit hook cannot see changes files as well.

Databases, subprocesses and writers in C open files without Python's knowledge. A listing of names,
sizes and times finds what they left.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from ...records import FileTouched
from ..devices import host
from ..source.call_site import shown_path

MAX_TREE_ENTRIES = 20_000
"""A larger tree (a data set in the working folder) is not listed."""
MAX_LISTING_S = 2.0
"""Seconds of listing after which a tree on a slow file system is left out."""
_SKIPPED = {".git", "__pycache__", ".venv", "node_modules", "batchadvisor-runs"}


class FolderSnapshot:
    """The listing of a folder, taken when this is made.

    Args:
        folder: looked at with everything below it.
        ignore: folders that are not the script's.

    Attributes:
        complete: whether the folder was small enough to be listed.
    """

    def __init__(self, folder: Path, ignore: tuple[Path, ...]) -> None:
        self._folder = folder.resolve()
        self._ignore = {str(path.resolve()) for path in ignore}
        self._own = _redirections()
        self._before = self._list()
        self.complete = self._before is not None

    def ignore(self, folder: Path) -> None:
        """A folder that was made since and is not the script's either."""
        self._ignore.add(str(folder.resolve()))

    def changes(self) -> list[FileTouched]:
        """Files and folders that are new, changed or gone since, in order of their paths."""
        self._own |= _redirections()  # a reader of our output may have begun after us
        now = self._list()
        if self._before is None or now is None:
            return []
        touched: list[FileTouched] = []
        for path in sorted(self._before.keys() | now.keys()):
            before, after = self._before.get(path), now.get(path)
            shown = shown_path(path)
            if after is None:
                touched.append(FileTouched(path=shown, action="remove", listed=True))
            elif before is None:
                action: Literal["write", "mkdir"] = "write" if after else "mkdir"
                touched.append(FileTouched(path=shown, action=action, listed=True))
            elif before != after:
                touched.append(FileTouched(path=shown, action="write", listed=True))
        return touched

    def _list(self) -> dict[str, tuple[int, ...]] | None:
        """Path to size, time and inode; empty for folders, whose times tell nothing new."""
        states: dict[str, tuple[int, ...]] = {}
        folders = [str(self._folder)]
        end_s = time.monotonic() + MAX_LISTING_S
        while folders:
            try:
                entries = list(os.scandir(folders.pop()))
            except OSError:
                continue
            for entry in entries:
                if entry.name in _SKIPPED or entry.path in self._ignore:
                    continue
                try:
                    if entry.is_dir(follow_symlinks=False):
                        folders.append(entry.path)
                        states[entry.path] = ()
                    else:
                        stat = entry.stat(follow_symlinks=False)
                        if (stat.st_dev, stat.st_ino) in self._own:
                            continue
                        states[entry.path] = (stat.st_size, stat.st_mtime_ns, stat.st_ino)
                except OSError:  # gone meanwhile
                    continue
                if len(states) > MAX_TREE_ENTRIES or time.monotonic() > end_s:
                    return None
        return states


def _redirections() -> set[tuple[int, int]]:
    """Device and inode of the files that our output goes to; the shell opened them for us.

    Those of the processes that started this one too, such as a command for several devices, and of
    those beside it that read its output: `| tee out.txt`.
    """
    files = set()
    for descriptor in (*(Path(f"/proc/self/fd/{number}") for number in (1, 2)), *_of_others()):
        with contextlib.suppress(OSError):
            stat = descriptor.stat()
            files.add((stat.st_dev, stat.st_ino))
    return files


def _of_others() -> Iterator[Path]:
    """Files that our ancestors, and other processes of our group, have open."""
    parents = host.parents()
    pid, ancestors = os.getpid(), set()
    while (pid := parents.get(pid, 0)) > 1 and pid not in ancestors:
        ancestors.add(pid)
    group = {other for other in parents if _group_of(other) == os.getpgrp()}
    for other in (ancestors | group) - {os.getpid()}:
        with contextlib.suppress(OSError):
            yield from Path(f"/proc/{other}/fd").iterdir()


def _group_of(pid: int) -> int | None:
    try:
        return os.getpgid(pid)
    except OSError:
        return None
