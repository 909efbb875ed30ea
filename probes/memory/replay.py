"""The history event by event: how much was in use when, what was alive at the peak, what failed.

The history is a ring: what is older than its first event is known only by the end. So the state
before the first event is the end's, led back: blocks that nothing in the history allocated.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...records import MemoryPeak, MemoryTimeline, OutOfMemory
from .snapshot import Event, Segment
from .stacks import NO_STACK
from .state import Held, lines_of, shares_of

POINTS = 600
"""Groups of events in a timeline."""
BEFORE, AFTER = 120, 20
"""Events before and after a request that failed."""
ROUNDING = 512
"""Bytes: sizes of blocks are multiples (`kMinBlockSize` of torch's allocator)."""
SMALL = 1024**2
"""Bytes: up to here a request is served from small segments (`kSmallSize`)."""
SMALL_SEGMENT = 2 * 1024**2
_MORE = {"segment_alloc": 1, "segment_map": 1, "segment_free": -1, "segment_unmap": -1}
_QUIET = ("snapshot", "oom", "free_requested")
"""Events that leave the blocks as they are."""


class History:
    """The events of one device, with what was there before them.

    Args:
        segments: of the device, as they stand at the end.

    Attributes:
        before: what was in use before the first event: bytes and stack by address.
        mismatches: allocations of the history that the blocks do not confirm.
        frees: the action that ends the life of a block.
    """

    def __init__(self, events: Sequence[Event], segments: Sequence[Segment]) -> None:
        self.events = events
        self.segments = segments
        completed = any(event.action == "free_completed" for event in events)
        self.frees = "free_completed" if completed else "free_requested"
        self.before: dict[int, Held] = {}
        self.born: dict[int, int] = {}
        self.mismatches = 0
        for number, event in enumerate(events):
            if event.action == "alloc":
                self.mismatches += event.address in self.born
                self.born[event.address] = number
            elif event.action == self.frees and self.born.pop(event.address, None) is None:
                self.before.setdefault(event.address, (event.size, NO_STACK))
        at_end = {
            block.address: block for segment in segments for block in segment.blocks if block.active
        }
        for address, block in at_end.items():
            if address not in self.born:
                self.mismatches += address in self.before
                self.before.setdefault(address, (block.requested, block.stack))
        self.mismatches += sum(address not in at_end for address in self.born)
        reserved = sum(segment.size for segment in segments)
        self.reserved_before = reserved - sum(
            _MORE.get(event.action, 0) * event.size for event in events
        )
        self.active: list[int] = self._active()

    @property
    def doubt(self) -> str:
        """Words the contradiction between the blocks and the history."""
        return (
            f"the history does not lead to the state: {self.mismatches} of its allocations are not "
            "in the blocks, or not as the history has them"
        )

    def _active(self) -> list[int]:
        """Bytes in use after each event."""
        live = {address: size for address, (size, _) in self.before.items()}
        total, totals = sum(live.values()), []
        for event in self.events:
            if event.action == "alloc":
                total += event.size - live.get(event.address, 0)
                live[event.address] = event.size
            elif event.action == self.frees:
                total -= live.pop(event.address, 0)
            totals.append(total)
        return totals

    def alive(self, stop: int) -> dict[int, Held]:
        """Memory in use before event number `stop`: bytes and stack by address."""
        live = dict(self.before)
        for event in self.events[:stop]:
            if event.action == "alloc":
                live[event.address] = (event.size, event.stack)
            elif event.action == self.frees:
                live.pop(event.address, None)
        return live

    def peak(self) -> MemoryPeak:
        """The first moment with most in use."""
        start = sum(size for size, _ in self.before.values())
        most = max(self.active, default=start)
        stop = self.active.index(most) + 1 if most > start else 0
        live = self.alive(stop)
        held = list(live.values())
        kept = self.before.keys() & live.keys()
        return MemoryPeak(
            num_bytes=sum(size for size, _ in held),
            before_bytes=sum(live[key][0] for key in kept if live[key] is self.before[key]),
            position=max(stop - 1, 0),
            lines=lines_of(held),
            categories=shares_of(held),
        )

    def timeline(self, steps: Sequence[int]) -> MemoryTimeline:
        """The history in `POINTS` groups at most.

        Args:
            steps: how many events each step has behind it at its end.
        """
        group = -(-len(self.events) // POINTS)
        positions = [
            max(range(start, min(start + group, len(self.events))), key=self.active.__getitem__)
            for start in range(0, len(self.events), group)
        ]
        return self._at(positions, steps)

    def around_failure(self) -> MemoryTimeline | None:
        """The events around the last request that failed, one by one."""
        at = self._failed_at()
        if at is None:
            return None
        return self._at(range(max(0, at - BEFORE), min(len(self.events), at + AFTER + 1)), ())

    def _at(self, positions: Sequence[int], steps: Sequence[int]) -> MemoryTimeline:
        reserved, levels = self.reserved_before, []
        for event in self.events:
            reserved += _MORE.get(event.action, 0) * event.size
            levels.append(reserved)
        told = any(event.action in _MORE for event in self.events)
        return MemoryTimeline(
            positions=tuple(positions),
            active_bytes=tuple(self.active[at] for at in positions),
            reserved_bytes=tuple(levels[at] for at in positions) if told else (),
            steps=tuple(steps),
        )

    def _failed_at(self) -> int | None:
        """Place of the last request that failed; `None` without one."""
        failed = (at for at, event in enumerate(self.events) if event.action == "oom")
        return max(failed, default=None)

    def out_of_memory(self) -> OutOfMemory | None:
        """The last request that failed."""
        at = self._failed_at()
        if at is None:
            return None
        event = self.events[at]
        after = [later for later in self.events[at + 1 :] if later.action not in _QUIET]
        free = self._free_at(at, after)
        total = sum(free) if free is not None else None
        largest = max(free, default=0) if free is not None else None
        fragmentation = None
        if total is not None and largest is not None:
            fragmentation = largest < event.size <= total
        return OutOfMemory(
            requested_bytes=event.size,
            device_free_bytes=event.address if event.address >= 0 else None,
            free_bytes=total,
            largest_free_bytes=largest,
            exact=free is not None and not after,
            fragmentation=fragmentation,
            line=event.stack.line,
            function=event.stack.function,
            position=at,
            events_after=len(after),
        )

    def _free_at(self, at: int, after: Sequence[Event]) -> list[int] | None:
        """Sizes of the free stretches that could have served the failed request."""
        event = self.events[at]
        small = event.size <= SMALL
        if any(later.action in ("segment_map", "segment_unmap") for later in after):
            return None
        if self.mismatches:
            return None
        segments = {
            segment.address: segment.size
            for segment in self.segments
            if segment.stream == event.stream
            and segment.pool == (0, 0)
            and (segment.kind == "" or (segment.kind == "small") == small)
        }
        for later in reversed(after):
            if later.action == "segment_alloc":
                segments.pop(later.address, None)
            elif later.action == "segment_free" and later.stream == event.stream:
                kinds_match = (later.size == SMALL_SEGMENT) == small
                segments.update({later.address: later.size} if kinds_match else {})
        sizes = {
            block.address: block.size
            for segment in self.segments
            for block in segment.blocks
            if block.active and self.born.get(block.address, -1) < at
        }
        taken = [
            (address, sizes.get(address, _rounded(size)))
            for address, (size, _) in self.alive(at).items()
        ]
        return _gaps(segments, taken)


def _rounded(size: int) -> int:
    return -(-max(size, 1) // ROUNDING) * ROUNDING


def _gaps(segments: dict[int, int], taken: list[tuple[int, int]]) -> list[int]:
    """Stretches of the segments that nothing takes, bytes."""
    taken = sorted(taken)
    gaps, number = [], 0
    for start, size in sorted(segments.items()):
        end, at = start + size, start
        while number < len(taken) and taken[number][0] < start:
            number += 1
        while number < len(taken) and taken[number][0] < end:
            address, length = taken[number]
            gaps.append(address - at)
            at = max(at, address + length)
            number += 1
        gaps.append(end - at)
    return [gap for gap in gaps if gap > 0]
