"""The contents of a snapshot of the GPU's memory."""

from __future__ import annotations

from typing import Literal

import msgspec

from .base import Record

MemoryCategory = Literal[
    "parameters", "optimizer", "forward", "backward", "communication", "unknown"
]
"""Use of an allocation, as its frames prove it; `unknown` where they prove nothing."""


class MemoryLine(Record, frozen=True, kw_only=True):
    """Memory that one line of code asked for.

    Attributes:
        line: `folder/train.py:41`; empty where no Python frame was recorded.
        function: that the line stands in; may be empty.
        num_bytes: as asked for, without rounding.
    """

    line: str
    function: str = ""
    num_bytes: int
    num_blocks: int


class MemoryShare(Record, frozen=True, kw_only=True):
    """Memory of one category, bytes as asked for."""

    category: MemoryCategory
    num_bytes: int
    num_blocks: int


class MemoryPool(Record, frozen=True, kw_only=True):
    """Segments that serve the same requests: of one stream, one pool and one kind.

    Attributes:
        pool: `0, 0` is the general one; others belong to CUDA graphs or `MemPool`.
        kind: `small` serves up to 1 MiB; empty where the snapshot does not say.
        allocated_bytes: in use, rounding included.
        inactive_bytes: free within the segments.
        largest_free_bytes: the largest block among them.
        num_cached, cached_bytes: segments that nothing uses.
    """

    stream: int
    pool: tuple[int, int]
    kind: str
    num_segments: int
    reserved_bytes: int
    allocated_bytes: int
    inactive_bytes: int
    largest_free_bytes: int
    num_cached: int = 0
    cached_bytes: int = 0


class SplitLimit(Record, frozen=True, kw_only=True):
    """`max_split_size_mb` beside segments that expand, tried on a replica of torch's allocator.

    Attributes:
        limit_bytes: as it is set.
        blocked_bytes: free in blocks so large that no smaller request may have them.
        requested_bytes: all that is in use in large blocks, asked for once more.
        more_bytes, more_without_bytes: what had to be reserved for that, with the limit and without
            it.
    """

    limit_bytes: int
    blocked_bytes: int
    requested_bytes: int
    more_bytes: int
    more_without_bytes: int


class MemoryBlock(Record, frozen=True, kw_only=True):
    """One large block in use; bytes as asked for."""

    num_bytes: int
    category: MemoryCategory
    line: str = ""
    function: str = ""


class MemoryPeak(Record, frozen=True, kw_only=True):
    """The moment of the history at which most memory was in use.

    Attributes:
        num_bytes: asked for and not yet free again, at that moment.
        before_bytes: part of it that was there before the history begins.
        position: the event's number, from 0.
    """

    num_bytes: int
    before_bytes: int
    position: int
    lines: tuple[MemoryLine, ...]
    categories: tuple[MemoryShare, ...]


class OutOfMemory(Record, frozen=True, kw_only=True):
    """A request that failed.

    Attributes:
        requested_bytes: what was asked for.
        device_free_bytes: what the device had left outside torch's memory.
        free_bytes: free within segments that could serve the request (same stream, its kind, the
            general pool).
        largest_free_bytes: the largest block among them.
        exact: whether the blocks are those at the failure. Else they were led back to it, and what
            was free is an upper bound: what is gone since is known by the size asked for alone.
        fragmentation: enough was free but no block was large enough; `None` where unknown.
    """

    requested_bytes: int
    device_free_bytes: int | None
    free_bytes: int | None
    largest_free_bytes: int | None
    exact: bool
    fragmentation: bool | None
    line: str = ""
    function: str = ""
    position: int
    events_after: int


class MemoryGrowth(Record, frozen=True, kw_only=True):
    """A line whose memory is more after each step than after the one before."""

    line: str
    function: str = ""
    bytes_per_step: float
    num_steps: int


class MemoryTimeline(Record, frozen=True, kw_only=True):
    """Memory over the events of the history; of each group of events the one with most in use.

    Attributes:
        positions: numbers of the events.
        active_bytes: asked for and not free again.
        reserved_bytes: in segments; empty where the history has none of their events.
        steps: numbers of the events at which steps end.
    """

    positions: tuple[int, ...]
    active_bytes: tuple[int, ...]
    reserved_bytes: tuple[int, ...]
    steps: tuple[int, ...] = ()


class SnapshotDevice(Record, frozen=True, kw_only=True):
    """The memory of one device, bytes.

    Attributes:
        reserved_bytes: in segments.
        allocated_bytes: in blocks that tensors hold.
        awaiting_bytes: freed, but another stream may still use it.
        requested_bytes: what was asked for, of `allocated_bytes`.
        rounding_bytes: the rest of it.
        inactive_split_bytes: free in segments that are in use: only fitting requests can have it.
        cached_bytes: free segments, which `torch.cuda.empty_cache()` would give back.
        expandable: whether all segments are; `None` where none is there or it is not said.
        split_limit: what `max_split_size_mb` costs; `None` where it costs nothing.
        num_events: length of the history.
        step_source: how the ends of steps were told; empty where there are none.
        failure: the events around the request that failed, one by one; `None` where none failed.
        unavailable: why a field is `None` or empty.
    """

    device: int
    num_segments: int
    num_blocks: int
    reserved_bytes: int
    allocated_bytes: int
    awaiting_bytes: int
    requested_bytes: int
    rounding_bytes: int
    inactive_split_bytes: int
    cached_bytes: int
    largest_free_bytes: int
    expandable: bool | None
    lines: tuple[MemoryLine, ...] = ()
    categories: tuple[MemoryShare, ...] = ()
    pools: tuple[MemoryPool, ...] = ()
    largest: tuple[MemoryBlock, ...] = ()
    split_limit: SplitLimit | None = None
    num_events: int = 0
    peak: MemoryPeak | None = None
    out_of_memory: OutOfMemory | None = None
    num_out_of_memory: int = 0
    growth: tuple[MemoryGrowth, ...] = ()
    num_steps: int = 0
    step_source: str = ""
    timeline: MemoryTimeline | None = None
    failure: MemoryTimeline | None = None
    unavailable: dict[str, str] = msgspec.field(default_factory=dict)


class MemoryCut(Record, frozen=True, kw_only=True):
    """Something that may take less memory; follows from the snapshot and was not tried.

    Attributes:
        evidence: numbers of the snapshot.
        num_bytes: that it concerns, an upper bound of what it saves; `None` where unknown.
    """

    rule: str
    device: int
    message: str
    evidence: str
    remedy: str
    num_bytes: int | None
    tried: bool = False


class MemoryAnalysis(Record, frozen=True, kw_only=True, tag_field="kind", tag="memory"):
    """The contents of one snapshot.

    Attributes:
        settings: of torch's allocator, as the snapshot has them.
        notes: what to know before the numbers are believed.
    """

    snapshot: str
    file_bytes: int
    settings: dict[str, str] = msgspec.field(default_factory=dict)
    devices: tuple[SnapshotDevice, ...] = ()
    cuts: tuple[MemoryCut, ...] = ()
    notes: tuple[str, ...] = ()
