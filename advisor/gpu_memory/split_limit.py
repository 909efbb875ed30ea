"""The cost of `max_split_size_mb` where segments expand: free blocks that no request may have."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from ...records import SplitLimit
from .caching_allocator import MIB, SMALL_BYTES, rounded
from .expandable_segments import ExpandableAllocator

_IN_TEXT = re.compile(r"max_split_size_mb\s*:\s*(\d+)")
_UNSET = 1 << 50
"""From here on a limit is torch's way to say that there is none."""
_ENDLESS = 1 << 80
"""Bytes of a device for whatever blocks a file may name."""


def limit_of(settings: Mapping[str, str]) -> int | None:
    """Bytes of `max_split_size_mb` in the settings of a snapshot; `None` where it is not set."""
    size = settings.get("max_split_size", "")
    if size.isdecimal() and 0 < int(size) < _UNSET:
        return int(size)
    found = _IN_TEXT.search(" ".join(value for key, value in settings.items() if "CONF" in key))
    return int(found[1]) * MIB if found else None


def split_limit(segments: Sequence[Sequence[tuple[int, bool]]], limit: int) -> SplitLimit | None:
    """Finds what the limit costs; `None` where no free block is as large.

    Two replicas of torch's allocator hold the same blocks, one with the limit and one without. Then
    all that is in use is asked for once more.

    Args:
        segments: of large blocks that expand: size of each block, and whether it is free.
        limit: bytes.
    """
    blocks = [block for segment in segments for block in segment if block[0] > SMALL_BYTES]
    blocked = sum(size for size, free in blocks if free and size >= limit)
    requests = [size for size, free in blocks if not free]
    if not blocked or not requests:
        return None
    more = [_more_reserved(blocks, requests, own) for own in (limit, None)]
    return SplitLimit(
        limit_bytes=limit,
        blocked_bytes=blocked,
        requested_bytes=sum(requests),
        more_bytes=more[0],
        more_without_bytes=more[1],
    )


def _more_reserved(
    blocks: Sequence[tuple[int, bool]], requests: Sequence[int], limit: int | None
) -> int:
    """Bytes that have to be reserved for the requests beside the blocks."""
    allocator = ExpandableAllocator(_ENDLESS)
    for number, (size, _) in enumerate(blocks):
        allocator.allocate(number, rounded(size))
    for number, (_, free) in enumerate(blocks):
        if free:
            allocator.free(number)
    allocator.max_split_bytes = limit
    before = allocator.reserved_bytes
    for number, size in enumerate(requests, len(blocks)):
        allocator.allocate(number, rounded(size))
    return allocator.reserved_bytes - before
