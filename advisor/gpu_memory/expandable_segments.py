"""torch's allocator with `expandable_segments:True`: each pool has a segment that grows by pages.

A segment is a range of addresses without memory behind them. Pages of it are mapped when no free
block serves a request, the lowest first, and unmapped where they are free when memory is short.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from typing import Final

from .caching_allocator import (
    BLOCK_BYTES,
    LARGE_SEGMENT_BYTES,
    SMALL_SEGMENT_BYTES,
    Block,
    CachingAllocator,
    NoMemoryError,
)

PAGE_BYTES: Final = (LARGE_SEGMENT_BYTES, SMALL_SEGMENT_BYTES)
"""Page sizes of the pool of large blocks and of the pool of small ones."""


class ExpandableAllocator(CachingAllocator):
    """Serves requests as torch's does with segments that grow.

    Args:
        capacity: bytes that the device has.
    """

    least_rest = (BLOCK_BYTES, BLOCK_BYTES)
    splits_all = True

    def __init__(self, capacity: int) -> None:
        super().__init__(capacity)
        self._unmapped: tuple[list[tuple[int, Block]], ...] = ([], [])
        """Place and block, ascending, of the large and of the small pool."""

    def _best_fit(self, size: int, *, small: bool) -> Block | None:
        """Finds the best fit as without it, but a block counts with what it could grow to."""
        pool = self._free[small]
        at = bisect_left(pool, size, key=lambda entry: entry[0])
        if at == len(pool):
            return None
        while at + 1 < len(pool) and _reach(pool[at + 1][2]) < _reach(pool[at][2]):
            at += 1
        return pool.pop(at)[2] if self._serves(pool[at][2], size) else None

    def _more(self, size: int, *, small: bool) -> Block:
        """A free block of at least `size` bytes, for which pages were mapped."""
        try:
            return self._grown(size, small=small)
        except NoMemoryError:
            self._release()
            return self._grown(size, small=small)

    def _grown(self, size: int, *, small: bool) -> Block:
        block = self._growable(size, small=small)
        if not block.mapped:
            block = self._map(block, min(block.size, size))
        while block.size < size:
            following = block.after
            assert following is not None
            block = self._map(following, min(size - block.size, following.size))
        self._forget(block)
        return block

    def _growable(self, size: int, *, small: bool) -> Block:
        """The lowest free block, or one that is not mapped, that can become `size` bytes."""
        for _, block in self._unmapped[small]:
            before = block.before
            first = before if before is not None and before.free else block
            if _free_from(first, size) >= size:
                return first
        return self._new_segment(size, small=small)

    def _new_segment(self, size: int, *, small: bool) -> Block:
        """A range of addresses, an eighth larger than the device."""
        page = PAGE_BYTES[small]
        num_bytes = -(-max(self._capacity * 9 // 8, size) // page) * page
        block = Block(self._end, num_bytes, small=small)
        block.mapped = False
        self._end += num_bytes
        self._keep(block)
        return block

    def _map(self, block: Block, size: int) -> Block:
        """Maps the pages of its first `size` bytes; they join what is free beside them."""
        page = PAGE_BYTES[block.small]
        num_bytes = -(-size // page) * page
        self._reserve(num_bytes)
        self._forget(block)
        if num_bytes < block.size:
            self._keep(block.split(num_bytes))
        block.mapped = True
        block = self._merged(block)
        self._keep(block)
        return block

    def _release(self) -> None:
        """Unmaps the pages of which nothing is in use."""
        for pool in self._free:
            for _, _, block in list(pool):
                self._unmap(block)

    def _unmap(self, block: Block) -> None:
        page = PAGE_BYTES[block.small]
        at = block.place - block.segment
        part = -at % page
        num_bytes = (at + block.size) // page * page - at - part
        if num_bytes <= 0:
            return
        self._forget(block)
        if part:
            whole = block.split(part)
            self._keep(block)
            block = whole
        if num_bytes < block.size:
            self._keep(block.split(num_bytes))
        block.mapped = False
        self.reserved_bytes -= num_bytes
        block = self._merged(block)
        if block.before is not None or block.after is not None:  # else its segment is given up
            self._keep(block)

    def _keep(self, block: Block) -> None:
        if block.mapped:
            super()._keep(block)
        else:
            insort(self._unmapped[block.small], (block.place, block), key=lambda entry: entry[0])

    def _forget(self, block: Block) -> None:
        if block.mapped:
            super()._forget(block)
            return
        pool = self._unmapped[block.small]
        del pool[bisect_left(pool, block.place, key=lambda entry: entry[0])]


def _reach(block: Block) -> int:
    """Bytes of a block with what could be mapped behind it."""
    after = block.after
    return block.size + (after.size if after is not None and not after.mapped else 0)


def _free_from(block: Block, enough: int) -> int:
    """Bytes of a block and of the free ones behind it, mapped or not, until there are enough."""
    num_bytes = 0
    part: Block | None = block
    while part is not None and part.free and num_bytes < enough:
        num_bytes += part.size
        part = part.after
    return num_bytes
