"""The machine: host and device advance on one virtual clock; nothing sleeps, nothing is random."""

from collections import deque

from .allocator import Allocator
from .supply import Supply

MS = 1_000_000


class Clock:
    """Time of the host, in nanoseconds; it passes only where somebody lets it pass."""

    def __init__(self, now_ns=1):
        self.now_ns = now_ns
        self._due = {}

    def __call__(self):
        return self.now_ns

    def every(self, period_s, act):
        """A thread beside the script, for example, acts now and each period from now."""
        self._due[act] = (self.now_ns, round(1e9 * period_s))
        self.reach(self.now_ns)

    def forget(self, act):
        self._due.pop(act, None)

    def pass_ms(self, ms):
        """The host computes or sleeps."""
        self.reach(self.now_ns + round(ms * MS))

    def reach(self, then_ns):
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

    def __init__(self, gpu):
        self.gpu = gpu
        self.tail_ns = 0

    def wait_event(self, event):
        if event.time_ns is not None:
            self.tail_ns = max(self.tail_ns, event.time_ns)

    def wait_stream(self, other):
        self.tail_ns = max(self.tail_ns, other.tail_ns)

    def synchronize(self):
        self.gpu.clock.reach(self.tail_ns)


class Event:
    """A point in a stream that the device passes in its own time."""

    def __init__(self, gpu, enable_timing=False):
        self.gpu = gpu
        self.time_ns = None
        self._timing = enable_timing

    def record(self, stream=None):
        """The point is after all that is queued in the stream; it takes a place in the queue."""
        stream = stream or self.gpu.current_stream
        self.gpu.num_events += 1
        self.time_ns = self.gpu.launch(0.0, stream=stream)

    def query(self):
        return self.time_ns is None or self.gpu.clock.now_ns >= self.time_ns

    def synchronize(self):
        if self.time_ns is not None:
            self.gpu.clock.reach(self.time_ns)

    def elapsed_time(self, end):
        """Milliseconds from this event to `end`; refused as torch refuses them."""
        if not (self._timing and end._timing):
            raise RuntimeError("Both events must be created with argument 'enable_timing=True'.")
        if self.time_ns is None or end.time_ns is None:
            raise RuntimeError("Both events must be recorded before calculating elapsed time.")
        if not (self.query() and end.query()):
            raise RuntimeError("Both events must be completed before calculating elapsed time.")
        return (end.time_ns - self.time_ns) / MS


class Graph:
    """Kernels that were captured once and are launched together: one place in the queue."""

    def __init__(self, durations_ms):
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
        self, clock=None, *, depth=1024, launch_us=0.0, capacity_bytes=16 * 2**30, supply=None
    ):
        super().__init__(capacity_bytes)
        self.clock = clock or Clock()
        self.depth, self.launch_us = depth, launch_us
        self.supply = supply or Supply()
        self.tape = None
        self.default_stream = Stream(self)
        self.current_stream = self.default_stream
        self.streams = [self.default_stream]
        self.capturing = False
        self.busy_ns = self.num_waits = self.num_events = self.num_launches = 0
        self.has_neighbour = False
        self._engine_ns = self._copies_ns = 0
        self._queue = deque()

    def stream(self):
        """Another stream; kernels of all streams share one engine."""
        self.streams.append(Stream(self))
        return self.streams[-1]

    def event(self, enable_timing=False):
        return Event(self, enable_timing)

    def launch(self, duration_ms, *, stream=None, watts=None):
        """Queues a kernel and goes on, waiting only for a place in the queue; when it will be done.

        Args:
            watts: that the device takes meanwhile; what its supply says by default.
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

    def copy(self, duration_ms, num_bytes=0, *, wait=False):
        """Queues a copy to the device, which an engine of its own makes; when it will be done.

        Args:
            wait: for its end, as copies from pageable memory do.
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

    def replay(self, graph):
        """Queues all kernels of a graph with one launch."""
        return self.launch(graph.duration_ms)

    def item(self):
        """The host reads a number: it waits for all that is queued in the current stream."""
        self._wait([self.current_stream])

    def synchronize(self):
        """The host waits for all streams."""
        self._wait(self.streams)

    def _wait(self, streams):
        self.num_waits += 1
        began_ns = self.clock.now_ns
        for stream in streams:
            stream.synchronize()
        if self.tape is not None:
            self.tape.wait(began_ns, self.clock.now_ns)

    def _place(self):
        """Costs the host a launch, and the wait for a place; returns when the call began."""
        clock, queue = self.clock, self._queue
        began_ns = clock.now_ns
        clock.reach(began_ns + round(self.launch_us * 1000))
        while queue and queue[0] <= clock.now_ns:
            queue.popleft()
        if len(queue) >= self.depth:
            clock.reach(queue.popleft())
        return began_ns

    def new_process(self):
        """The process ends and another one begins: nothing is queued, nothing is held."""
        for stream in self.streams:
            stream.tail_ns = 0
        self._queue.clear()
        self._engine_ns = self._copies_ns = 0
        self.forget()
