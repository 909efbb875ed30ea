"""Counts the memory in use when the snapshot was made, from its blocks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from ...records import (
    MemoryBlock,
    MemoryCategory,
    MemoryLine,
    MemoryPool,
    MemoryShare,
    SnapshotDevice,
)
from .snapshot import ALLOCATED, Segment
from .stacks import Stack

NUM_LISTED = 10
"""Lines and blocks that are listed."""
Held = tuple[int, Stack]
"""Bytes as asked for, and the stack that asked."""
Key = TypeVar("Key")


def state_of(device: int, segments: Sequence[Segment]) -> SnapshotDevice:
    """Counts the segments of one device."""
    blocks = [block for segment in segments for block in segment.blocks]
    in_use = [block for block in blocks if block.state == ALLOCATED]
    active = [block for block in blocks if block.active]
    allocated = sum(block.size for block in in_use)
    requested = sum(block.requested for block in in_use)
    free = [(segment, _free(segment)) for segment in segments]
    said = {segment.expandable for segment in segments}
    held = [(block.requested, block.stack) for block in active]
    largest = sorted(in_use, key=lambda block: -block.requested)[:NUM_LISTED]
    return SnapshotDevice(
        device=device,
        num_segments=len(segments),
        num_blocks=len(in_use),
        reserved_bytes=sum(segment.size for segment in segments),
        allocated_bytes=allocated,
        awaiting_bytes=sum(block.size for block in active) - allocated,
        requested_bytes=requested,
        rounding_bytes=allocated - requested,
        inactive_split_bytes=sum(size for segment, size in free if size < segment.size),
        cached_bytes=sum(size for segment, size in free if size == segment.size),
        largest_free_bytes=max(map(_largest_free, segments), default=0),
        expandable=None if not said or None in said else said == {True},
        lines=lines_of(held),
        categories=shares_of(held),
        pools=_pools(segments),
        largest=tuple(
            MemoryBlock(
                num_bytes=block.requested,
                category=block.stack.category,
                line=block.stack.line,
                function=block.stack.function,
            )
            for block in largest
        ),
    )


def lines_of(held: Iterable[Held]) -> tuple[MemoryLine, ...]:
    """Bytes by line, the largest first; memory without a line has an empty one."""
    sums = _sums(held, lambda stack: (stack.line, stack.function))
    return tuple(
        MemoryLine(line=line, function=function, num_bytes=size, num_blocks=count)
        for (line, function), (size, count) in _largest(sums)[:NUM_LISTED]
    )


def shares_of(held: Iterable[Held]) -> tuple[MemoryShare, ...]:
    """Bytes by category, the largest first."""
    sums: dict[MemoryCategory, tuple[int, int]] = _sums(held, lambda stack: stack.category)
    return tuple(
        MemoryShare(category=category, num_bytes=size, num_blocks=count)
        for category, (size, count) in _largest(sums)
    )


def _sums(held: Iterable[Held], key_of: Callable[[Stack], Key]) -> dict[Key, tuple[int, int]]:
    sums: dict[Key, tuple[int, int]] = {}
    for size, stack in held:
        key = key_of(stack)
        total, count = sums.get(key, (0, 0))
        sums[key] = (total + size, count + 1)
    return sums


def _largest(sums: dict[Key, tuple[int, int]]) -> list[tuple[Key, tuple[int, int]]]:
    return sorted(sums.items(), key=lambda pair: (-pair[1][0], str(pair[0])))


def _free(segment: Segment) -> int:
    return sum(block.size for block in segment.blocks if not block.active)


def _largest_free(segment: Segment) -> int:
    return max((block.size for block in segment.blocks if not block.active), default=0)


def _pools(segments: Sequence[Segment]) -> tuple[MemoryPool, ...]:
    groups: dict[tuple[int, tuple[int, int], str], list[Segment]] = {}
    for segment in segments:
        groups.setdefault((segment.stream, segment.pool, segment.kind), []).append(segment)
    pools = []
    for (stream, pool, kind), own in groups.items():
        reserved = sum(segment.size for segment in own)
        inactive = sum(map(_free, own))
        cached = [segment.size for segment in own if _free(segment) == segment.size]
        allocated = sum(
            block.size for segment in own for block in segment.blocks if block.state == ALLOCATED
        )
        pools.append(
            MemoryPool(
                stream=stream,
                pool=pool,
                kind=kind,
                num_segments=len(own),
                reserved_bytes=reserved,
                allocated_bytes=allocated,
                inactive_bytes=inactive,
                largest_free_bytes=max(map(_largest_free, own)),
                num_cached=len(cached),
                cached_bytes=sum(cached),
            )
        )
    return tuple(sorted(pools, key=lambda pool: (-pool.reserved_bytes, pool.stream, pool.pool)))
