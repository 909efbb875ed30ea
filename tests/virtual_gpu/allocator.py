"""The memory of the machine: torch's caching allocator with a capacity and pools of graphs."""

import torch

MIB = 2**20
BLOCK_BYTES, SEGMENT_BYTES = 512, 2 * MIB
"""As torch's caching allocator rounds: requests to blocks, what it reserves to segments."""


class Allocator:
    """What one process holds of a device.

    Attributes:
        other_bytes: what other processes and this one's context hold.
        pool_bytes: of the private pools of captured graphs, which no emptied cache gives back.
        limit_bytes: what torch was told that this process may reserve.
    """

    def __init__(self, capacity_bytes):
        self.capacity_bytes = capacity_bytes
        self.other_bytes = 0
        self.pool_bytes = {}
        self._blocks = {}
        self._next_block = 0
        self.forget()

    def forget(self):
        """The process is over: nothing is held."""
        self._blocks.clear()
        self.pool_bytes.clear()
        self.limit_bytes = None
        self.allocated_bytes = self.reserved_bytes = self.num_retries = self.num_ooms = 0
        self.reset_peaks()

    @property
    def free_bytes(self):
        """What nobody holds."""
        return max(0, self.capacity_bytes - self.other_bytes - self.reserved_bytes)

    def allocate(self, num_bytes):
        """A block of the caching allocator, by its number; freed blocks stay reserved."""
        size = -(-num_bytes // BLOCK_BYTES) * BLOCK_BYTES
        self._reserve(self.allocated_bytes + size - self._shared_bytes, size)
        self.allocated_bytes += size
        self.peak_allocated_bytes = max(self.peak_allocated_bytes, self.allocated_bytes)
        self._next_block += 1
        self._blocks[self._next_block] = size
        return self._next_block

    def capture(self, key, num_bytes):
        """A graph is captured: its pool stays reserved for as long as the process lives."""
        if key not in self.pool_bytes:
            self._reserve(num_bytes, num_bytes)
            self.pool_bytes[key] = -(-num_bytes // SEGMENT_BYTES) * SEGMENT_BYTES

    @property
    def _shared_bytes(self):
        """What is reserved outside the pools of graphs."""
        return self.reserved_bytes - sum(self.pool_bytes.values())

    def _reserve(self, missing, wanted):
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

    def _refusal(self, wanted):
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

    def segments(self):
        """As `torch.cuda.memory_snapshot()`: who owns what is reserved."""
        pools = [{"segment_pool_id": (0, 0), "total_size": self._shared_bytes}]
        pools += [
            {"segment_pool_id": (0, number), "total_size": size}
            for number, size in enumerate(self.pool_bytes.values(), start=1)
        ]
        return [{"device": 0, **pool} for pool in pools]

    def free(self, block):
        self.allocated_bytes -= self._blocks.pop(block)

    def empty_cache(self):
        """What is reserved and not allocated goes back to the device, pools of graphs apart."""
        self.reserved_bytes = -(-self.allocated_bytes // SEGMENT_BYTES) * SEGMENT_BYTES
        self.reserved_bytes += sum(self.pool_bytes.values())

    def reset_peaks(self):
        self.peak_allocated_bytes = self.allocated_bytes
        self.peak_reserved_bytes = self.reserved_bytes


def _size(num_bytes):
    """As torch formats sizes."""
    if num_bytes >= 2**30:
        return f"{num_bytes / 2**30:.2f} GiB"
    return f"{num_bytes / MIB:.2f} MiB"
