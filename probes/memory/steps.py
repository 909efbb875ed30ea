"""Where steps of the training end in a history, and what is more after each of them."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate, pairwise

from ...records import MemoryGrowth
from .replay import History
from .snapshot import Annotation, Event

MIN_STEPS = 5
"""Ends of steps from which on growth is spoken of: the first is left out, the rest rise 3 times."""
MAX_STEPS = 200
"""The last so many are compared."""
EVEN = 0.1
"""Lengths of periods that are called even differ from their median by at most this share."""
TOP = 10
_NAMES = (
    ("ProfilerStep#", True, "the profiler's steps"),
    ("Optimizer.step#", False, "annotations of the optimizer's steps"),
)


def steps_of(
    events: Sequence[Event], annotations: Sequence[Annotation]
) -> tuple[tuple[int, ...], str]:
    """How many events lie before each end of a step, and how that was told.

    Empty where fewer than `MIN_STEPS` ends are to be seen.
    """
    if annotations and events and all(event.time_us is not None for event in events):
        # Threads write into the history: times need not rise by themselves.
        times = list(accumulate((event.time_us or 0 for event in events), max))
        for prefix, start, source in _NAMES:
            named = [note for note in annotations if note.name.startswith(prefix)]
            stops = {bisect_left(times, note.time_us) for note in named if note.start == start}
            if len(stops - {0}) >= MIN_STEPS:
                return tuple(sorted(stops - {0})[-MAX_STEPS:]), source
    stops_by_frames = _optimizer(events)
    if len(stops_by_frames) >= MIN_STEPS:
        return tuple(stops_by_frames[-MAX_STEPS:]), "allocations of the optimizer"
    periods = _periods(events)
    if len(periods) >= MIN_STEPS:
        return tuple(periods[-MAX_STEPS:]), "an allocation that comes back evenly"
    return (), ""


def _optimizer(events: Sequence[Event]) -> list[int]:
    """After the last allocation of each group of allocations by the optimizer."""
    stops, last = [], 0
    for number, event in enumerate(events):
        if event.action != "alloc":
            continue
        if event.stack.steps_optimizer:
            last = number + 1
        elif last:
            stops.append(last)
            last = 0
    return [*stops, last] if last else stops


def _periods(events: Sequence[Event]) -> list[int]:
    """Before each return of the largest allocation that returns after even numbers of events."""
    seen: dict[tuple[str, str, int, int], list[int]] = {}
    for number, event in enumerate(events):
        if event.action == "alloc" and event.stack.line:
            key = (event.stack.line, event.stack.function, event.size, event.stream)
            seen.setdefault(key, []).append(number)
    for key in sorted(seen, key=lambda key: (-key[2], key)):
        places = seen[key]
        if len(places) >= MIN_STEPS and _is_even(places):
            return places
    return []


def _is_even(places: Sequence[int]) -> bool:
    lengths = sorted(after - before for before, after in pairwise(places))
    median = lengths[len(lengths) // 2]
    return lengths[-1] - median <= EVEN * median and median - lengths[0] <= EVEN * median


def growth_of(history: History, stops: Sequence[int]) -> tuple[MemoryGrowth, ...]:
    """Lines whose bytes in use rise from each end of a step to the next, the fastest first.

    The first end is left out: the first step makes what stays, such as the optimizer's state.
    """
    if len(stops) < MIN_STEPS:
        return ()
    at_ends = _bytes_at(history, stops)[1:]
    growing = []
    for line, last in at_ends[-1].items():
        values = [held.get(line, 0) for held in at_ends]
        if all(after > before for before, after in pairwise(values)):
            growing.append((last - values[0], line))
    growing.sort(key=lambda item: (-item[0], item[1]))
    num_steps = len(at_ends) - 1
    return tuple(
        MemoryGrowth(
            line=line, function=function, bytes_per_step=more / num_steps, num_steps=num_steps
        )
        for more, (line, function) in growing[:TOP]
    )


def _bytes_at(history: History, stops: Sequence[int]) -> list[dict[tuple[str, str], int]]:
    """Bytes in use by line and function, before each of the events."""
    live = dict(history.before)
    sums: dict[tuple[str, str], int] = {}

    def add(address: int, sign: int) -> None:
        size, stack = live[address]
        key = (stack.line, stack.function)
        sums[key] = sums.get(key, 0) + sign * size

    for address in live:
        add(address, 1)
    kept, at = [], 0
    for stop in stops:
        for event in history.events[at:stop]:
            if event.action in ("alloc", history.frees) and event.address in live:
                add(event.address, -1)
                del live[event.address]
            if event.action == "alloc":
                live[event.address] = (event.size, event.stack)
                add(event.address, 1)
        at = stop
        kept.append(dict(sums))
    return kept
