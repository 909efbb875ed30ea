"""How torch's allocator of CUDA memory serves the requests of a step.

The rules are those of c10/cuda/CUDACachingAllocator.cpp, on one stream: small and large requests
from pools of their own, the best fit first, blocks split and merged inside their segments, and
whole segments given back only when memory is short. Segments that grow: `expandable_segments.py`.
`tests/advisor/test_recorded_snapshots.py` compares each address with those of torch's allocator.
"""

from __future__ import annotations

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
"""Size of the segment that serves a large request below 10 MiB (kLargeBuffer, kMinLargeAlloc)."""
MIN_LARGE_BYTES: Final = 10 * MIB
LARGE_ROUND_BYTES: Final = 2 * MIB
"""Larger requests get a segment of their own, rounded up to this (kRoundLarge)."""
LEAST_CONTEXT_BYTES = 300 << 20
MOST_CONTEXT_BYTES = 650 << 20
"""Bytes of CUDA's context, its libraries and workspaces, beside torch's allocator: from, to."""


class NoMemoryError(Exception):
    """A request that does not fit, after all that can be given back was given back."""


def rounded(num_bytes: int) -> int:
    """The bytes of a block for a request of `num_bytes`."""
    return -(-num_bytes // BLOCK_BYTES) * BLOCK_BYTES


class Block:
    """A part of a segment; its neighbours are what lies before and behind it there.

    Attributes:
        place: its first address.
        segment: the first address of its segment.
        mapped: memory stands behind it; only segments that grow have other blocks.
    """

    __slots__ = ("after", "before", "free", "mapped", "place", "segment", "size", "small")

    def __init__(self, place: int, size: int, *, small: bool) -> None:
        self.place, self.size, self.small = place, size, small
        self.segment = place
        self.mapped = True
        self.free = True
        self.before: Block | None = None
        self.after: Block | None = None

    def split(self, size: int) -> Block:
        """Keeps its first `size` bytes; the rest becomes the block behind it."""
        rest = Block(self.place + size, self.size - size, small=self.small)
        rest.segment, rest.mapped = self.segment, self.mapped
        rest.before, rest.after = self, self.after
        if rest.after is not None:
            rest.after.before = rest
        self.after, self.size = rest, size
        return rest

    def absorb_next(self) -> None:
        """Takes the block behind it in."""
        gone = self.after
        assert gone is not None
        self.size += gone.size
        self.after = gone.after
        if self.after is not None:
            self.after.before = self


class CachingAllocator:
    """Serves requests as torch's does.

    Args:
        capacity: bytes that the device has.

    Attributes:
        reserved_bytes: of all segments.
        max_split_bytes: `max_split_size_mb`: blocks of that size and more serve no smaller request
            and are not split for another; `None` where it is not set.
    """

    least_rest: tuple[int, int] = (SMALL_BYTES + 1, BLOCK_BYTES)
    """Bytes of a block, beyond the request, from which on they become a block of their own: in the
    large and in the small pool."""

    splits_all: bool = False
    """Whether blocks are split for requests above `max_split_bytes` too."""

    def __init__(self, capacity: int) -> None:
        self.reserved_bytes = 0
        self.max_split_bytes: int | None = None
        self._capacity = capacity
        self._taken: dict[int, Block] = {}
        self._free: tuple[list[tuple[int, int, Block]], ...] = ([], [])
        """Size, place and block, in this order, of the large and of the small pool."""
        self._end = 0

    def serve(self, requests: Iterable[int]) -> None:
        """Serves requests in order.

        Args:
            requests: bytes that are wanted, -n to give back the n-th request, counted from 1, or 0
                to empty the cache.

        Raises:
            NoMemoryError: one does not fit.
        """
        number = 0
        for request in requests:
            if request > 0:
                number += 1
                self.allocate(number, rounded(request))
            elif request:
                self.free(-request)
            else:
                self._release()

    def allocate(self, key: int, size: int) -> None:
        """Serves a request of `size` bytes, a multiple of 512; `key` names it for `free`.

        Raises:
            NoMemoryError: it does not fit.
        """
        small = size <= SMALL_BYTES
        block = self._best_fit(size, small=small) or self._more(size, small=small)
        if block.size - size >= self.least_rest[small] and self._splits(size, small=small):
            self._keep(block.split(size))
        block.free = False
        self._taken[key] = block

    def free(self, key: int) -> None:
        """Takes the block of a request back."""
        block = self._taken.pop(key)
        block.free = True
        self._keep(self._merged(block))

    def place(self, key: int) -> int:
        """The address that a request got."""
        return self._taken[key].place

    # inside ----------------------------------------------------------------------------------

    def _best_fit(self, size: int, *, small: bool) -> Block | None:
        pool = self._free[small]
        at = bisect_left(pool, size, key=lambda entry: entry[0])
        return pool.pop(at)[2] if at < len(pool) and self._serves(pool[at][2], size) else None

    def _serves(self, block: Block, size: int) -> bool:
        """Whether the limit on splits lets a request have the block."""
        limit = self.max_split_bytes
        if limit is None or block.small:
            return True
        return block.size < limit if size < limit else block.size < size + LARGE_SEGMENT_BYTES

    def _splits(self, size: int, *, small: bool) -> bool:
        limit = self.max_split_bytes
        return small or self.splits_all or limit is None or size < limit

    def _more(self, size: int, *, small: bool) -> Block:
        """A segment of its own for a request that no free block serves."""
        if small:
            segment = SMALL_SEGMENT_BYTES
        elif size < MIN_LARGE_BYTES:
            segment = LARGE_SEGMENT_BYTES
        else:
            segment = -(-size // LARGE_ROUND_BYTES) * LARGE_ROUND_BYTES
        if self.reserved_bytes + segment > self._capacity:
            self._release()
        self._reserve(segment)
        block = Block(self._end, segment, small=small)
        self._end += segment
        return block

    def _reserve(self, num_bytes: int) -> None:
        if self.reserved_bytes + num_bytes > self._capacity:
            raise NoMemoryError
        self.reserved_bytes += num_bytes

    def _release(self) -> None:
        """Gives segments back of which nothing is in use, as torch does before it fails."""
        for pool in self._free:
            whole = [entry for entry in pool if entry[2].before is None is entry[2].after]
            self.reserved_bytes -= sum(size for size, _, _ in whole)
            pool[:] = [entry for entry in pool if entry not in whole]

    def _merged(self, block: Block) -> Block:
        """It with the neighbours that are free like it, which leave the pool."""
        for neighbour in (block.before, block.after):
            if neighbour is None or not neighbour.free or neighbour.mapped is not block.mapped:
                continue
            self._forget(neighbour)
            if neighbour is block.before:
                block = neighbour
            block.absorb_next()
        return block

    def _keep(self, block: Block) -> None:
        insort(self._free[block.small], (block.size, block.place, block), key=lambda e: e[:2])

    def _forget(self, block: Block) -> None:
        pool = self._free[block.small]
        del pool[bisect_left(pool, (block.size, block.place), key=lambda e: e[:2])]
