"""A snapshot as torch wrote it, checked and in short: segments, blocks, events.

Of torch's source: `torch/cuda/memory.py` (`_snapshot`), `torch/csrc/cuda/memory_snapshot.cpp`,
`c10/cuda/CUDACachingAllocator.cpp` (sizes of events are those asked for, not those rounded). Older
versions miss keys: `requested_size`, `frames` (then a block has a `history`), `is_expandable`,
`segment_pool_id`, `time_us`, `external_annotations`; the list of segments alone is older still.
"""

from __future__ import annotations

import gc
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from ...errors import UsageError
from .pickled import DUMP, load
from .stacks import CATEGORIES, NO_STACK, Stack, stack_of

ADDRESS_LIMIT = 1 << 64
"""Sizes and addresses are below."""
ALLOCATED, INACTIVE = "active_allocated", "inactive"
_STATES = (ALLOCATED, "active_pending_free", "active_awaiting_free", INACTIVE)


@dataclass(frozen=True, slots=True)
class Block:
    """A part of a segment, bytes; `requested` is what was asked for, `size` if that is unknown."""

    address: int
    size: int
    requested: int
    state: str
    stack: Stack

    @property
    def active(self) -> bool:
        """In use, or freed while another stream may still use it."""
        return self.state != INACTIVE


@dataclass(frozen=True, slots=True)
class Segment:
    """Memory that torch got from the driver in one call, bytes; see `records.MemoryPool`."""

    device: int
    address: int
    size: int
    stream: int
    kind: str
    pool: tuple[int, int]
    expandable: bool | None
    blocks: tuple[Block, ...]


class Event(NamedTuple):
    """One entry of the history; there may be millions, and a tuple is made fastest.

    Attributes:
        address: of `oom`, what the device had left.
        time_us: since the epoch; `None` in older versions.
    """

    action: str
    address: int
    size: int
    stream: int
    time_us: int | None
    stack: Stack


@dataclass(frozen=True, slots=True)
class Annotation:
    """The start or the end of a `record_function`."""

    name: str
    start: bool
    device: int
    time_us: int


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The whole file; `traces` has a list for each device number."""

    segments: tuple[Segment, ...]
    traces: tuple[tuple[Event, ...], ...]
    annotations: tuple[Annotation, ...] = ()
    settings: dict[str, str] = field(default_factory=dict)
    file_bytes: int = 0

    @property
    def has_stacks(self) -> bool:
        """Whether any block or event has frames."""
        blocks = (block.stack.known for segment in self.segments for block in segment.blocks)
        return any(blocks) or any(event.stack.known for trace in self.traces for event in trace)


def read_snapshot(path: Path) -> Snapshot:
    """Reads and checks a file.

    Raises:
        UsageError: it is no snapshot, or its numbers contradict each other.
    """
    collecting = gc.isenabled()
    gc.disable()  # nothing becomes garbage meanwhile, and each collection would walk it all
    try:
        content, size = load(path)
        return _Reader(path, size).snapshot(content)
    finally:
        if collecting:
            gc.enable()


class _Reader:
    """Checks while it reads.

    Args:
        size: of the file. Lists that repeat themselves by reference cannot name more things than
            it has bytes.
    """

    def __init__(self, path: Path, size: int) -> None:
        self._path = path
        self._size = size
        self._left = size // 4 + 1000
        self._stacks: dict[tuple[int, str], Stack] = {}
        self._frames: dict[int, tuple[str, int, str]] = {}

    def snapshot(self, content: Any) -> Snapshot:
        """The file's content, checked."""
        if isinstance(content, list) and content and _is_segment(content[0]):
            content = {"segments": content}
        if not isinstance(content, dict) or "segments" not in content:
            what = f"a {type(content).__name__}" if not isinstance(content, dict) else "a dict"
            msg = f"{self._path} holds {what} without `segments`: it is no snapshot of memory."
            raise UsageError(msg, DUMP)
        segments = tuple(self._segment(item) for item in self._list(content, "segments"))
        traces = tuple(
            tuple(self._event(item) for item in self._items(trace, "device_traces"))
            for trace in self._list(content, "device_traces")
        )
        settings = content.get("allocator_settings")
        return Snapshot(
            segments=segments,
            traces=traces,
            annotations=tuple(self._annotations(content)),
            settings=_settings(settings) if isinstance(settings, dict) else {},
            file_bytes=self._size,
        )

    def _segment(self, item: Any) -> Segment:
        segment = self._dict(item, "a segment")
        address, size = self._number(segment, "address"), self._number(segment, "total_size")
        blocks, at = [], address
        for part in self._list(segment, "blocks"):
            block = self._block(part, at)
            if block.address != at:
                self._bad("the blocks of a segment leave a gap or overlap")
            at += block.size
            blocks.append(block)
        if at != address + size:
            self._bad("the blocks of a segment do not add up to it")
        expandable = segment.get("is_expandable")
        return Segment(
            device=self._number(segment, "device", 0),
            address=address,
            size=size,
            stream=self._number(segment, "stream", 0),
            kind=_text(segment.get("segment_type")),
            pool=_pool(segment.get("segment_pool_id")),
            expandable=expandable if isinstance(expandable, bool) else None,
            blocks=tuple(blocks),
        )

    def _block(self, item: Any, at: int) -> Block:
        block = self._dict(item, "a block")
        state = block.get("state")
        if state not in _STATES:
            self._bad("a block has a state that is not known")
        size = self._number(block, "size")
        requested, frames = block.get("requested_size"), block.get("frames")
        history = block.get("history")
        if isinstance(history, list) and history and isinstance(history[0], dict):
            frames = frames or history[0].get("frames")
            requested = history[0].get("real_size") if requested is None else requested
        if type(requested) is not int or not 0 <= requested <= size:
            requested = size
        return Block(
            address=self._number(block, "address", at),
            size=size,
            requested=0 if state == INACTIVE else requested,
            state=state,
            stack=NO_STACK if state == INACTIVE else self._stack(frames, block.get("category")),
        )

    def _event(self, item: Any) -> Event:
        event = self._dict(item, "an event")
        action = event.get("action")
        if not isinstance(action, str):
            self._bad("an event has no action")
        time = event.get("time_us")
        oom = action == "oom"
        return Event(
            action=action,
            address=self._number(event, "device_free" if oom else "addr", -1 if oom else 0),
            size=self._number(event, "size", 0),
            stream=self._number(event, "stream", 0),
            time_us=time if type(time) is int else None,
            stack=self._stack(event.get("frames"), event.get("category")),
        )

    def _stack(self, frames: Any, category: Any) -> Stack:
        known = category if isinstance(category, str) and category in CATEGORIES else ""
        if not frames and not known:
            return NO_STACK
        if not isinstance(frames, list):
            return stack_of((), known)
        # Events share lists of frames: each is read a single time. The objects live until the end.
        key = (id(frames), known)
        if key not in self._stacks:
            self._stacks[key] = stack_of(map(self._frame, frames), known)
        return self._stacks[key]

    def _frame(self, item: Any) -> tuple[str, int, str]:
        key = id(item)
        if key not in self._frames:
            frame = self._dict(item, "a frame")
            line = frame.get("line")
            self._frames[key] = (
                _text(frame.get("filename")),
                line if type(line) is int else 0,
                _text(frame.get("name")),
            )
        return self._frames[key]

    def _annotations(self, content: dict[Any, Any]) -> list[Annotation]:
        kept = []
        for item in self._list(content, "external_annotations"):
            entry = self._dict(item, "an annotation")
            name, stage, time = entry.get("name"), entry.get("stage"), entry.get("time_us")
            if isinstance(name, str) and stage in ("START", "END") and type(time) is int:
                device = self._number(entry, "device", 0)
                kept.append(Annotation(name, stage == "START", device, time))
        return kept

    def _list(self, holder: dict[Any, Any], key: str) -> list[Any]:
        return self._items(holder.get(key, []), key)

    def _items(self, value: Any, key: str) -> list[Any]:
        if not isinstance(value, list):
            self._bad(f"`{key}` is no list")
        self._left -= len(value)
        if self._left < 0:
            self._bad("its lists name the same things over and over")
        return value

    def _dict(self, item: Any, what: str) -> dict[Any, Any]:
        if not isinstance(item, dict):
            self._bad(f"{what} is no dict")
        return item

    def _number(self, holder: dict[Any, Any], key: str, default: int | None = None) -> int:
        value = holder.get(key, default)
        if value is None and default is None:
            self._bad(f"`{key}` is missing")
        if value is None:
            return default or 0
        lowest = -ADDRESS_LIMIT if key in ("stream", "device_free") else 0
        if type(value) is not int or (not lowest <= value < ADDRESS_LIMIT and value != default):
            self._bad(f"`{key}` is no size or address")
        return value

    def _bad(self, why: str) -> NoReturn:
        raise UsageError(f"{self._path} is no sound snapshot: {why}.", DUMP)


def _is_segment(item: Any) -> bool:
    return isinstance(item, dict) and "total_size" in item and "blocks" in item


def _pool(value: Any) -> tuple[int, int]:
    if isinstance(value, (tuple, list)) and len(value) == 2:
        first, second = value
        if type(first) is int and type(second) is int:
            return first, second
    return 0, 0


def _text(value: Any) -> str:
    return value[:1000] if isinstance(value, str) else ""


def _settings(settings: dict[Any, Any]) -> dict[str, str]:
    """Plain settings as text."""
    kept = (str, int, float, bool)
    return {
        key: str(value)[:200]
        for key, value in list(settings.items())[:100]
        if isinstance(key, str) and isinstance(value, kept)
    }
