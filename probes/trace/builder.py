"""Decoded events -> columns, a chunk at a time."""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from decimal import Decimal
from typing import Annotated, Any, TypeAlias, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt

from . import kineto_names as vocabulary
from .columns import (
    HOST_MEMORY,
    MOST_MEMORY_EVENTS,
    NOT_SAID,
    Activities,
    BackwardLinks,
    MemoryEvents,
    Ranges,
)
from .event import Event, lenient_args
from .intervals import Ints

_MOST_INT64 = 2**63 - 1
_MOST_DEVICES = 1 << 15
_Int: TypeAlias = Annotated[int, msgspec.Meta(ge=-(2**62), le=2**62)]


class _LaunchArgs(msgspec.Struct, gc=False):
    correlation: _Int = -1


class _GpuArgs(msgspec.Struct, gc=False):
    correlation: _Int = -1
    device: _Int = -1
    stream: _Int = -1
    bytes: _Int = -1
    grid: tuple[_Int, _Int, _Int] | None = None
    block: tuple[_Int, _Int, _Int] | None = None
    registers: _Int = msgspec.field(default=-1, name="registers per thread")
    shared: _Int = msgspec.field(default=-1, name="shared memory")
    blocks_per_sm: float | None = msgspec.field(default=None, name="blocks per SM")
    occupancy: float | None = msgspec.field(default=None, name="est. achieved occupancy %")


class _MemoryArgs(msgspec.Struct, gc=False):
    kind: _Int = msgspec.field(default=-1, name="Device Type")
    device: _Int = msgspec.field(default=-1, name="Device Id")
    bytes: _Int | None = msgspec.field(default=None, name="Bytes")
    allocated: _Int | None = msgspec.field(default=None, name="Total Allocated")
    reserved: _Int = msgspec.field(default=NOT_SAID, name="Total Reserved")

    @property
    def makes_sense(self) -> bool:
        """Whether it is known which memory changed, and by how much or to what."""
        known = self.kind == vocabulary.CPU_TYPE or (
            self.kind == vocabulary.GPU_TYPE and 0 <= self.device < _MOST_DEVICES
        )
        if self.allocated is None:
            return known and self.bytes is not None
        return known and self.allocated >= 0


_Args = TypeVar("_Args", _LaunchArgs, _GpuArgs, _MemoryArgs)


class _Group:
    """Growing columns of one kind of event.

    Each column is one block of memory: many small arrays, put together in the end, would need
    twice as much and leave holes.
    """

    def __init__(self) -> None:
        self.columns: defaultdict[str, bytearray] = defaultdict(bytearray)

    def extend(self, **columns: npt.NDArray[Any]) -> None:
        for name, values in columns.items():
            self.columns[name] += values.tobytes()

    def column(self, name: str, dtype: type) -> npt.NDArray[Any]:
        return np.frombuffer(self.columns.pop(name, b""), dtype)


class Unread(msgspec.Struct):
    """Events of one category and process that nothing here reads.

    Attributes:
        name: of the first.
        on_device: an argument says that they ran on a device.
    """

    name: str
    count: int = 0
    on_device: bool = False


class Builder:
    """Collects what the metrics need; everything else is dropped at once.

    Attributes:
        num_events, num_complete: seen so far.
        num_broken: events of a kind that matters, without a usable time.
        unread: what was dropped and is no part of Kineto's vocabulary.
    """

    def __init__(self) -> None:
        self.num_events = 0
        self.num_complete = 0
        self.num_broken = 0
        self._memory_left_out = self._memory_more = self._num_memory = 0
        self.unread: dict[tuple[str, Any], Unread] = {}
        self.names: defaultdict[str, int] = defaultdict(itertools.count().__next__)
        self.python_names: defaultdict[str, int] = defaultdict(itertools.count().__next__)
        self.threads: defaultdict[tuple[Any, Any], int] = defaultdict(itertools.count().__next__)
        kinds = (
            "gpu", "launch", "operator", "annotation", "python", "forward", "backward", "memory",
        )  # fmt: skip
        self._groups = {kind: _Group() for kind in kinds}
        self._hosts: set[Any] = set()

    def add(self, events: Sequence[Event]) -> None:
        """Takes the events of a chunk."""
        gpu: list[Event] = []
        by_kind: dict[str, list[Event]] = {
            kind: [] for kind in ("launch", "operator", "annotation", "python")
        }
        links: dict[str, list[Event]] = {"s": [], "f": []}
        memory: list[Event] = []
        place: dict[str, Callable[[Event], None]] = dict.fromkeys(vocabulary.GPU_KINDS, gpu.append)
        for categories, kind in (
            (vocabulary.LAUNCH_CATEGORIES, "launch"),
            (vocabulary.OPERATOR_CATEGORIES, "operator"),
            (vocabulary.ANNOTATION_CATEGORIES, "annotation"),
            ((vocabulary.PYTHON_CATEGORY,), "python"),
        ):
            place.update(dict.fromkeys(categories, by_kind[kind].append))
        get = place.get
        complete = 0
        known = vocabulary.DROPPED_CATEGORIES
        for event in events:
            if event.ph == "X":
                complete += 1
                append = get(event.cat)
                if append is not None:
                    append(event)
                elif event.cat not in known:
                    self._drop(event)
            elif event.cat in vocabulary.BACKWARD_LINKS and event.ph in links:
                links[event.ph].append(event)
            elif event.name == vocabulary.MEMORY_EVENT and event.ph == "i":
                memory.append(event)
        self.num_events += len(events)
        self.num_complete += complete
        for kind, members in by_kind.items():
            if members:
                self._add_ranges(kind, members)
        if gpu:
            self._add_gpu(gpu)
        for ph, kind in (("s", "forward"), ("f", "backward")):
            if links[ph]:
                self._add_links(kind, links[ph])
        if memory:
            self._add_memory(memory)

    def _drop(self, event: Event) -> None:
        key = event.cat, event.pid if isinstance(event.pid, int | str) else None
        unread = self.unread.get(key)
        if unread is None:
            unread = self.unread[key] = Unread(name=event.name)
        unread.count += 1
        unread.on_device |= vocabulary.has_device_args(bytes(event.args))

    def unread_devices(self) -> tuple[str, ...]:
        """Words the events of accelerators that are not read.

        Their categories say so, their arguments, or that they stand beside the script's process.
        """
        kinds = dict.fromkeys(
            category for category, _ in self.unread if vocabulary.is_unread_device(category)
        )
        hosts = self._hosts
        other = [
            unread
            for (category, pid), unread in self.unread.items()
            if category not in kinds and (unread.on_device or (hosts and pid not in hosts))
        ]
        words = sorted(kinds)
        if other:
            most = max(other, key=lambda unread: unread.count)
            count = sum(unread.count for unread in other)
            words.append(f"{count} event{'s' if count > 1 else ''} such as {most.name[:48]}")
        return tuple(words)

    def _add_ranges(self, kind: str, events: list[Event]) -> None:
        start, end, events = self._times(events)
        correlation = np.empty(0, np.int64)
        if kind == "launch":
            args = _decode(_LAUNCH_BATCH, _LaunchArgs, [event.args for event in events])
            correlation = np.array([arg.correlation for arg in args], np.int64)
        if kind == "python":
            known, short = self.python_names, vocabulary.frame_name
            name = np.array([known[short(event.name)] for event in events], np.int32)
        else:
            names = self.names
            name = np.array([names[event.name] for event in events], np.int32)
        thread = self._thread_numbers(events)
        if kind != "python":  # the tracer gives a thread that it cannot tell the process 0
            pids = list(self.threads)
            self._hosts.update(pids[number][0] for number in np.unique(thread).tolist())
        self._groups[kind].extend(
            start_ns=start, end_ns=end, name=name, thread=thread, correlation=correlation
        )

    def _add_links(self, kind: str, events: list[Event]) -> None:
        times, valid = nanoseconds([event.ts for event in events])
        numbers = [event.id if isinstance(event.id, int) else -1 for event in events]
        valid &= np.array([0 <= number <= _MOST_INT64 for number in numbers], bool)
        events = list(itertools.compress(events, valid.tolist()))
        self._groups[kind].extend(
            ns=times[valid],
            id=np.array(list(itertools.compress(numbers, valid.tolist())), np.int64),
            thread=self._thread_numbers(events),
        )

    def _add_memory(self, events: list[Event]) -> None:
        room = MOST_MEMORY_EVENTS - self._num_memory
        self._memory_more += max(len(events) - room, 0)
        events = events[:room]
        self._num_memory += len(events)
        time, valid = nanoseconds([event.ts for event in events])
        args = _decode(_MEMORY_BATCH, _MemoryArgs, [event.args for event in events])
        valid &= np.array([arg.makes_sense for arg in args], bool)
        self._memory_left_out += int((~valid).sum())
        kept = valid.tolist()
        args = list(itertools.compress(args, kept))
        on_cpu = [arg.kind == vocabulary.CPU_TYPE for arg in args]
        both = list(zip(args, on_cpu, strict=True))
        self._groups["memory"].extend(
            time_ns=time[valid],
            thread=self._thread_numbers(list(itertools.compress(events, kept))),
            device=np.array([HOST_MEMORY if cpu else arg.device for arg, cpu in both], np.int32),
            num_bytes=np.array([arg.bytes or 0 for arg in args], np.int64),
            allocated=np.array(
                [NOT_SAID if arg.allocated is None else arg.allocated for arg in args], np.int64
            ),
            # Torch has no allocator of its own for the host and writes 0.
            reserved=np.array(
                [NOT_SAID if cpu else max(arg.reserved, NOT_SAID) for arg, cpu in both], np.int64
            ),
        )

    def memory_events(self) -> MemoryEvents:
        """The columns of the allocations by time; the builder forgets them."""
        group = self._groups["memory"]
        time = group.column("time_ns", np.int64)
        order = np.argsort(time, kind="stable")
        return MemoryEvents(
            time_ns=time[order],
            thread=group.column("thread", np.int32)[order],
            device=group.column("device", np.int32)[order],
            num_bytes=group.column("num_bytes", np.int64)[order],
            allocated=group.column("allocated", np.int64)[order],
            reserved=group.column("reserved", np.int64)[order],
            num_left_out=self._memory_left_out,
            num_unordered=int((time < np.maximum.accumulate(time)).sum()) if len(time) else 0,
            num_more=self._memory_more,
        )

    def _thread_numbers(self, events: list[Event]) -> npt.NDArray[np.int32]:
        threads = self.threads
        keys: Iterable[tuple[Any, Any]] = [(event.pid, event.tid) for event in events]
        try:
            return np.array([threads[key] for key in keys], np.int32)
        except TypeError:  # lists or objects in place of numbers
            return np.array([threads[str(key), ""] for key in keys], np.int32)

    def _add_gpu(self, events: list[Event]) -> None:
        start, end, events = self._times(events)
        args = _decode(_GPU_BATCH, _GpuArgs, [event.args for event in events])
        names, kinds = self.names, vocabulary.GPU_KINDS
        both = list(zip(events, args, strict=True))
        device = [arg.device if arg.device >= 0 else _small(event.pid) for event, arg in both]
        stream = [arg.stream if arg.stream != -1 else _small(event.tid) for event, arg in both]
        self._groups["gpu"].extend(
            kind=np.array([kinds[event.cat] for event in events], np.int8),
            device=np.array(device, np.int64).clip(-1, 2**31 - 1).astype(np.int32),
            stream=np.array(stream, np.int64),
            start_ns=start,
            end_ns=end,
            name=np.array([names[event.name] for event in events], np.int32),
            correlation=np.array([arg.correlation for arg in args], np.int64),
            num_bytes=np.array([arg.bytes for arg in args], np.int64),
            num_blocks=np.array([_product(arg.grid) for arg in args], np.int64),
            num_threads=np.array([_product(arg.block) for arg in args], np.int64),
            registers=np.array([arg.registers for arg in args], np.int64),
            shared_bytes=np.array([arg.shared for arg in args], np.int64),
            blocks_per_sm=_floats(arg.blocks_per_sm for arg in args),
            occupancy_pct=_floats(arg.occupancy for arg in args),
        )

    def _times(
        self, events: list[Event]
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], list[Event]]:
        start, valid = nanoseconds([event.ts for event in events])
        duration, timed = nanoseconds([event.dur for event in events])
        valid &= timed
        if not valid.all():
            self.num_broken += int((~valid).sum())
            events = list(itertools.compress(events, valid.tolist()))
            start, duration = start[valid], duration[valid]
        return start, start + np.maximum(duration, 0), events

    def ranges(self, kind: str) -> Ranges:
        """The columns of one kind of host event; the builder forgets them."""
        group = self._groups[kind]
        start = group.column("start_ns", np.int64)
        correlation = group.column("correlation", np.int64)
        if kind != "launch":
            correlation = np.broadcast_to(np.int64(-1), start.shape)
        return Ranges(
            start_ns=start,
            end_ns=group.column("end_ns", np.int64),
            name=group.column("name", np.int32),
            thread=group.column("thread", np.int32),
            correlation=correlation,
        )

    def backward_links(self) -> BackwardLinks:
        """Both ends of the links that have both; the builder forgets them."""
        ends = []
        for kind in ("forward", "backward"):
            group = self._groups[kind]
            own = group.column("id", np.int64), group.column("ns", np.int64)
            ends.append((*own, group.column("thread", np.int32)))
        (ids, forward, forward_thread), (targets, backward, backward_thread) = ends
        order = np.argsort(ids, kind="stable")
        index = np.searchsorted(ids[order], targets)
        hit = index < len(order)
        hit[hit] = ids[order][index[hit]] == targets[hit]
        source = order[index[hit]]
        sort = np.argsort(backward[hit], kind="stable")
        return BackwardLinks(
            forward_ns=forward[source][sort],
            forward_thread=forward_thread[source][sort],
            backward_ns=backward[hit][sort],
            backward_thread=backward_thread[hit][sort],
        )

    def host_ranges(self) -> tuple[Ranges, Ranges]:
        """Operators and annotations; old traces mix them in one category."""
        operators, annotations = self.ranges("operator"), self.ranges("annotation")
        notes = np.array([vocabulary.is_annotation(name) for name in self.names], bool)
        moved = notes[operators.name] if len(operators) else np.zeros(0, bool)
        if moved.any():
            return operators.select(~moved), annotations.join(operators.select(moved))
        return operators, annotations

    def activities(self) -> Activities:
        """The columns of the GPU events; the builder forgets them."""
        dtypes = {"kind": np.int8, "device": np.int32, "name": np.int32}
        floats = ("blocks_per_sm", "occupancy_pct")
        return Activities(
            **{
                field: self._groups["gpu"].column(
                    field, dtypes.get(field, np.float64 if field in floats else np.int64)
                )
                for field in Activities.__struct_fields__
            }
        )


_LAUNCH_BATCH = msgspec.json.Decoder(list[_LaunchArgs])
_GPU_BATCH = msgspec.json.Decoder(list[_GpuArgs])
_MEMORY_BATCH = msgspec.json.Decoder(list[_MemoryArgs])


def _decode(
    decoder: msgspec.json.Decoder[list[_Args]], kind: type[_Args], texts: list[msgspec.Raw]
) -> list[_Args]:
    """Arguments of many events at once; one by one where that fails."""
    try:
        args = decoder.decode(b"[" + b",".join(texts) + b"]")
        if len(args) == len(texts):
            return args
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        pass
    return [lenient_args(bytes(text), kind) for text in texts]


def _small(value: object) -> int:
    """A process or thread "number" as one: 7 of 7, "7" and "stream 7"; -1 of the rest."""
    if isinstance(value, str):
        value = value.removeprefix("stream ")
        value = int(value) if value.isdecimal() and len(value) < 10 else -1
    return value if isinstance(value, int) and 0 <= value < 2**31 else -1


def _product(sizes: tuple[int, int, int] | None) -> int:
    if sizes is None or min(sizes) <= 0:
        return -1
    return min(math.prod(sizes), _MOST_INT64)


def _floats(values: Iterable[float | None]) -> npt.NDArray[np.float64]:
    return np.array([math.nan if value is None else value for value in values], np.float64)


# Times as text -> integer nanoseconds.
#
# Kineto writes microseconds with up to three decimals. A 64-bit float holds only a quarter of a
# microsecond of an absolute epoch time, so the digits are read as text and never as a float.

_COMMA, _DOT = 0x2C, 0x2E
_LIMIT_NS = 1 << 61
_LIMIT_TEXT = 19
"""A number of up to 18 digits, with its point, cannot overflow 64 bits."""


def nanoseconds(texts: Sequence[msgspec.Raw]) -> tuple[Ints, npt.NDArray[np.bool_]]:
    """Microseconds as JSON text -> exact nanoseconds.

    Digits below a nanosecond are dropped.

    Returns:
        The times, and which of them are valid; an invalid one is 0.
    """
    count = len(texts)
    if count == 0:
        return np.empty(0, np.int64), np.empty(0, bool)
    joined = b",".join(texts)
    if not joined.translate(None, b"0123456789.,"):
        marks = np.frombuffer(joined, np.uint8)
        ends = np.append(np.flatnonzero(marks == _COMMA), len(joined))
        lengths = np.diff(ends, prepend=-1) - 1
        if len(ends) == count and lengths.min() > 0 and lengths.max() <= _LIMIT_TEXT + 1:
            values = _vectorised(joined, np.flatnonzero(marks == _DOT), ends)
            if values is not None:
                return values, np.ones(count, bool)
    return _one_by_one(texts)


def _vectorised(joined: bytes, dots: Ints, ends: Ints) -> Ints | None:
    """All at once, or `None` where that would not be exact."""
    owners = np.searchsorted(ends, dots)
    decimals = np.zeros(len(ends), np.int64)
    decimals[owners] = ends[owners] - dots - 1
    if len(dots) > 1 and (np.diff(owners) == 0).any():
        return None
    if decimals.max() > 3 or (decimals[owners] == 0).any():
        return None
    digits = np.fromstring(joined.replace(b".", b""), np.int64, sep=",")
    scale = 10 ** (3 - decimals)
    if len(digits) != len(ends) or (digits > _LIMIT_NS // scale).any():
        return None
    return np.asarray(digits * scale, np.int64)


def _one_by_one(texts: Sequence[msgspec.Raw]) -> tuple[Ints, npt.NDArray[np.bool_]]:
    values = [_exact(bytes(text)) for text in texts]
    valid = np.array([value is not None for value in values], bool)
    return np.array([value or 0 for value in values], np.int64), valid


def _exact(text: bytes) -> int | None:
    try:
        number = Decimal(text.strip(b' "').decode("ascii"))
        if not number.is_finite() or abs(number) > _LIMIT_NS // 1000:
            return None
        return int(number * 1000)
    except (ArithmeticError, ValueError):
        return None
