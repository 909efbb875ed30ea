"""Files that the script itself changed, and settings that it read, by Python's audit events.

Seen: open() for writing, pathlib, numpy, shutil, mkdir, rename, remove. Not seen: writers in C
(databases, subprocesses); process/folder_snapshot.py finds what they left in the working folder.
"""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path
from typing import Any

from ...records import FileTouched
from ..source.call_site import is_users, shown_path
from ..source.settings_files import is_settings_file

MAX_TOUCHED = 200
_TORCH_CACHE = f"{os.sep}torchinductor_"
"""torch makes this folder below the temporary one when it is first imported, by whatever script."""
_WATCHED = frozenset({"open", "os.mkdir", "os.rename", "os.remove", "os.rmdir"})
_HAS_TO_BE = {"mkdir": False, "remove": True}
"""Whether what an action changes has to be there before it."""
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_TRUNC


class FileWatch:
    """Collects the files that were touched.

    Args:
        ignore: path prefixes that are not the script's business: devices, our own folders.
    """

    def __init__(self, ignore: tuple[str, ...]) -> None:
        self._ignore = ("/dev/", "/proc/", "/sys/", *ignore)
        self._seen: dict[tuple[str, str], None] = {}
        self._settings: dict[str, str] = {}
        self._reported = 0
        self._lock = threading.RLock()
        self._pid = os.getpid()

    def install(self) -> None:
        """Starts watching; there is no way back, the process is thrown away."""
        sys.addaudithook(self._audit)

    def saved(self, target: Any) -> None:
        """`torch.save` was called, and wrote nothing."""
        is_path = isinstance(target, os.PathLike)  # whose name is its last part alone
        self._note(target if is_path else getattr(target, "name", target), "save (not written)")

    def take(self) -> tuple[FileTouched, ...]:
        """Files touched since the last call."""
        with self._lock:
            pairs = list(self._seen)[self._reported :]
            self._reported += len(pairs)
        return tuple(
            FileTouched(path=path, action=action)  # type: ignore[arg-type]
            for path, action in pairs
        )

    def settings(self) -> tuple[tuple[Path, str], ...]:
        """The settings files that were read so far, in that order, and how a person types them."""
        with self._lock:
            return tuple((Path(path), shown) for path, shown in self._settings.items())

    def _audit(self, event: str, args: tuple[Any, ...]) -> None:
        if event not in _WATCHED:  # most of all: `id` is an event as well
            return
        if event == "open":
            path, mode, flags = args
            if isinstance(mode, str):
                writes = any(letter in mode for letter in "wax+")
            else:
                writes = isinstance(flags, int) and bool(flags & _WRITING)
            # A folder is opened for writing to make a file without a name in it (O_TMPFILE).
            if writes and not os.path.isdir(path):  # noqa: PTH112  bytes too
                self._note(path, "write")
            elif not writes and isinstance(path, str) and is_settings_file(path):
                self._note_settings(path)
        elif event == "os.mkdir":
            self._note(args[0], "mkdir", args[2])
        elif event == "os.rename":
            self._note(args[1], "rename", args[3])
        elif event in ("os.remove", "os.rmdir"):
            self._note(args[0], "remove", args[1])

    def _note_settings(self, path: str) -> None:
        """A file that is read again counts from then on; those of packages are not the user's."""
        full = os.path.abspath(path)  # noqa: PTH100  no link is followed
        if os.getpid() != self._pid or full.startswith(self._ignore) or not is_users(full):
            return
        with self._lock:
            shown = self._settings.pop(full, None)
            if len(self._settings) < MAX_TOUCHED:
                self._settings[full] = shown or shown_path(full)

    def _note(self, path: Any, action: str, folder: int = -1) -> None:
        if os.getpid() != self._pid or not isinstance(path, (str, bytes, os.PathLike)):
            return
        name = os.fsdecode(path)
        if folder != -1:  # the path is seen from an open folder, as shutil.rmtree names them
            try:
                name = str(Path(f"/proc/self/fd/{folder}").readlink() / name)
            except OSError:
                return
        full = os.path.abspath(name)  # noqa: PTH100  no link is followed
        if action in _HAS_TO_BE and os.path.lexists(full) is not _HAS_TO_BE[action]:
            return  # it is about to fail, as in makedirs(exist_ok=True) and unlink(missing_ok=True)
        if (
            full.startswith(self._ignore)
            or full.endswith((".pyc", "__pycache__"))
            or ".pyc." in full
            or _TORCH_CACHE in full
        ):
            return
        with self._lock:
            if len(self._seen) < MAX_TOUCHED:
                self._seen.setdefault((shown_path(full), action))
