"""A trace in columns: what the metrics need of the events, and nothing else.

Times are integer nanoseconds as the file has them. Names and threads are numbers into
`Trace.names` and `Trace.threads`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import msgspec
import numpy as np
import numpy.typing as npt

from .intervals import Floats, Ints

if TYPE_CHECKING:
    from typing_extensions import Self

Numbers: TypeAlias = npt.NDArray[np.int32]

HOST_MEMORY = -1
NOT_SAID = -1
MOST_MEMORY_EVENTS = 4_000_000
"""Allocations that are kept, the first ones; each takes 40 bytes."""


class Columns(msgspec.Struct, frozen=True, kw_only=True):
    """Base of all columns; one row an event."""

    def select(self, rows: npt.NDArray[np.bool_] | Ints | slice) -> Self:
        """The given rows; of a slice it is a view."""
        return type(self)(
            **{field: getattr(self, field)[rows] for field in self.__struct_fields__},
        )


class Ranges(Columns, frozen=True, kw_only=True):
    """Something that the host did: operators, annotations, API calls.

    Attributes:
        start_ns, end_ns: when.
        name: number in `Trace.names`.
        thread: number in `Trace.threads`.
        correlation: of API calls, links to the activity that they launched; -1 if unknown.
    """

    start_ns: Ints
    end_ns: Ints
    name: Numbers
    thread: Numbers
    correlation: Ints

    def __len__(self) -> int:
        return len(self.start_ns)

    def renamed(self, offset: int) -> Ranges:
        """Returns the rows with numbers of names that are higher by `offset`."""
        return msgspec.structs.replace(self, name=self.name + np.int32(offset))

    def join(self, other: Ranges) -> Ranges:
        """The rows of both."""
        return Ranges(
            **{
                field: np.concatenate((getattr(self, field), getattr(other, field)))
                for field in self.__struct_fields__
            },
        )


class Activities(Columns, frozen=True, kw_only=True):
    """Something that a GPU did: kernels, copies, sets.

    Attributes:
        kind: `kineto_names.KERNEL`, `MEMCPY` or `MEMSET`.
        device, stream: as in the trace; -1 if unknown.
        start_ns, end_ns: when.
        name: number in `Trace.names`.
        correlation: links to the API call that launched it; -1 if unknown.
        num_bytes: of copies and sets; -1 if unknown.
        num_blocks, num_threads: blocks in the grid, threads in a block; -1 if unknown.
        registers: per thread; -1 if unknown.
        shared_bytes: shared memory of a block; -1 if unknown.
        blocks_per_sm: grid blocks over multiprocessors; NaN if unknown.
        occupancy_pct: achieved occupancy as Kineto estimated it; NaN if unknown.
    """

    kind: npt.NDArray[np.int8]
    device: Numbers
    stream: Ints
    start_ns: Ints
    end_ns: Ints
    name: Numbers
    correlation: Ints
    num_bytes: Ints
    num_blocks: Ints
    num_threads: Ints
    registers: Ints
    shared_bytes: Ints
    blocks_per_sm: Floats
    occupancy_pct: Floats

    def __len__(self) -> int:
        return len(self.start_ns)


class MemoryEvents(Columns, frozen=True, kw_only=True):
    """Allocations and frees, in order of time.

    Attributes:
        time_ns: when.
        thread: number in `Trace.threads`.
        device: number of the GPU; `HOST_MEMORY` of the host's memory.
        num_bytes: what was allocated, below 0 where it was freed; 0 if unknown.
        allocated: bytes in tensors on the device, this event included; `NOT_SAID` of torch 1.8 and
            1.9, which do not write it.
        reserved: bytes that the allocator had taken of the device; `NOT_SAID` if unknown.
        num_left_out: events without a usable time, device or size.
        num_unordered: events that stand behind a later one in the file.
        num_more: events beyond `MOST_MEMORY_EVENTS`, which are not kept.
    """

    time_ns: Ints
    thread: Numbers
    device: Numbers
    num_bytes: Ints
    allocated: Ints
    reserved: Ints
    num_left_out: int = 0
    num_unordered: int = 0
    num_more: int = 0

    def __len__(self) -> int:
        return len(self.time_ns)


class BackwardLinks(Columns, frozen=True, kw_only=True):
    """Which part of the backward pass belongs to which operator of the forward one.

    Attributes:
        forward_ns, backward_ns: where both begin; sorted by the latter.
        forward_thread, backward_thread: numbers in `Trace.threads`.
    """

    forward_ns: Ints
    forward_thread: Numbers
    backward_ns: Ints
    backward_thread: Numbers

    def __len__(self) -> int:
        return len(self.forward_ns)


class DeviceProperties(msgspec.Struct, frozen=True, kw_only=True):
    """Properties of a GPU as the trace states them; `None` where it does not.

    Attributes:
        compute_capability: (major, minor); of AMD devices it means something else.
        num_sms: multiprocessors, or compute units.
        max_threads_per_sm, registers_per_sm: limits of a multiprocessor.
        shared_bytes_per_sm: shared memory of a multiprocessor.
        warp_size: threads in a warp; 64 on AMD's data centre devices.
    """

    name: str
    compute_capability: tuple[int, int] | None = None
    num_sms: int | None = None
    max_threads_per_sm: int | None = None
    registers_per_sm: int | None = None
    shared_bytes_per_sm: int | None = None
    warp_size: int | None = None


def _events(count: int) -> str:
    return "1 event" if count == 1 else f"{count} events"


class Losses(msgspec.Struct, frozen=True, kw_only=True):
    """Damage of the file, and what it cost.

    Attributes:
        num_lost: events that could not be read, the one that a cut went through included.
        num_mended: events that were not valid JSON and could be read all the same.
        truncated: the file ends before its list of events does.
        damage: what is wrong with the file as a stream of bytes, `""` if nothing.
        first_damage_byte: offset in the decompressed file of the chunk with the first damage.
    """

    num_lost: int = 0
    num_mended: int = 0
    truncated: bool = False
    damage: str = ""
    first_damage_byte: int | None = None

    @property
    def any(self) -> bool:
        """Whether anything was wrong."""
        return bool(self.num_lost or self.num_mended or self.truncated or self.damage)

    def __str__(self) -> str:
        parts = []
        if self.truncated:
            parts.append("the file is cut in the middle")
        if self.damage:
            parts.append(self.damage)
        if self.num_lost:
            parts.append(f"{_events(self.num_lost)} could not be read")
        if self.num_mended:
            parts.append(f"{_events(self.num_mended)} not valid JSON and mended")
        where = f" (from byte {self.first_damage_byte} on)" if self.first_damage_byte else ""
        return "; ".join(parts) + where if parts else "nothing"


class Trace(msgspec.Struct, frozen=True, kw_only=True):
    """The events of a trace file, in columns.

    Attributes:
        num_events: events in the file, of all kinds.
        num_complete: events with a duration (`ph: "X"`) among them.
        gpu: activities of all devices.
        launches: calls of the runtime and driver API.
        operators: CPU operators.
        annotations: host annotations, profiler steps and DataLoader waits among them.
        python: frames of Python; their `name` is a number in `python_names`. Empty where stacks
            were not recorded.
        backward: links between the two passes.
        memory: allocations and frees; empty where they were not recorded.
        names: texts of the `name` columns.
        threads: (process, thread) of the `thread` columns, as text.
        devices: properties, by device number.
        distributed: rank, world size, backend, as the trace states them.
        unread_devices: events of accelerators that are not read, in words.
        losses: what could not be read.
    """

    num_events: int
    num_complete: int
    gpu: Activities
    launches: Ranges
    operators: Ranges
    annotations: Ranges
    python: Ranges
    python_names: tuple[str, ...]
    backward: BackwardLinks
    memory: MemoryEvents
    names: tuple[str, ...]
    threads: tuple[tuple[str, str], ...]
    devices: dict[int, DeviceProperties]
    distributed: dict[str, object]
    unread_devices: tuple[str, ...] = ()
    losses: Losses

    @property
    def all_names(self) -> tuple[str, ...]:
        """Texts of `names`, then those of `python_names`."""
        return (*self.names, *self.python_names)
