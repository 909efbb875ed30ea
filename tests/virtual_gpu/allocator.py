"""The memory of the machine: torch's caching allocator with a capacity and pools of graphs."""

from __future__ import annotations

import torch

MIB = 2**20
BLOCK_BYTES, SEGMENT_BYTES = 512, 2 * MIB
"""As torch's caching allocator rounds: requests to blocks, what it reserves to segments."""


class Allocator:
    """What one process holds of a device.

    Args:
        capacity_bytes: of the device.

    Attributes:
        other_bytes: what other processes and this one's context hold.
        pool_bytes: of the private pools of captured graphs, which no emptied cache gives back.
        limit_bytes: what torch was told that this process may reserve.
    """

    def __init__(self, capacity_bytes: int) -> None:
        self.capacity_bytes = capacity_bytes
        self.other_bytes = 0
        self.pool_bytes: dict[object, int] = {}
        self._blocks: dict[int, int] = {}
        self._next_block = 0
        self.forget()

    def forget(self) -> None:
        """The process is over: nothing is held."""
        self._blocks.clear()
        self.pool_bytes.clear()
        self.limit_bytes: int | None = None
        self.allocated_bytes = self.reserved_bytes = self.num_retries = self.num_ooms = 0
        self.reset_peaks()

    @property
    def free_bytes(self) -> int:
        """What nobody holds."""
        return max(0, self.capacity_bytes - self.other_bytes - self.reserved_bytes)

    def allocate(self, num_bytes: int) -> int:
        """A block of the caching allocator; freed blocks stay reserved.

        Returns:
            Its number, for `free`.

        Raises:
            torch.OutOfMemoryError: even without what is cached there is no room.
        """
        size = -(-num_bytes // BLOCK_BYTES) * BLOCK_BYTES
        self._reserve(self.allocated_bytes + size - self._shared_bytes, size)
        self.allocated_bytes += size
        self.peak_allocated_bytes = max(self.peak_allocated_bytes, self.allocated_bytes)
        self._next_block += 1
        self._blocks[self._next_block] = size
        return self._next_block

    def capture(self, key: object, num_bytes: int) -> None:
        """A graph is captured: its pool stays reserved for as long as the process lives.

        Raises:
            torch.OutOfMemoryError: even without what is cached there is no room.
        """
        if key not in self.pool_bytes:
            self._reserve(num_bytes, num_bytes)
            self.pool_bytes[key] = -(-num_bytes // SEGMENT_BYTES) * SEGMENT_BYTES

    @property
    def _shared_bytes(self) -> int:
        """What is reserved outside the pools of graphs."""
        return self.reserved_bytes - sum(self.pool_bytes.values())

    def _reserve(self, missing: int, wanted: int) -> None:
        if missing <= 0:
            return
        segment = -(-missing // SEGMENT_BYTES) * SEGMENT_BYTES
        limit_bytes = self.capacity_bytes if self.limit_bytes is None else self.limit_bytes
        if segment > min(self.free_bytes, limit_bytes - self.reserved_bytes):
            self.num_retries += 1
            self.num_ooms += 1
            raise torch.OutOfMemoryError(self._refusal(wanted))
        self.reserved_bytes += segment
        self.peak_reserved_bytes = max(self.peak_reserved_bytes, self.reserved_bytes)

    def _refusal(self, wanted: int) -> str:
        """The words of c10/cuda/CUDACachingAllocator.cpp."""
        pools = sum(self.pool_bytes.values())
        allowed = "" if self.limit_bytes is None else f" {_size(self.limit_bytes)} allowed;"
        private = f", with {_size(pools)} allocated in private pools (e.g., CUDA Graphs)"
        return (
            f"CUDA out of memory. Tried to allocate {_size(wanted)}. GPU 0 has a total capacity of "
            f"{_size(self.capacity_bytes)} of which {_size(self.free_bytes)} is free. Including "
            f"non-PyTorch memory, this process has {_size(self.reserved_bytes)} memory in use."
            f"{allowed} Of the allocated memory {_size(self.allocated_bytes + pools)} is allocated "
            f"by PyTorch{private if pools else ''}, and "
            f"{_size(self._shared_bytes - self.allocated_bytes)} is reserved by PyTorch but "
            "unallocated. If reserved but unallocated memory is large try setting "
            "PYTORCH_ALLOC_CONF=expandable_segments:True to avoid fragmentation."
        )

    def segments(self) -> list[dict[str, object]]:
        """As `torch.cuda.memory_snapshot()`: who owns what is reserved."""
        pools = [{"segment_pool_id": (0, 0), "total_size": self._shared_bytes}]
        pools += [
            {"segment_pool_id": (0, number), "total_size": size}
            for number, size in enumerate(self.pool_bytes.values(), start=1)
        ]
        return [{"device": 0, **pool} for pool in pools]

    def free(self, block: int) -> None:
        """Gives a block back to the allocator's cache."""
        self.allocated_bytes -= self._blocks.pop(block)

    def empty_cache(self) -> None:
        """What is reserved and not allocated goes back to the device, pools of graphs apart."""
        self.reserved_bytes = -(-self.allocated_bytes // SEGMENT_BYTES) * SEGMENT_BYTES
        self.reserved_bytes += sum(self.pool_bytes.values())

    def reset_peaks(self) -> None:
        """Peaks begin anew."""
        self.peak_allocated_bytes = self.allocated_bytes
        self.peak_reserved_bytes = self.reserved_bytes


def _size(num_bytes: int) -> str:
    """As torch formats sizes."""
    if num_bytes >= 2**30:
        return f"{num_bytes / 2**30:.2f} GiB"
    return f"{num_bytes / MIB:.2f} MiB"
