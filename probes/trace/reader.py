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
from .builder import Builder
from .chunks import MOST_UNBROKEN, Chunks
from .columns import DeviceProperties, Losses, Trace
from .damaged import find_events
from .event import Event, whole_number

_MOST_METADATA = 16 << 20
_EVENTS = msgspec.json.Decoder(list[Event])
_EVENT = msgspec.json.Decoder(Event)
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
        self.chunks = Chunks(path)
        self.builder = Builder()
        self.num_lost = 0
        self.num_mended = 0
        self.first_damage: int | None = None

    def read(self) -> Trace:
        for chunk in self.chunks:
            try:
                events = _EVENTS.decode(b"[" + chunk + b"]")
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                events = self._difficult(chunk)
            self.builder.add(events)
        return self._trace()

    def _difficult(self, chunk: bytes) -> list[Event]:
        final = self.chunks.final or len(chunk) > MOST_UNBROKEN
        events = find_events(chunk, final=final)
        if self.first_damage is None and events.num_lost + events.num_mended:
            self.first_damage = self.chunks.offset
        self.num_lost += events.num_lost
        self.num_mended += events.num_mended
        if events.footer is not None:
            self.chunks.close(events.footer)
        self.chunks.push_back(events.left)
        return [event for event in map(self._decoded, events.events) if event is not None]

    def _decoded(self, text: bytes) -> Event | None:
        """An event of valid JSON; one whose values are of other types is lost."""
        try:
            return _EVENT.decode(text)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            self.num_lost += 1
            return None

    def _trace(self) -> Trace:
        chunks, builder = self.chunks, self.builder
        footer = chunks.footer or b""
        metadata = _metadata(chunks.header) | _metadata(footer[:_MOST_METADATA])
        operators, annotations = builder.host_ranges()
        trace = Trace(
            gpu=builder.activities(),
            launches=builder.ranges("launch"),
            operators=operators,
            annotations=annotations,
            python=builder.ranges("python"),
            python_names=tuple(builder.python_names),
            backward=builder.backward_links(),
            memory=builder.memory_events(),
            names=tuple(builder.names),
            threads=tuple((str(pid), str(tid)) for pid, tid in builder.threads),
            num_events=builder.num_events,
            num_complete=builder.num_complete,
            devices=_devices(metadata),
            distributed=_distributed(metadata),
            unread_devices=builder.unread_devices(),
            losses=Losses(
                num_lost=self.num_lost + builder.num_broken,
                num_mended=self.num_mended,
                truncated=chunks.footer is None,
                damage=chunks.source.damage,
                first_damage_byte=self.first_damage,
            ),
        )
        if trace.num_events == 0 and trace.losses.any:
            msg = f"{chunks.source.path} holds no readable event: {trace.losses}."
            raise UsageError(msg, "Record it again.")
        return trace


def _metadata(text: bytes) -> dict[str, Any]:
    """Keys of the document around the list of events, as far as they are readable."""
    body = text.decode("utf-8", "replace")
    body = re.sub(r'"traceEvents"\s*:\s*\[\s*\Z', "", body)
    body = body.strip().removeprefix("{").strip(", \t\r\n")
    body = body.removesuffix("}") if body.count("{") < body.count("}") else body
    try:
        metadata = _METADATA.decode("{" + body + "}")
    except (ValueError, RecursionError):
        return {}
    return metadata if isinstance(metadata, dict) else {}


def _devices(metadata: dict[str, Any]) -> dict[int, DeviceProperties]:
    listed = metadata.get("deviceProperties") or metadata.get("computeProperties")
    devices = {}
    for entry in listed if isinstance(listed, list) else []:
        number = whole_number(entry.get("id")) if isinstance(entry, dict) else None
        if number is None:
            continue
        major = _first(entry, "computeMajor", "major")
        minor = _first(entry, "computeMinor", "minor")
        name = entry.get("name")
        devices[number] = DeviceProperties(
            name=name.encode("utf-8", "replace").decode() if isinstance(name, str) else "",
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
    return devices


def _first(entry: dict[str, Any], *keys: str) -> int | None:
    """The first of the keys that holds a whole number."""
    for key in keys:
        number = whole_number(entry.get(key))
        if number is not None:
            return number
    return None


def _distributed(metadata: dict[str, Any]) -> dict[str, object]:
    info = metadata.get("distributedInfo")
    if not isinstance(info, dict):
        return {}
    return {key: info[key] for key in ("backend", "rank", "world_size") if key in info}
