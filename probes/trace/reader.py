"""Reads a Kineto trace as a stream: in pieces, never as one decoded document.

Each chunk of about 2 MB is cut at the boundary between two events and decoded strictly, only the
fields that metrics need. A chunk that is no valid JSON is read event by event and mended; what is
lost is counted. Memory is a chunk, its events, and the columns.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import msgspec

from ...errors import UsageError
from .builder import Builder, Event
from .columns import DeviceProperties, Losses, Trace
from .recovery import NEXT_EVENT, recover
from .source import Source

_CHUNK = 2 << 20
_MOST_UNBROKEN = 64 << 20
"""A list of events without any boundary for so long is no list of events."""
_MOST_METADATA = 16 << 20

_LIST_START = re.compile(rb'"traceEvents"\s*:\s*\[')
_REMEDY = "Give the .json or .json.gz file that torch.profiler exported."
_DECODER = msgspec.json.Decoder(list[Event])
_METADATA = json.JSONDecoder(strict=False)


def read_trace(path: Path | str) -> Trace:
    """Reads a trace of torch 1.8 or newer, `.json` or `.json.gz`.

    Damaged files are read as far as they go; `Trace.losses` says what is missing.

    Raises:
        UsageError: there is no such file, it is empty, or it is no trace.
    """
    return _Reader(Path(path)).read()


class _Reader:
    def __init__(self, path: Path) -> None:
        self.source = Source(path)
        self.builder = Builder()
        self.header = b""
        self.footer: list[bytes] | None = None
        self.num_lost = 0
        self.num_mended = 0
        self.offset = 0
        self.first_damage: int | None = None

    def read(self) -> Trace:
        buffer = b""
        pieces = self.source.pieces()
        for piece in pieces:
            buffer += piece
            start = self._list_start(buffer)
            if start is not None:
                self.header, buffer = buffer[:start], buffer[start:]
                self.offset = start
                break
        else:
            self._refuse(buffer)
        for piece in pieces:
            if self.footer is not None:
                if sum(map(len, self.footer)) < _MOST_METADATA:
                    self.footer.append(piece)
                continue
            buffer += piece
            if len(buffer) >= _CHUNK:
                buffer = self._take(buffer)
        if self.footer is None:
            self._recover(buffer, final=True)
        return self._trace()

    def _list_start(self, text: bytes) -> int | None:
        """Where the first event begins, `None` if the list has not begun yet."""
        start = text.lstrip()
        if start.startswith(b"["):
            return len(text) - len(start) + 1
        if start and not start.startswith(b"{"):
            self._refuse(text)
        match = _LIST_START.search(text)
        if match is None and len(text) > _MOST_UNBROKEN:
            self._refuse(text)
        return match.end() if match else None

    def _refuse(self, text: bytes) -> None:
        path = self.source.path
        if self.source.damage and not text:
            msg = f"{path} cannot be read: {self.source.damage}."
            raise UsageError(msg, "Record it again.")
        if not text.strip():
            msg = f"{path} is empty."
            raise UsageError(msg, "The profiler did not finish writing it; record it again.")
        kind = "JSON without" if text.lstrip().startswith(b"{") else "no JSON, it has no"
        msg = f"{path} is not a profiler trace: it is {kind} a list `traceEvents`."
        raise UsageError(msg, _REMEDY)

    def _take(self, buffer: bytes) -> bytes:
        """Reads all events of the buffer that are surely complete; returns the rest."""
        boundary = _last_boundary(buffer)
        if boundary is None:
            if len(buffer) < _MOST_UNBROKEN:
                return buffer
            self.num_lost += 1
            self._damaged()
            self.offset += len(buffer)
            return b""
        stop, start = boundary
        chunk = buffer[:stop]
        try:
            events = _DECODER.decode(b"[" + chunk + b"]")
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            left = self._recover(chunk, final=False)
            if self.footer is not None:
                self.footer.append(buffer[stop:])
                return b""
            if left:
                self.offset += stop - len(left)
                return left + buffer[stop:]
        else:
            self.builder.add(events)
        self.offset += start
        return buffer[start:]

    def _recover(self, chunk: bytes, *, final: bool) -> bytes:
        final = final or len(chunk) > _MOST_UNBROKEN
        result = recover(chunk, final=final)
        self.builder.add(result.events)
        if result.num_lost or result.num_mended:
            self._damaged()
        self.num_lost += result.num_lost
        self.num_mended += result.num_mended
        if result.footer is not None:
            self.footer = [result.footer]
        return result.left

    def _damaged(self) -> None:
        if self.first_damage is None:
            self.first_damage = self.offset

    def _trace(self) -> Trace:
        bare_list = self.header.lstrip().startswith(b"[")
        metadata = _metadata(self.header) | _metadata(b"".join(self.footer or []))
        truncated = self.footer is None and not (bare_list and not self.num_lost)
        builder = self.builder
        operators, annotations = builder.host_ranges()
        trace = Trace(
            gpu=builder.activities(),
            launches=builder.ranges("launch"),
            operators=operators,
            annotations=annotations,
            names=tuple(builder.names),
            threads=tuple((str(pid), str(tid)) for pid, tid in builder.threads),
            num_events=builder.num_events,
            num_complete=builder.num_complete,
            devices=_devices(metadata),
            distributed=_distributed(metadata),
            base_time_ns=_whole(metadata.get("baseTimeNanoseconds")) or 0,
            losses=Losses(
                num_lost=self.num_lost + builder.num_broken,
                num_mended=self.num_mended,
                truncated=truncated,
                damage=self.source.damage,
                first_damage_byte=self.first_damage,
            ),
        )
        if trace.num_events == 0 and trace.losses.any:
            msg = f"{self.source.path} holds no readable event: {trace.losses}."
            raise UsageError(msg, "Record it again.")
        return trace


def _last_boundary(buffer: bytes) -> tuple[int, int] | None:
    """(end of one event, start of the next): the last such pair in the buffer."""
    window = 1 << 16
    while True:
        start = max(len(buffer) - window, 0)
        last = None
        for match in NEXT_EVENT.finditer(buffer, start):
            comma = match.start()
            if buffer[max(comma - 64, 0) : comma].rstrip().endswith(b"}"):
                last = comma, match.end()
        if last is not None or start == 0:
            return last
        window *= 16


def _metadata(text: bytes) -> dict[str, Any]:
    """Keys of the document around the list of events, as far as they are readable."""
    body = text.decode("utf-8", "replace")
    body = re.sub(r'"traceEvents"\s*:\s*\[\s*\Z', "", body)
    body = body.strip().removeprefix("{").strip(", \t\r\n")
    body = body.removesuffix("}") if body.count("{") < body.count("}") else body
    try:
        found = _METADATA.decode("{" + body + "}")
    except (ValueError, RecursionError):
        return _salvage(body)
    return found if isinstance(found, dict) else {}


def _salvage(body: str) -> dict[str, Any]:
    """The keys that metrics need, out of text that is no valid JSON as a whole."""
    found = {}
    keys = "deviceProperties|computeProperties|distributedInfo|baseTimeNanoseconds"
    for match in re.finditer(rf'"({keys})"\s*:\s*', body):
        try:
            found[match.group(1)] = _METADATA.raw_decode(body, match.end())[0]
        except (ValueError, RecursionError):
            continue
    return found


def _devices(metadata: dict[str, Any]) -> dict[int, DeviceProperties]:
    listed = metadata.get("deviceProperties") or metadata.get("computeProperties")
    found = {}
    for entry in listed if isinstance(listed, list) else []:
        number = _whole(entry.get("id")) if isinstance(entry, dict) else None
        if number is None:
            continue
        major = _first(entry, "computeMajor", "major")
        minor = _first(entry, "computeMinor", "minor")
        name = entry.get("name")
        found[number] = DeviceProperties(
            name=name if isinstance(name, str) else "",
            compute_capability=None if major is None or minor is None else (major, minor),
            num_sms=_first(entry, "numSms", "multiProcessorCount") or None,
            max_threads_per_sm=_first(
                entry, "maxThreadsPerMultiprocessor", "maxThreadsPerMultiProcessor"
            ),
            registers_per_sm=_first(entry, "regsPerMultiprocessor"),
            shared_bytes_per_sm=_first(
                entry, "sharedMemPerMultiprocessor", "maxSharedMemoryPerMultiProcessor"
            ),
            warp_size=_first(entry, "warpSize"),
        )
    return found


def _first(entry: dict[str, Any], *keys: str) -> int | None:
    """The first of the keys that holds a whole number."""
    for key in keys:
        number = _whole(entry.get(key))
        if number is not None:
            return number
    return None


def _whole(value: object) -> int | None:
    plain = isinstance(value, int) and not isinstance(value, bool)
    return int(value) if plain and 0 <= int(value) < 2**63 else None  # type: ignore[call-overload]


def _distributed(metadata: dict[str, Any]) -> dict[str, object]:
    found = metadata.get("distributedInfo")
    if not isinstance(found, dict):
        return {}
    return {key: found[key] for key in ("backend", "rank", "world_size") if key in found}
