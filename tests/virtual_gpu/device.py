"""The machine: host and device advance on one virtual clock; nothing sleeps, nothing is random."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from .allocator import Allocator
from .supply import Supply
from .tape import Tape

MS = 1_000_000


class Clock:
    """Time of the host, in nanoseconds; it passes only where somebody lets it pass."""

    def __init__(self, now_ns: int = 1) -> None:
        self.now_ns = now_ns
        self._due: dict[Callable[[], object], tuple[int, int]] = {}

    def __call__(self) -> int:
        return self.now_ns

    def every(self, period_s: float, act: Callable[[], object]) -> None:
        """Somebody beside the script, a thread for example, acts now and each period from now."""
        self._due[act] = (self.now_ns, round(1e9 * period_s))
        self.reach(self.now_ns)

    def forget(self, act: Callable[[], object]) -> None:
        """It acts no more."""
        self._due.pop(act, None)

    def pass_ms(self, ms: float) -> None:
        """The host computes or sleeps."""
        self.reach(self.now_ns + round(ms * MS))

    def reach(self, then_ns: int) -> None:
        """The host waits until then."""
        while self._due:
            act, (due_ns, period_ns) = min(self._due.items(), key=lambda item: item[1][0])
            if due_ns > max(then_ns, self.now_ns):
                break
            self.now_ns = max(self.now_ns, due_ns)
            self._due[act] = (due_ns + period_ns, period_ns)
            act()
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


class VirtualGpu(Allocator):
    """One device.

    Args:
        clock: of the host.
        depth: launches that may wait; the host is held where the queue is full.
        launch_us: what a launch costs the host.
        capacity_bytes: of its memory.
        supply: of power, with what slows the device down; a steady one by default.

    Attributes:
        tape: takes down what the host and the device do, for a trace; `None` takes nothing.
        busy_ns: time in which it computed.
        num_waits: how often the host waited for it on purpose.
        has_neighbour: another process is on the device.
        capturing: whether a graph is being captured; events are refused then.
    """

    def __init__(
        self,
        clock: Clock | None = None,
        *,
        depth: int = 1024,
        launch_us: float = 0.0,
        capacity_bytes: int = 16 * 2**30,
        supply: Supply | None = None,
    ) -> None:
        super().__init__(capacity_bytes)
        self.clock = clock or Clock()
        self.depth, self.launch_us = depth, launch_us
        self.supply = supply or Supply()
        self.tape: Tape | None = None
        self.default_stream = Stream(self)
        self.current_stream = self.default_stream
        self.streams = [self.default_stream]
        self.capturing = False
        self.busy_ns = self.num_waits = self.num_events = self.num_launches = 0
        self.has_neighbour = False
        self._engine_ns = self._copies_ns = 0
        self._queue: deque[int] = deque()

    # work --------------------------------------------------------------------------------------

    def stream(self) -> Stream:
        """Another stream; kernels of all streams share one engine."""
        self.streams.append(Stream(self))
        return self.streams[-1]

    def event(self, enable_timing: bool = False) -> Event:
        """As `torch.cuda.Event(enable_timing=...)`."""
        return Event(self, enable_timing)

    def launch(
        self, duration_ms: float, *, stream: Stream | None = None, watts: float | None = None
    ) -> int:
        """Queues a kernel and goes on; waits only for a place in the queue.

        Args:
            watts: that the device takes meanwhile; what its supply says by default.

        Returns:
            When it will be done.
        """
        stream = stream or self.current_stream
        began_ns = self._place()
        start = max(self.clock.now_ns, stream.tail_ns)
        if duration_ms:
            start = max(start, self._engine_ns)
            self.num_launches += 1
        phase = self.supply.phase(start)
        end = start + round(duration_ms * MS * phase.slower)
        self.busy_ns += end - start
        stream.tail_ns = end
        self._queue.append(end)
        if duration_ms:
            self._engine_ns = end
            self.supply.add(start, end, phase, watts)
            if self.tape is not None:
                self.tape.kernel(began_ns, self.clock.now_ns, start, end)
        return end

    def copy(self, duration_ms: float, num_bytes: int = 0, *, wait: bool = False) -> int:
        """Queues a copy to the device, which an engine of its own makes.

        Args:
            wait: for its end, as copies from pageable memory do.

        Returns:
            When it will be done.
        """
        stream = self.current_stream
        began_ns = self._place()
        start = max(self.clock.now_ns, stream.tail_ns, self._copies_ns)
        end = self._copies_ns = stream.tail_ns = start + round(duration_ms * MS)
        self._queue.append(end)
        if wait:
            self.clock.reach(end)
        if self.tape is not None:
            self.tape.copy(began_ns, self.clock.now_ns, start, end, num_bytes)
        return end

    def replay(self, graph: Graph) -> int:
        """Queues all kernels of a graph with one launch."""
        return self.launch(graph.duration_ms)

    def item(self) -> None:
        """The host reads a number: it waits for all that is queued in the current stream."""
        self.num_waits += 1
        began_ns = self.clock.now_ns
        self.current_stream.synchronize()
        if self.tape is not None:
            self.tape.wait(began_ns, self.clock.now_ns)

    def synchronize(self) -> None:
        """The host waits for all streams."""
        self.num_waits += 1
        began_ns = self.clock.now_ns
        for stream in self.streams:
            stream.synchronize()
        if self.tape is not None:
            self.tape.wait(began_ns, self.clock.now_ns)

    def _place(self) -> int:
        """Costs the host a launch, and the wait for a place; returns when the call began."""
        clock, queue = self.clock, self._queue
        began_ns = clock.now_ns
        clock.reach(began_ns + round(self.launch_us * 1000))
        while queue and queue[0] <= clock.now_ns:
            queue.popleft()
        if len(queue) >= self.depth:
            clock.reach(queue.popleft())
        return began_ns

    def new_process(self) -> None:
        """The process ends and another one begins: nothing is queued, nothing is held."""
        for stream in self.streams:
            stream.tail_ns = 0
        self._queue.clear()
        self._engine_ns = self._copies_ns = 0
        self.forget()
