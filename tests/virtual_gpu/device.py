"""The machine: host and device advance on one virtual clock; nothing sleeps, nothing is random."""

from __future__ import annotations

from collections import deque

import torch

MS = 1_000_000
MIB = 2**20
BLOCK_BYTES, SEGMENT_BYTES = 512, 2 * MIB
"""As torch's caching allocator rounds: requests to blocks, what it reserves to segments."""


class Clock:
    """Time of the host, in nanoseconds; it passes only where somebody lets it pass."""

    def __init__(self, now_ns: int = 1) -> None:
        self.now_ns = now_ns

    def __call__(self) -> int:
        return self.now_ns

    def pass_ms(self, ms: float) -> None:
        """The host computes or sleeps."""
        self.now_ns += round(ms * MS)

    def reach(self, then_ns: int) -> None:
        """The host waits until then."""
        self.now_ns = max(self.now_ns, then_ns)


class Stream:
    """Work in order; `tail_ns` is when the last of it will be done."""

    def __init__(self, gpu: VirtualGpu) -> None:
        self.gpu = gpu
        self.tail_ns = 0

    def wait_event(self, event: Event) -> None:
        """What follows in this stream starts after the event's work."""
        if event.time_ns is not None:
            self.tail_ns = max(self.tail_ns, event.time_ns)

    def wait_stream(self, other: Stream) -> None:
        """What follows in this stream starts after all that is queued in the other one."""
        self.tail_ns = max(self.tail_ns, other.tail_ns)

    def synchronize(self) -> None:
        """The host waits for this stream."""
        self.gpu.clock.reach(self.tail_ns)


class Event:
    """A point in a stream that the device passes in its own time."""

    def __init__(self, gpu: VirtualGpu, enable_timing: bool = False) -> None:
        self.gpu = gpu
        self.time_ns: int | None = None
        self._timing = enable_timing

    def record(self, stream: Stream | None = None) -> None:
        """The point is after all that is queued in the stream; it takes a place in the queue."""
        stream = stream or self.gpu.current_stream
        self.gpu.num_events += 1
        self.time_ns = self.gpu.launch(0.0, stream=stream)

    def query(self) -> bool:
        """Whether the device has passed it; nobody waits."""
        return self.time_ns is None or self.gpu.clock.now_ns >= self.time_ns

    def synchronize(self) -> None:
        """The host waits until the device has passed it."""
        if self.time_ns is not None:
            self.gpu.clock.reach(self.time_ns)

    def elapsed_time(self, end: Event) -> float:
        """Milliseconds from this event to `end`, as torch gives them.

        Raises:
            RuntimeError: an event was made without timing, not recorded, or not passed.
        """
        if not (self._timing and end._timing):
            raise RuntimeError("Both events must be created with argument 'enable_timing=True'.")
        if self.time_ns is None or end.time_ns is None:
            raise RuntimeError("Both events must be recorded before calculating elapsed time.")
        if not (self.query() and end.query()):
            raise RuntimeError("Both events must be completed before calculating elapsed time.")
        return (end.time_ns - self.time_ns) / MS


class Graph:
    """Kernels that were captured once and are launched together: one place in the queue."""

    def __init__(self, durations_ms: list[float]) -> None:
        self.duration_ms = sum(durations_ms)


class VirtualGpu:
    """One device.

    Args:
        clock: of the host.
        depth: launches that may wait; the host is held where the queue is full.
        launch_us: what a launch costs the host.
        capacity_bytes: of its memory.

    Attributes:
        busy_ns: time in which it computed.
        num_waits: how often the host waited for it on purpose.
        capturing: whether a graph is being captured; events are refused then.
    """

    def __init__(
        self,
        clock: Clock | None = None,
        *,
        depth: int = 1024,
        launch_us: float = 0.0,
        capacity_bytes: int = 16 * 2**30,
    ) -> None:
        self.clock = clock or Clock()
        self.depth, self.launch_us = depth, launch_us
        self.capacity_bytes = capacity_bytes
        self.default_stream = Stream(self)
        self.current_stream = self.default_stream
        self.streams = [self.default_stream]
        self.capturing = False
        self.busy_ns = self.num_waits = self.num_events = self.num_launches = 0
        self.allocated_bytes = self.reserved_bytes = self.other_bytes = 0
        self.peak_allocated_bytes = self.peak_reserved_bytes = 0
        self.num_retries = 0
        self._engine_ns = 0
        self._queue: deque[int] = deque()
        self._blocks: dict[int, int] = {}
        self._next_block = 0

    # work --------------------------------------------------------------------------------------

    def stream(self) -> Stream:
        """Another stream; kernels of all streams share one engine."""
        self.streams.append(Stream(self))
        return self.streams[-1]

    def event(self, enable_timing: bool = False) -> Event:
        """As `torch.cuda.Event(enable_timing=...)`."""
        return Event(self, enable_timing)

    def launch(self, duration_ms: float, *, stream: Stream | None = None) -> int:
        """Queues a kernel and goes on; waits only for a place in the queue.

        Returns:
            When it will be done.
        """
        stream = stream or self.current_stream
        clock, queue = self.clock, self._queue
        clock.now_ns += round(self.launch_us * 1000)
        while queue and queue[0] <= clock.now_ns:
            queue.popleft()
        if len(queue) >= self.depth:
            clock.reach(queue.popleft())
        start = max(clock.now_ns, stream.tail_ns)
        if duration_ms:
            start = max(start, self._engine_ns)
            self.num_launches += 1
        end = start + round(duration_ms * MS)
        self.busy_ns += end - start
        stream.tail_ns = end
        self._engine_ns = max(self._engine_ns, end) if duration_ms else self._engine_ns
        queue.append(end)
        return end

    def replay(self, graph: Graph) -> int:
        """Queues all kernels of a graph with one launch."""
        return self.launch(graph.duration_ms)

    def item(self) -> None:
        """The host reads a number: it waits for all that is queued in the current stream."""
        self.num_waits += 1
        self.current_stream.synchronize()

    def synchronize(self) -> None:
        """The host waits for all streams."""
        self.num_waits += 1
        for one in self.streams:
            one.synchronize()

    # memory ------------------------------------------------------------------------------------

    def allocate(self, num_bytes: int) -> int:
        """A block of the caching allocator; freed blocks stay reserved.

        Returns:
            Its number, for `free`.

        Raises:
            torch.OutOfMemoryError: even without what is cached there is no room.
        """
        size = -(-num_bytes // BLOCK_BYTES) * BLOCK_BYTES
        missing = self.allocated_bytes + size - self.reserved_bytes
        if missing > 0:
            segment = -(-missing // SEGMENT_BYTES) * SEGMENT_BYTES
            if self.reserved_bytes + segment + self.other_bytes > self.capacity_bytes:
                self.num_retries += 1
                free = self.capacity_bytes - self.other_bytes - self.reserved_bytes
                raise torch.OutOfMemoryError(
                    f"CUDA out of memory. Tried to allocate {size / MIB:.2f} MiB. GPU 0 has a "
                    f"total capacity of {self.capacity_bytes / 2**30:.2f} GiB of which "
                    f"{max(0, free) / MIB:.2f} MiB is free."
                )
            self.reserved_bytes += segment
        self.allocated_bytes += size
        self.peak_allocated_bytes = max(self.peak_allocated_bytes, self.allocated_bytes)
        self.peak_reserved_bytes = max(self.peak_reserved_bytes, self.reserved_bytes)
        self._next_block += 1
        self._blocks[self._next_block] = size
        return self._next_block

    def free(self, block: int) -> None:
        """Gives a block back to the allocator's cache."""
        self.allocated_bytes -= self._blocks.pop(block)

    def empty_cache(self) -> None:
        """What is reserved and not allocated goes back to the device."""
        self.reserved_bytes = -(-self.allocated_bytes // SEGMENT_BYTES) * SEGMENT_BYTES

    def reset_peaks(self) -> None:
        """Peaks begin anew."""
        self.peak_allocated_bytes = self.allocated_bytes
        self.peak_reserved_bytes = self.reserved_bytes
