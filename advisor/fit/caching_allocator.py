"""How torch's allocator of CUDA memory would have served the requests of a step: what it reserves.

The rules are those of c10/cuda/CUDACachingAllocator.cpp, on one stream: small and large requests
from pools of their own, the best fit first, blocks split and merged inside their segments, and
whole segments given back only when memory is short. With expandable segments each pool has one
segment that grows at its end, page by page. Its free pages are not given back here, so that it may
say too soon that memory is short.
"""

from __future__ import annotations

import sys
from bisect import bisect_left, insort
from collections.abc import Iterable
from typing import Final

MIB: Final = 1 << 20
BLOCK_BYTES: Final = 512
"""Requests are multiples of it (kMinBlockSize)."""
SMALL_BYTES: Final = MIB
"""Requests up to this come from the small pool (kSmallSize)."""
SMALL_SEGMENT_BYTES: Final = 2 * MIB
LARGE_SEGMENT_BYTES: Final = 20 * MIB
"""Of a request that is large, below 10 MiB (kLargeBuffer, kMinLargeAlloc)."""
MIN_LARGE_BYTES: Final = 10 * MIB
LARGE_ROUND_BYTES: Final = 2 * MIB
"""Larger requests get a segment of their own, rounded up to this (kRoundLarge)."""


class NoMemoryError(Exception):
    """A request that does not fit, after all that can be given back was given back."""


def fits(requests: Iterable[int], capacity: int, *, expandable: bool = False) -> bool:
    """Whether all of them can be served.

    Args:
        requests: in order: bytes that are wanted, or -n to give back the n-th request, counted
            from 1.
        capacity: bytes that the device has for them.
        expandable: with expandable segments.
    """
    try:
        CachingAllocator(capacity, expandable=expandable).serve(requests)
    except NoMemoryError:
        return False
    return True


def reserved_bytes(requests: Iterable[int], *, expandable: bool = False) -> int:
    """What it reserves for them where there is room for all.

    Args:
        requests, expandable: as in `fits`.
    """
    allocator = CachingAllocator(sys.maxsize, expandable=expandable)
    allocator.serve(requests)
    return allocator.reserved_bytes


def rounded(num_bytes: int) -> int:
    """The bytes of a block for a request of `num_bytes`."""
    return -(-num_bytes // BLOCK_BYTES) * BLOCK_BYTES


class _Block:
    """A part of a segment; its neighbours are what lies before and behind it there."""

    __slots__ = ("after", "before", "free", "place", "size", "small")

    def __init__(self, place: int, size: int, *, small: bool) -> None:
        self.place, self.size, self.small = place, size, small
        self.free = True
        self.before: _Block | None = None
        self.after: _Block | None = None


class CachingAllocator:
    """Serves requests as torch's does.

    Args:
        capacity: bytes that the device has.
        expandable: with expandable segments.

    Attributes:
        reserved_bytes: of all segments.
    """

    def __init__(self, capacity: int, *, expandable: bool = False) -> None:
        self.reserved_bytes = 0
        self._capacity = capacity
        self._expandable = expandable
        self._last: dict[bool, _Block | None] = {True: None, False: None}
        self._taken: dict[int, _Block] = {}
        self._free: dict[bool, list[tuple[int, int, _Block]]] = {True: [], False: []}
        self._end = 0

    def serve(self, requests: Iterable[int]) -> None:
        """Serves requests in order; see `fits`.

        Raises:
            NoMemoryError: one does not fit.
        """
        number = 0
        for request in requests:
            if request > 0:
                number += 1
                self.allocate(number, rounded(request))
            else:
                self.free(-request)

    def allocate(self, key: int, size: int) -> None:
        """Serves a request of `size` bytes, a multiple of 512; `key` names it for `free`.

        Raises:
            NoMemoryError: it does not fit.
        """
        small = size <= SMALL_BYTES
        more = self._grown if self._expandable else self._new_segment
        block = self._best_fit(size, small=small) or more(size, small=small)
        rest = block.size - size
        if rest >= BLOCK_BYTES if small or self._expandable else rest > SMALL_BYTES:
            self._split(block, size)
        block.free = False
        self._taken[key] = block

    def free(self, key: int) -> None:
        """Takes the block of a request back."""
        block = self._taken.pop(key)
        block.free = True
        for neighbour in (block.before, block.after):
            if neighbour is not None and neighbour.free:
                self._forget(neighbour)
                block = self._merged(block, neighbour)
        self._keep(block)

    # inside ----------------------------------------------------------------------------------

    def _best_fit(self, size: int, *, small: bool) -> _Block | None:
        pool = self._free[small]
        at = bisect_left(pool, size, key=lambda entry: entry[0])
        return pool.pop(at)[2] if at < len(pool) else None

    def _new_segment(self, size: int, *, small: bool) -> _Block:
        if small:
            segment = SMALL_SEGMENT_BYTES
        elif size < MIN_LARGE_BYTES:
            segment = LARGE_SEGMENT_BYTES
        else:
            segment = -(-size // LARGE_ROUND_BYTES) * LARGE_ROUND_BYTES
        self._reserve(segment)
        block = _Block(self._end, segment, small=small)
        self._end += segment
        return block

    def _grown(self, size: int, *, small: bool) -> _Block:
        """The end of the pool's segment, larger by whole pages."""
        page = SMALL_SEGMENT_BYTES if small else LARGE_SEGMENT_BYTES
        last = self._last[small]
        free = last.size if last is not None and last.free else 0
        num_bytes = -(-(size - free) // page) * page
        self._reserve(num_bytes)
        if last is not None and last.free:
            self._forget(last)
            last.size += num_bytes
            return last
        block = _Block(0 if last is None else last.place + last.size, num_bytes, small=small)
        block.before = last
        if last is not None:
            last.after = block
        self._last[small] = block
        return block

    def _reserve(self, num_bytes: int) -> None:
        if self.reserved_bytes + num_bytes > self._capacity and not self._expandable:
            self._release()
        if self.reserved_bytes + num_bytes > self._capacity:
            raise NoMemoryError
        self.reserved_bytes += num_bytes

    def _release(self) -> None:
        """Gives segments back of which nothing is in use, as torch does before it fails."""
        for small, pool in self._free.items():
            whole = [entry for entry in pool if entry[2].before is None is entry[2].after]
            self.reserved_bytes -= sum(size for size, _, _ in whole)
            self._free[small] = [entry for entry in pool if entry not in whole]

    def _split(self, block: _Block, size: int) -> None:
        rest = _Block(block.place + size, block.size - size, small=block.small)
        rest.before, rest.after = block, block.after
        if rest.after is not None:
            rest.after.before = rest
        block.after, block.size = rest, size
        if self._last[block.small] is block:
            self._last[block.small] = rest
        self._keep(rest)

    def _merged(self, one: _Block, other: _Block) -> _Block:
        first, second = (one, other) if one.place < other.place else (other, one)
        if self._last[first.small] is second:
            self._last[first.small] = first
        first.size += second.size
        first.after = second.after
        if first.after is not None:
            first.after.before = first
        return first

    def _keep(self, block: _Block) -> None:
        insort(self._free[block.small], (block.size, block.place, block), key=lambda e: e[:2])

    def _forget(self, block: _Block) -> None:
        pool = self._free[block.small]
        del pool[bisect_left(pool, (block.size, block.place), key=lambda e: e[:2])]
