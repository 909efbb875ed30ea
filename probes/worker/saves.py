"""`torch.save` writes no file, and what the script then does with that file is answered to match.

The weights of a probe are worth nothing, and a real checkpoint could be overwritten. But scripts
write beside and move into place, copy the last to the best, remove the oldest, and read back what
they saved before training: each of these would fail, or put an empty file over a real one.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import os
import shutil
import stat
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import IO, TYPE_CHECKING, Any, NamedTuple

import torch

from ..source.replaced import in_pathlib

if TYPE_CHECKING:
    from typing_extensions import Self

_stat = os.stat  # of what lies there, whatever the script is told


class _Saved(NamedTuple):
    """A file that was to be written: its content where it was kept, and whether it is empty now."""

    content: IO[bytes] | None
    is_empty: bool


def silence_saves(saved: Callable[[Any], None], keeps: Callable[[], bool]) -> None:
    """Keeps `torch.save` from files, and what follows it from failing.

    Args:
        saved: told of the target of each save, and of each place that it is moved or copied to.
        keeps: whether what is saved now can be read back; a training loop that saves for ever
            would fill the disk.
    """
    files: dict[str, _Saved] = {}
    _silence_torch(files, saved, keeps)
    silence_safetensors(files, saved, keeps)
    earlier = _Earlier(files, keeps)
    _follow_moves(files, saved, earlier)
    _follow_copies(files, saved)
    _follow_removals(files, earlier)
    _follow_status(files)
    _follow_listings(earlier)


def _silence_torch(
    files: dict[str, _Saved], saved: Callable[[Any], None], keeps: Callable[[], bool]
) -> None:
    native_save, native_load = torch.save, torch.load
    overwritten = Overwritten()
    overwritten.install()

    # What goes into memory does happen: torch pickles every tensor through a buffer.
    @functools.wraps(native_save)
    def save(obj: object, f: Any, *args: Any, **kwargs: Any) -> None:
        if not _is_file(f):
            native_save(obj, f, *args, **kwargs)
            return
        saved(f)
        is_path = isinstance(f, (str, os.PathLike))
        is_empty = not is_path and not overwritten.put_back(f)  # the script has opened it
        name = _name(f if is_path else getattr(f, "name", None))
        if name is None:
            return
        content = files[name].content if name in files else None
        if keeps():
            content = tempfile.TemporaryFile()  # noqa: SIM115  lives as long as its name
            native_save(obj, content, *args, **kwargs)
        files[name] = _Saved(content, is_empty)

    @functools.wraps(native_load)
    def load(f: Any, *args: Any, **kwargs: Any) -> Any:
        known = files.get(_name(f) or "")
        if known is None or known.content is None:
            return native_load(f, *args, **kwargs)
        known.content.seek(0)
        kwargs.pop("mmap", None)  # asks for a path
        return native_load(known.content, *args, **kwargs)

    torch.save, torch.load = save, load


def silence_safetensors(
    files: dict[str, _Saved], saved: Callable[[Any], None], keeps: Callable[[], bool]
) -> None:
    """Keeps the other format of checkpoints from files, once the training loop is measured.

    Before that it is written: who reads it back maps the file by its path. Libraries take the
    function by name as they are imported, so that it has to be another one by then.
    """
    try:
        module = importlib.import_module("safetensors.torch")
    except Exception:  # noqa: BLE001  not there, or broken: that is for the script to find out
        return
    native = module.save_file

    @functools.wraps(native)
    def save_file(tensors: Any, filename: Any, *args: Any, **kwargs: Any) -> None:
        if keeps():
            native(tensors, filename, *args, **kwargs)
            return
        saved(filename)
        name = _name(filename)
        if name is not None:
            files[name] = _Saved(None, is_empty=False)

    module.save_file = save_file  # type: ignore[attr-defined]


def _follow_moves(
    files: dict[str, _Saved], saved: Callable[[Any], None], earlier: _Earlier
) -> None:
    native_rmtree = shutil.rmtree

    def following(native: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(native)
        def move(src: Any, dst: Any, **folders: Any) -> None:
            name, place = (_name(src), _name(dst)) if not folders else (None, None)
            if name is not None and place in earlier.folders:
                for one in [each for each in files if _is_below(each, name)]:
                    files[place + one[len(name) :]] = files.pop(one)
                native_rmtree(src)  # what replaces it holds no checkpoint
                saved(dst)
                return
            if name not in files:
                native(src, dst, **folders)
                files.pop(_name(dst) or "", None)  # a real file is there now
                return
            if files[name].is_empty:
                with contextlib.suppress(OSError):  # it holds nothing, and is gone after a move
                    native_unlink(name)
            files[_name(dst) or ""] = files.pop(name)._replace(is_empty=False)
            saved(dst)

        return move

    native_unlink = os.unlink
    _replace_in_os(following, "rename", "replace")


def _follow_copies(files: dict[str, _Saved], saved: Callable[[Any], None]) -> None:
    def following(native: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(native)
        def copy(src: Any, dst: Any, **options: Any) -> Any:
            name = _name(src)
            if name not in files:
                files.pop(_name(dst) or "", None)  # a real file is there now
                return native(src, dst, **options)
            if os.path.isdir(dst):  # noqa: PTH112  a name of any kind
                dst = os.path.join(dst, os.path.basename(name))  # noqa: PTH118, PTH119
            files[_name(dst) or ""] = files[name]._replace(is_empty=False)
            saved(dst)
            return dst

        return copy

    for name in ("copyfile", "copy", "copy2"):
        setattr(shutil, name, following(getattr(shutil, name)))


def _follow_removals(files: dict[str, _Saved], earlier: _Earlier) -> None:
    def following(native: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(native)
        def remove(path: Any, **folder: Any) -> None:
            name = _name(path) if not folder else None
            if name is None:
                native(path, **folder)
                return
            if earlier.is_gone(name):
                return  # it was told that the file is there, where it asked
            known = files.pop(name, None)
            # An older file of that name was to be overwritten, and was not: it stays.
            if earlier.has(name) if known is None else not known.is_empty:
                earlier.took(name)
                return
            native(path, **folder)

        return remove

    _replace_in_os(following, "remove", "unlink")
    native_rmtree = shutil.rmtree

    @functools.wraps(native_rmtree)
    def rmtree(path: Any, *args: Any, **options: Any) -> None:
        folder = _name(path) if options.get("dir_fd") is None else None
        inside = [] if folder is None else [each for each in files if _is_below(each, folder)]
        known = {name: files.pop(name) for name in inside}
        # A checkpoint's folder of an earlier training stays as a whole.
        stays = any(not one.is_empty and os.path.lexists(name) for name, one in known.items())
        if folder is not None and (stays or earlier.has_in(folder)):
            earlier.took(folder)
            return
        native_rmtree(path, *args, **options)

    shutil.rmtree = rmtree  # type: ignore[assignment]


def _follow_status(files: dict[str, _Saved]) -> None:
    """Answers for size and mode: scripts print how large a model is, or let others read it."""
    native_chmod = os.chmod
    empty = tempfile.TemporaryFile()  # noqa: SIM115  lives as long as the process

    @functools.wraps(_stat)
    def status(path: Any, *args: Any, **options: Any) -> os.stat_result:
        known = files.get(_name(path) or "") if files else None
        if known is None or _asks_whether_it_is_there():
            return _stat(path, *args, **options)
        if known.content is not None:
            return os.fstat(known.content.fileno())
        try:
            return _stat(path, *args, **options)
        except FileNotFoundError:
            return os.fstat(empty.fileno())

    @functools.wraps(native_chmod)
    def chmod(path: Any, *args: Any, **options: Any) -> None:
        if _name(path) not in files or os.path.lexists(path):
            native_chmod(path, *args, **options)

    _replace_in_os(lambda _: status, "stat")
    _replace_in_os(lambda _: chmod, "chmod")


def _asks_whether_it_is_there() -> bool:
    """Whether `os.path.exists`, `Path.is_file` and the like wait for a status.

    A script may open what is said to be there, and cannot open what was not written.
    """
    frame = sys._getframe(2)
    for _ in range(2):  # those of pathlib ask through its own `stat`
        if frame.f_code.co_name in ("exists", "isfile", "is_file"):
            return True
        if frame.f_back is None:
            break
        frame = frame.f_back
    return False


def _follow_listings(earlier: _Earlier) -> None:
    """A loop that removes until few are left would go on for ever, where what it removes stays."""
    native_listdir, native_scandir = os.listdir, os.scandir

    @functools.wraps(native_listdir)
    def listdir(path: Any = None) -> list[Any]:
        names = native_listdir(path)
        return [name for name in names if not earlier.hides(path, name)] if earlier.gone else names

    @functools.wraps(native_scandir)
    def scandir(path: Any = None) -> Any:
        entries = native_scandir(path)
        return _Entries(entries, path, earlier) if earlier.gone else entries

    _replace_in_os(lambda _: listdir, "listdir")
    _replace_in_os(lambda _: scandir, "scandir")


class _Entries:
    """What `os.scandir` gives, without what the script removed."""

    def __init__(self, entries: Any, path: Any, earlier: _Earlier) -> None:
        self._entries, self._path, self._earlier = entries, path, earlier
        self.close = entries.close

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        entry = next(self._entries)
        while self._earlier.hides(self._path, entry.name):
            entry = next(self._entries)
        return entry

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


_WEIGHTS = ".safetensors"
_MOST_FILES = 10_000
"""Files of a folder that are looked at; one with more is not removed."""


class _Earlier:
    """Checkpoints of an earlier training, which a script removes as it saves new ones.

    While its loop is measured nothing new is saved, so that they stay.

    Attributes:
        folders: those that the script removed, and that are there.
        gone: files and folders that it removed, and that are there, as they were then.
    """

    def __init__(self, files: dict[str, _Saved], keeps: Callable[[], bool]) -> None:
        self._files = files
        self._keeps = keeps
        self._started_s = time.time()
        self.folders: set[str] = set()
        self.gone: dict[str, os.stat_result] = {}

    def took(self, name: str) -> None:
        """The script removed it, and it stays."""
        with contextlib.suppress(OSError):  # nothing is there, as is usual
            self.gone[name] = os.lstat(name)

    def is_gone(self, name: str) -> bool:
        """Whether the script removed a file or folder, and made none of that name since."""
        if name not in self.gone or any(
            each == name or _is_below(each, name) for each in self._files
        ):
            return False
        try:
            return _is_the_same(self.gone[name], os.lstat(name))
        except OSError:
            return False

    def hides(self, folder: Any, name: Any) -> bool:
        """Whether such a one is in this place of a folder."""
        path = _name("." if folder is None else folder)
        if path is None:  # a number of an open folder
            return False
        return self.is_gone(os.path.join(path, os.fsdecode(name)))  # noqa: PTH118

    def has(self, name: str) -> bool:
        """Whether a file is such a checkpoint."""
        return not self._keeps() and self._is_one(name)

    def has_in(self, folder: str) -> bool:
        """Whether a folder that is removed holds one; it is kept in mind then."""
        if any(_is_below(each, folder) for each in self.gone):
            self.folders.add(folder)
            return True
        if self._keeps():
            return False
        files = (
            os.path.join(place, name)  # noqa: PTH118
            for place, _, names in os.walk(folder)
            for name in names
        )
        for number, name in enumerate(files):
            if number == _MOST_FILES or self._is_one(name):
                self.folders.add(folder)
                return True
        return False

    def _is_one(self, name: str) -> bool:
        try:
            status = _stat(name)
            if not stat.S_ISREG(status.st_mode) or status.st_mtime >= self._started_s:
                return False
            with open(name, "rb") as file:  # noqa: PTH123
                return name.endswith(_WEIGHTS) or file.read(len(_MAGIC[0])).startswith(_MAGIC)
        except OSError:
            return False


def _replace_in_os(
    following: Callable[[Callable[..., Any]], Callable[..., Any]], *names: str
) -> None:
    for name in names:
        native = getattr(os, name)
        function = following(native)
        setattr(os, name, function)
        in_pathlib(name, function)
        for able in (os.supports_fd, os.supports_dir_fd, os.supports_follow_symlinks):
            if native in able:  # `shutil` looks there before it calls one
                able.add(function)


def _name(path: Any) -> str | None:
    """The absolute path; `None` for what is none."""
    if not isinstance(path, (str, bytes, os.PathLike)):
        return None
    with contextlib.suppress(OSError, ValueError):
        return os.path.abspath(os.fsdecode(path))  # noqa: PTH100  no link is followed
    return None


def _is_below(name: str, folder: str) -> bool:
    return name.startswith(folder.rstrip(os.sep) + os.sep)


def _is_file(target: Any) -> bool:
    """Whether what is written there stays: a path, or an open file that has a name on the disk."""
    if isinstance(target, (str, os.PathLike)):
        return True
    try:
        status = os.fstat(target.fileno())
    except (AttributeError, TypeError, OSError, ValueError):
        return False
    return stat.S_ISREG(status.st_mode) and status.st_nlink > 0


# What a checkpoint held that the script opens anew in order to save into it.
#
# `open(path, "wb")` empties the file before `torch.save` is called, which writes nothing here: the
# weights of a real training would be gone.

_MAGIC = (b"PK\x03\x04", b"\x80\x02\x8a\x0a")
"""How files of `torch.save` begin: a zip archive, or the pickled number of the older format."""
_CHUNK_BYTES = 2**20


class _Held(NamedTuple):
    content: IO[bytes]
    status: os.stat_result


class Overwritten:
    """Keeps a copy of each checkpoint that is opened anew, until it is known to stay."""

    def __init__(self) -> None:
        self._held: dict[str, _Held] = {}
        self._pid = os.getpid()

    def install(self) -> None:
        """Starts watching; there is no way back, the process is thrown away."""
        sys.addaudithook(self._audit)

    def put_back(self, file: Any) -> bool:
        """Whether an open file, into which nothing was written, holds again what it held before."""
        with contextlib.suppress(AttributeError, TypeError, OSError, ValueError):
            held = self._held.get(_absolute(file.name))
            number = file.fileno()
            if held is None or file.tell() or not os.path.samestat(held.status, os.fstat(number)):
                return False
            held.content.seek(0)
            start = 0
            while chunk := held.content.read(_CHUNK_BYTES):
                start += os.pwrite(number, chunk, start)
            os.utime(number, ns=(held.status.st_atime_ns, held.status.st_mtime_ns))
            return True
        return False

    def _audit(self, event: str, args: tuple[Any, ...]) -> None:
        if event != "open" or not isinstance(args[2], int) or not args[2] & os.O_TRUNC:
            return
        if os.getpid() == self._pid and isinstance(args[0], (str, bytes, os.PathLike)):
            with contextlib.suppress(OSError, ValueError):  # it is missing, or there is no room
                self._hold(_absolute(args[0]))

    def _hold(self, path: str) -> None:
        known = self._held.pop(path, None)
        status = _stat(path)
        if known is not None and _is_the_same(known.status, status):
            self._held[path] = known
        elif stat.S_ISREG(status.st_mode):
            with open(path, "rb") as file:  # noqa: PTH123
                if not file.read(len(_MAGIC[0])).startswith(_MAGIC):
                    return
                file.seek(0)
                content = tempfile.TemporaryFile()  # noqa: SIM115  lives as long as its name
                shutil.copyfileobj(file, content)
            self._held[path] = _Held(content, status)


def _absolute(path: Any) -> str:
    return os.path.abspath(os.fsdecode(path))  # noqa: PTH100  no link is followed


def _is_the_same(held: os.stat_result, other: os.stat_result) -> bool:
    times = held.st_mtime_ns == other.st_mtime_ns
    return times and held.st_size == other.st_size and os.path.samestat(held, other)
