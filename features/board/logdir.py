"""Finds runs and traces below log directories: names, sizes and times only, nothing is parsed."""

from __future__ import annotations

import hashlib
import os
import re
import zlib
from collections.abc import Container, Iterator, Sequence
from pathlib import Path

import msgspec

from ...session.recording.store import DEVICES, RECORD, TRACE_SUFFIXES, TRACES
from .records import Entry, TraceFile

SURE_SUFFIXES = (".pt.trace.json", ".pt.trace.json.gz")
"""Suffixes of files by torch.profiler's own handler for TensorBoard; other JSON is looked into."""
HEAD_BYTES = 2048
_TRACE = re.compile(rb'"(traceEvents|deviceProperties|distributedInfo)"|"schemaVersion"\s*:\s*1\b')
_RECORD = re.compile(rb'"schema_version"')
_UNPRINTABLE = re.compile(
    r"[\x00-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """Where the files of an entry are.

    Attributes:
        folder: of the record, or of the traces.
        files: the traces by key.
    """

    entry: Entry
    folder: Path
    files: dict[str, Path]


Heads = dict[str, tuple[tuple[int, int], bool]]
"""By path: time and size when a file was last looked at, and whether it was a trace."""


def find(roots: Sequence[tuple[str, Path]], heads: Heads) -> list[Place]:
    """All runs and folders of traces, the newest first.

    Args:
        roots: log directories, each with the name it goes by; empty where there is only one.
        heads: remembers between calls which JSON files are traces.
    """
    places: list[Place] = []
    for name, root in roots:
        outer = _run_around(root)
        places += _below(name, outer if outer is not None else root, heads)
    return sorted(places, key=lambda place: (-place.entry.modified_s, place.entry.name))


def any_below(roots: Sequence[tuple[str, Path]]) -> bool:
    """Whether there is a run, or a trace by its name, anywhere; stops at the first."""
    for _, root in roots:
        if _run_around(root) is not None:
            return True
        for _, files in _folders(root):
            if any(file.name.endswith(SURE_SUFFIXES) for file in files):
                return True
            if any(file.name == RECORD and _is_record(file.path) for file in files):
                return True
    return False


def _run_around(root: Path) -> Path | None:
    """The run's folder where the log directory is the `traces` of one."""
    if root.name == TRACES and not (root / RECORD).exists() and _is_record(root.parent / RECORD):
        return root.parent
    return None


def _below(name: str, root: Path, heads: Heads) -> list[Place]:
    runs: dict[str, str] = {}
    traces: dict[str, list[os.DirEntry[str]]] = {}
    for folder, files in _folders(root):
        records = {file.name: file.path for file in files if file.name in (RECORD, DEVICES)}
        for kind in (RECORD, DEVICES):
            if kind in records and _is_record(records[kind]):
                runs[folder] = records[kind]
                break
        trace_files = [
            file for file in files if file.name not in (RECORD, DEVICES) and _is_trace(file, heads)
        ]
        if trace_files:
            traces[folder] = trace_files
    owned: dict[str, list[os.DirEntry[str]]] = {folder: [] for folder in runs}
    places = []
    for folder, trace_files in traces.items():
        owner = _owner(folder, owned)
        if owner is not None:
            owned[owner] += trace_files
        else:
            places.append(_place(name, root, folder, trace_files, None))
    places += [_place(name, root, folder, owned[folder], record) for folder, record in runs.items()]
    return [place for place in places if place is not None]


def _owner(folder: str, runs: Container[str]) -> str | None:
    """The run that a folder belongs to: itself or the nearest above it."""
    while folder not in runs:
        above = os.path.dirname(folder)  # noqa: PTH120  a Path a folder takes most of the time
        if above == folder:
            return None
        folder = above
    return folder


def _place(
    name: str, root: Path, folder: str, trace_files: Sequence[os.DirEntry[str]], record: str | None
) -> Place | None:
    digest = hashlib.sha256()
    newest_s = 0.0
    traces, files = [], {}
    several = _several(record)
    parts_of = sorted(map(str, Path(folder).glob(f"*/{RECORD}"))) if several else []
    own = [*parts_of, *([record] if record is not None else [])]
    for path in [*own, *sorted(file.path for file in trace_files)]:
        try:
            state = os.stat(path)  # noqa: PTH116
        except OSError:
            if path == record:
                return None
            continue  # gone since the folder was listed
        key = _key(path)
        digest.update(f"{key} {state.st_mtime_ns} {state.st_size}".encode())
        newest_s = max(newest_s, state.st_mtime)
        if path not in own:
            files[key] = Path(path)
            shown = clean_name(path[len(folder) :].lstrip(os.sep))
            traces.append(TraceFile(key=key, path=shown, num_bytes=state.st_size))
    inner = os.path.relpath(folder, root)
    parts = [part for part in (name, "" if inner == "." else inner) if part]
    entry = Entry(
        key=_key(folder),
        name=clean_name("/".join(parts) or Path(folder).name or folder),
        kind="traces" if record is None else "devices" if several else "run",
        version=digest.hexdigest()[:16],
        modified_s=newest_s,
        traces=tuple(traces),
    )
    return Place(entry=entry, folder=Path(folder), files=files)


def _several(record: str | None) -> bool:
    return record is not None and record.endswith(f"{os.sep}{DEVICES}")


def clean_name(name: str) -> str:
    """A file's name with its control characters and undecodable bytes made visible.

    >>> clean_name("a\\x1b[31mb")
    'a\\ufffd[31mb'
    """
    return _UNPRINTABLE.sub("\ufffd", name)


def _key(path: str) -> str:
    return hashlib.sha256(os.fsencode(path)).hexdigest()[:16]


def _folders(root: Path) -> Iterator[tuple[str, list[os.DirEntry[str]]]]:
    """Every folder with its files. Links to folders are followed, each folder is seen once."""
    seen: set[tuple[int, int]] = set()
    waiting: list[tuple[str, tuple[int, int] | None]] = [(os.fspath(root), None)]
    while waiting:
        folder, place = waiting.pop()
        try:
            if place is None:
                state = os.stat(folder)  # noqa: PTH116
                place = (state.st_dev, state.st_ino)
            if place in seen:
                continue
            with os.scandir(folder) as entries:
                listed = list(entries)
        except OSError:
            continue
        seen.add(place)
        files = []
        for entry in listed:
            if entry.name.startswith("."):
                continue
            try:
                if entry.is_dir():
                    # A folder that is no link stands on its parent's device and costs no question.
                    known = None if entry.is_symlink() else (place[0], entry.inode())
                    waiting.append((entry.path, known))
                elif entry.is_file():
                    files.append(entry)
            except OSError:
                continue
        yield folder, files


def _is_trace(entry: os.DirEntry[str], heads: Heads) -> bool:
    if entry.name.endswith(SURE_SUFFIXES):
        return True
    if not entry.name.endswith(TRACE_SUFFIXES):
        return False
    try:
        state = entry.stat()
    except OSError:
        return False
    version = (state.st_mtime_ns, state.st_size)
    known = heads.get(entry.path)
    if known is None or known[0] != version:
        known = (version, _TRACE.search(_head(entry.path)) is not None)
        heads[entry.path] = known
    return known[1]


def _is_record(path: str | Path) -> bool:
    """A record of ours begins with its schema's version; other people's record.json does not.

    One that is no JSON at all is listed, so that the page says what is wrong with it.
    """
    head = _head(path)
    if _RECORD.search(head) is not None:
        return True
    return len(head) < HEAD_BYTES and os.path.isfile(path) and not _is_json(head)  # noqa: PTH113


def _is_json(data: bytes) -> bool:
    try:
        msgspec.json.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return False
    return True


def _head(path: str | Path) -> bytes:
    try:
        with open(path, "rb", buffering=0) as file:  # noqa: PTH123
            packed = file.read(HEAD_BYTES)
    except OSError:
        return b""
    if not packed.startswith(b"\x1f\x8b"):
        return packed
    try:
        return zlib.decompressobj(wbits=31).decompress(packed, HEAD_BYTES)
    except zlib.error:
        return b""
