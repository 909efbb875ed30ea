"""Finds runs and traces below log directories: names, sizes and times only, nothing is parsed."""

from __future__ import annotations

import hashlib
import os
import re
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from ..records.board import Entry, TraceFile
from .store import DEVICES, RECORD, TRACES

SUFFIXES = (".json", ".json.gz")
SURE_SUFFIXES = (".pt.trace.json", ".pt.trace.json.gz")
"""What torch.profiler's own handler for TensorBoard writes; other JSON is looked into."""
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


def find(roots: Sequence[tuple[str, Path]], heads: dict[tuple[str, int, int], bool]) -> list[Place]:
    """All runs and folders of traces, the newest first.

    Args:
        roots: log directories, each with the name it goes by; empty where there is only one.
        heads: remembers between calls which JSON files are traces; by path, time and size.
    """
    places: list[Place] = []
    for name, root in roots:
        outer = _run_around(root)
        places += _below(name, outer if outer is not None else root, heads)
    return sorted(places, key=lambda one: (-one.entry.modified_s, one.entry.name))


def any_below(roots: Sequence[tuple[str, Path]]) -> bool:
    """Whether there is a run, or a trace by its name, anywhere; stops at the first."""
    for _, root in roots:
        if _run_around(root) is not None:
            return True
        for folder, files in _folders(root):
            if any(one.name.endswith(SURE_SUFFIXES) for one in files):
                return True
            if any(one.name == RECORD for one in files) and _is_record(folder / RECORD):
                return True
    return False


def _run_around(root: Path) -> Path | None:
    """The run's folder where the log directory is the `traces` of one."""
    if root.name == TRACES and not (root / RECORD).exists() and _is_record(root.parent / RECORD):
        return root.parent
    return None


def _below(name: str, root: Path, heads: dict[tuple[str, int, int], bool]) -> list[Place]:
    runs: list[tuple[Path, Path]] = []
    traces: dict[Path, list[os.DirEntry[str]]] = {}
    for folder, files in _folders(root):
        if any(one.name == RECORD for one in files) and _is_record(folder / RECORD):
            runs.append((folder, folder / RECORD))
        elif any(one.name == DEVICES for one in files) and _is_record(folder / DEVICES):
            runs.append((folder, folder / DEVICES))
        found = [
            one for one in files if one.name not in (RECORD, DEVICES) and _is_trace(one, heads)
        ]
        if found:
            traces[folder] = found
    owned: dict[Path, list[os.DirEntry[str]]] = {folder: [] for folder, _ in runs}
    places = []
    for folder, found in traces.items():
        owner = next((one for one in (folder, *folder.parents) if one in owned), None)
        if owner is not None:
            owned[owner] += found
        else:
            places.append(_place(name, root, folder, found, None))
    places += [_place(name, root, folder, owned[folder], record) for folder, record in runs]
    return [one for one in places if one is not None]


def _place(
    name: str, root: Path, folder: Path, found: Sequence[os.DirEntry[str]], record: Path | None
) -> Place | None:
    digest = hashlib.sha256()
    newest_s = 0.0
    traces, files = [], {}
    parts_of = sorted(folder.glob(f"*/{RECORD}")) if _several(record) else []
    own = [*parts_of, *([record] if record is not None else [])]
    for path in [*own, *sorted(Path(one.path) for one in found)]:
        try:
            state = path.stat()
        except OSError:
            if path == record:
                return None
            continue  # gone since the folder was listed
        digest.update(f"{_key(path)} {state.st_mtime_ns} {state.st_size}".encode())
        newest_s = max(newest_s, state.st_mtime)
        if path not in own:
            key = _key(path)
            files[key] = path
            shown = clean_name(os.path.relpath(path, folder))
            traces.append(TraceFile(key=key, path=shown, num_bytes=state.st_size))
    inner = os.path.relpath(folder, root)
    parts = [one for one in (name, "" if inner == "." else inner) if one]
    entry = Entry(
        key=_key(folder),
        name=clean_name("/".join(parts) or folder.name or os.fspath(folder)),
        kind="traces" if record is None else "devices" if _several(record) else "run",
        version=digest.hexdigest()[:16],
        modified_s=newest_s,
        traces=tuple(traces),
    )
    return Place(entry=entry, folder=folder, files=files)


def _several(record: Path | None) -> bool:
    return record is not None and record.name == DEVICES


def clean_name(name: str) -> str:
    """A file's name with its control characters and undecodable bytes made visible.

    >>> clean_name("a\\x1b[31mb")
    'a\\ufffd[31mb'
    """
    return _UNPRINTABLE.sub("\ufffd", name)


def _key(path: Path) -> str:
    return hashlib.sha256(os.fsencode(path)).hexdigest()[:16]


def _folders(root: Path) -> Iterator[tuple[Path, list[os.DirEntry[str]]]]:
    """Every folder with its files. Links to folders are followed, each folder is seen once."""
    seen: set[tuple[int, int]] = set()
    waiting = [root]
    while waiting:
        folder = waiting.pop()
        try:
            state = folder.stat()
            listed = list(os.scandir(folder))
        except OSError:
            continue
        if (state.st_dev, state.st_ino) in seen:
            continue
        seen.add((state.st_dev, state.st_ino))
        files = []
        for one in listed:
            if one.name.startswith("."):
                continue
            try:
                if one.is_dir():
                    waiting.append(folder / one.name)
                elif one.is_file():
                    files.append(one)
            except OSError:
                continue
        yield folder, files


def _is_trace(entry: os.DirEntry[str], heads: dict[tuple[str, int, int], bool]) -> bool:
    if entry.name.endswith(SURE_SUFFIXES):
        return True
    if not entry.name.endswith(SUFFIXES):
        return False
    try:
        state = entry.stat()
    except OSError:
        return False
    key = (entry.path, state.st_mtime_ns, state.st_size)
    if key not in heads:
        heads[key] = _TRACE.search(_head(Path(entry.path))) is not None
    return heads[key]


def _is_record(path: Path) -> bool:
    """A record of ours begins with its schema's version; other people's record.json does not."""
    return _RECORD.search(_head(path)) is not None


def _head(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            packed = file.read(HEAD_BYTES)
    except OSError:
        return b""
    if not packed.startswith(b"\x1f\x8b"):
        return packed
    try:
        return zlib.decompressobj(wbits=31).decompress(packed, HEAD_BYTES)
    except zlib.error:
        return b""
