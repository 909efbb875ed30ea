"""Reads a pickle that holds plain data, and nothing that wants to run.

Two passes. The first walks the opcodes and lets pass only those that torch writes for a snapshot:
numbers, texts, lists, dicts, pairs of integers, references to what was read. It refuses everything
that names or calls something (GLOBAL, REDUCE, INST, OBJ, NEWOBJ, BUILD, PERSID, EXT), and what
would take memory or time out of proportion: numbers of the memo beyond the file's length, nested
tuples (their hash descends on the C stack), integers above 64 bits, more containers than a quarter
of the bytes. Only then Python's own unpickler builds the objects; its `find_class` refuses too.
"""

from __future__ import annotations

import io
import pickle
import re
from pathlib import Path
from typing import Any, NoReturn

from ...errors import UsageError

MAX_BYTES = 2 * 1024**3
"""Larger files are refused: their objects would take about ten times as much memory."""
RECORD_FEWER = "Record fewer entries: _record_memory_history(max_entries=100_000)."
DUMP = "Give a file that torch.cuda.memory._dump_snapshot() wrote."
SPARE_CONTAINERS = 10_000
RUN = 4096
"""Opcodes that one search takes."""
_CONTAINERS = b"]}"
_LONG = rb"\x8a(?:" + b"|".join(b"\\x%02x.{%d}" % (length, length) for length in range(10)) + b")"
"""LONG1: integers of up to 64 bits; those that fill all of them have a byte more for the sign."""
_INTEGER = rb"(?:K.|M..|J.{4}|" + _LONG + b")"
_FRAME = rb"\x95.{8}"
"""Opcode that begins a frame: it may stand between any two others, about every 64 KiB."""
_LENGTHS = {0x8C: 1, 0x58: 4, 0x8D: 8, 0x55: 1, 0x54: 4, 0x43: 1, 0x42: 4, 0x8E: 8}
"""Opcodes of texts and bytes, and how many bytes their length takes."""
_TEXTS = (0x8C, 0x58, 0x8D)
_STOP = 0x2E
_CALLS = {
    0x52: "calls a function", 0x6F: "makes an object", 0x81: "makes an object",
    0x92: "makes an object", 0x62: "sets an object's state",
}  # fmt: skip
_OUTSIDE = {0x50, 0x51, 0x82, 0x83, 0x84}
"""PERSID, BINPERSID, EXT1, EXT2, EXT4."""


def load(path: Path) -> tuple[Any, int]:
    """Reads the value of a pickle and its length in bytes; runs nothing that is in it.

    Raises:
        UsageError: it cannot be read, is none, is cut short, or holds more than plain data.
    """
    try:
        if path.is_dir():
            raise UsageError(f"{path} is a folder.", "Name the snapshot's file.")
        if path.exists() and not path.is_file():
            raise UsageError(f"{path} is no ordinary file.", "Name the snapshot's file.")
        size = path.stat().st_size
        if size > MAX_BYTES:
            msg = (
                f"{path} has {size / 1024**3:.1f} GiB, the limit is {MAX_BYTES / 1024**3:.0f} GiB."
            )
            raise UsageError(msg, RECORD_FEWER)
        with path.open("rb") as file:
            data = file.read(size)
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise UsageError(f"cannot read {path}: {why}.", DUMP) from error
    _check_kind(path, data)
    _scan(path, data)
    try:
        return _Plain(io.BytesIO(data)).load(), len(data)
    except UsageError:
        raise
    except MemoryError:
        raise UsageError(f"{path}: there is no memory for what it holds.", RECORD_FEWER) from None
    except Exception as error:
        raise UsageError(f"{path} is damaged: its parts do not fit together.", DUMP) from error


class _Plain(pickle.Unpickler):
    """Names nothing and fetches nothing."""

    def find_class(self, module: str, name: str) -> NoReturn:
        raise UsageError(f"the file wants to run code ({module}.{name}).", DUMP)

    def persistent_load(self, pid: Any) -> NoReturn:
        raise UsageError(f"the file refers to something outside it ({pid!r}).", DUMP)


def _check_kind(path: Path, data: bytes) -> None:
    """Names what is often given instead."""
    if not data:
        raise UsageError(f"{path} is empty.", DUMP)
    if data.startswith(b"\x1f\x8b"):
        raise UsageError(f"{path} is compressed.", f"Unpack it first: gunzip {path}")
    if data.startswith(b"PK\x03\x04"):
        raise UsageError(f"{path} is a zip archive, as torch.save writes it, no snapshot.", DUMP)
    if not data.startswith(b"\x80") or (len(data) > 1 and not 2 <= data[1] <= 5):
        raise UsageError(f"{path} is no pickle of protocol 2 to 5.", DUMP)


def _runs(size: int) -> re.Pattern[bytes]:
    """Opcodes of fixed length, up to `RUN` of them; numbers of the memo stay below `size`."""
    high, low = (size >> 24, b".") if size >= 1 << 24 else (0, b"[\\x00-\\x%02x]" % (size >> 16))
    memo = rb"r.." + low + b"[\\x00-\\x%02x]" % high
    between = b"(?:" + _FRAME + b")?"
    pair = between.join((_INTEGER, _INTEGER, rb"\x86"))
    plain = rb"[(N\]}aesu\x88\x89\x94]|[hq].|j.{4}|G.{8}|\x80[\x02-\x05]"
    either = b"|".join((plain, pair, _INTEGER, memo, _FRAME))
    return re.compile(b"(?:%s){1,%d}" % (either, RUN), re.DOTALL)


def _scan(path: Path, data: bytes) -> None:
    """Walks the opcodes; returns where all of them are plain data.

    Raises:
        UsageError: the first that is not.
    """
    runs = _runs(len(data))
    at, containers, end = 0, 0, len(data)
    most = len(data) // 4 + SPARE_CONTAINERS
    texts = ["?", "?"]
    while at < end:
        found = runs.match(data, at)
        if found is not None:
            run = found.group()
            containers += len(run) - len(run.translate(None, _CONTAINERS))
            if containers > most:
                msg = f"{path} holds far more lists and dicts than a snapshot of its length."
                raise UsageError(msg, DUMP)
            at = found.end()
            continue
        code = data[at]
        if code == _STOP:
            return
        width = _LENGTHS.get(code)
        if width is None:
            _refuse(path, data, at, texts)
        start = at + 1 + width
        at = start + int.from_bytes(data[at + 1 : start], "little")
        if code in _TEXTS and at - start < 200:
            texts = [texts[1], data[start:at].decode("utf-8", "replace")]
    _cut(path)


def _refuse(path: Path, data: bytes, at: int, texts: list[str]) -> NoReturn:
    """One error for an opcode that no snapshot has."""
    code = data[at]
    if code in b"ci":  # GLOBAL, INST
        lines = data[at + 1 : at + 400].split(b"\n", 2)
        if len(lines) < 3:
            _cut(path)
        name = b".".join(lines[:2]).decode("utf-8", "replace")
    elif code == 0x93:  # STACK_GLOBAL
        name = ".".join(texts)
    elif code in _CALLS:
        name = f"it {_CALLS[code]}"
    elif code in _OUTSIDE:
        msg = (
            f"{path} refers to things outside the file: it was not written by torch as a snapshot."
        )
        raise UsageError(msg, DUMP)
    elif len(data) - at < 10 and code in b"KMJjrhqG\x8a\x95\x80":
        _cut(path)
    else:
        msg = f"{path} holds, at byte {at}, what no snapshot holds that is read here."
        raise UsageError(msg, DUMP)
    msg = f"{path} wants to run code ({name}): it was not written by torch. Nothing ran."
    raise UsageError(msg, DUMP)


def _cut(path: Path) -> NoReturn:
    raise UsageError(f"{path} is cut short.", "Copy it again, or dump the snapshot again.")
