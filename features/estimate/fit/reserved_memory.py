"""Bytes that torch would reserve on a GPU for a step's requests, and whether they fit there."""

from __future__ import annotations

import sys
from collections.abc import Iterable

from ....advisor.gpu_memory.caching_allocator import CachingAllocator, NoMemoryError
from ....advisor.gpu_memory.expandable_segments import ExpandableAllocator


def fits(requests: Iterable[int], capacity: int, *, expandable: bool = False) -> bool:
    """Whether all of them can be served.

    Args:
        requests: see `CachingAllocator.serve`.
        capacity: bytes that the device has for them.
        expandable: with expandable segments.
    """
    try:
        _allocator(capacity, expandable=expandable).serve(requests)
    except NoMemoryError:
        return False
    return True


def reserved_bytes(requests: Iterable[int], *, expandable: bool = False) -> int:
    """Bytes that torch reserves for these requests where there is room for all.

    Args:
        requests, expandable: as in `fits`.
    """
    allocator = _allocator(sys.maxsize, expandable=expandable)
    allocator.serve(requests)
    return allocator.reserved_bytes


def _allocator(capacity: int, *, expandable: bool) -> CachingAllocator:
    return ExpandableAllocator(capacity) if expandable else CachingAllocator(capacity)
