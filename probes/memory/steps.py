"""Where steps of the training end in a history, and what is more after each of them."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise

from ...records import MemoryGrowth
from .replay import History
from .snapshot import Annotation, Event

MIN_STEP_ENDS = 5
"""Ends of steps from which on growth is spoken of: the first is left out, the rest rise 3 times."""
MAX_COMPARED_STEPS = 200
"""The last so many are compared."""
STACK_DEPTH = 64
"""Frames that are looked through for a loop, from the outermost."""
KEPT_SHARE = 0.25
"""Share of the memory asked for that a step may keep: layers keep most until the backward."""
RISEN, AT_FLOOR = 0.5, 0.02
"""Shares of the range from the floor to the top: memory above the first has risen, at or below the
second it is back at the floor."""
_LATE = {"backward", "optimizer"}
NUM_LISTED = 10
_NAMES = (
    ("ProfilerStep#", True, "the profiler's steps"),
    ("Optimizer.step#", False, "annotations of the optimizer's steps"),
)


def steps_of(
    events: Sequence[Event], annotations: Sequence[Annotation], levels: Sequence[int]
) -> tuple[tuple[int, ...], str]:
    """How many events lie before each end of a step, and how that was told.

    Empty where fewer than `MIN_STEP_ENDS` ends are to be seen.

    Args:
        levels: bytes in use after each event.
    """
    if annotations and events and all(event.time_us is not None for event in events):
        # Threads write into the history: times need not rise by themselves.
        times = list(accumulate((event.time_us or 0 for event in events), max))
        for prefix, start, source in _NAMES:
            named = [note for note in annotations if note.name.startswith(prefix)]
            stops = {bisect_left(times, note.time_us) for note in named if note.start == start}
            if len(stops - {0}) >= MIN_STEP_ENDS:
                return tuple(sorted(stops - {0})[-MAX_COMPARED_STEPS:]), source
    for source, stops_told in _told(events, levels):
        if len(stops_told) >= MIN_STEP_ENDS:
            return tuple(stops_told[-MAX_COMPARED_STEPS:]), source
    return (), ""


def _told(events: Sequence[Event], levels: Sequence[int]) -> Iterator[tuple[str, list[int]]]:
    """How ends are told, the surest first, and the ends."""
    yield "allocations of the optimizer", _optimizer(events)
    yield "a line of the script's loop that comes again", _loop(events, levels)
    yield "memory that comes back to its floor", _floor(events, levels)


def _optimizer(events: Sequence[Event]) -> list[int]:
    """After the last allocation of each group of allocations by the optimizer.

    What the backward asks for in between is of the same step: some optimizers write in it. Without
    a backward since the step before, it is still the same: some loops write for each layer.
    """
    stops, last, backward = [], 0, False
    for number, event in enumerate(events):
        if event.action != "alloc":
            continue
        if event.stack.steps_optimizer:
            last = number + 1
        elif _is_backward(event):
            backward = True
        elif last and backward:
            stops.append(last)
            last, backward = 0, False
    return [*stops, last] if last and backward else stops


def _loop(events: Sequence[Event], levels: Sequence[int]) -> list[int]:
    """Where the outermost frame whose line changes goes back to a line that it was at before.

    Layers are loops too, further inside: deeper frames count only where they hold a backward or
    an optimizer beside something else. Between two ends there has to be a backward, or what was
    asked for has to be free again.
    """
    own = [
        number
        for number, event in enumerate(events)
        if event.action == "alloc" and event.stack.outer
    ]
    for depth in range(STACK_DEPTH):
        frames: dict[tuple[str, int], list[int]] = {}
        for number in own:
            outer = events[number].stack.outer
            if depth < len(outer):
                frames.setdefault(outer[depth], []).append(number)
        if not frames:
            return []
        if len(frames) > 1:
            stops = _returns(frames)
            if len(stops) >= MIN_STEP_ENDS:
                return stops if _trains(events, stops) or _comes_back(levels, stops) else []
        own = max(frames.values(), key=len)
        kinds = {events[number].stack.category for number in own}
        if len(frames) > 1 and (kinds <= _LATE or not kinds & _LATE):
            return []
    return []


def _returns(frames: dict[tuple[str, int], list[int]]) -> list[int]:
    """Before each event at which the line goes back, to the first line with enough returns."""
    names: dict[str, int] = {}
    for (name, _), numbers in frames.items():
        names[name] = names.get(name, 0) + len(numbers)
    most = max(names, key=lambda name: names[name])
    lines = sorted(
        (number, line)
        for (name, line), numbers in frames.items()
        if name == most
        for number in numbers
    )
    back: dict[int, list[int]] = {}
    for (_, before), (number, line) in pairwise(lines):
        if line < before:
            back.setdefault(line, []).append(number)
    return next((back[line] for line in sorted(back) if len(back[line]) >= MIN_STEP_ENDS), [])


def _trains(events: Sequence[Event], stops: Sequence[int]) -> bool:
    """Whether there is a backward between any two ends."""
    late = [number for number, event in enumerate(events) if _is_backward(event)]
    return all(
        bisect_left(late, start) < bisect_left(late, stop) for start, stop in pairwise(stops)
    )


def _is_backward(event: Event) -> bool:
    """Whether the backward asked for memory: its own threads have no Python frames."""
    stack = event.stack
    return event.action == "alloc" and (not stack.known or stack.category == "backward")


def _comes_back(levels: Sequence[int], stops: Sequence[int]) -> bool:
    """Whether what each step asked for is free again at its end, up to a part that may be kept."""
    for start, stop in pairwise(stops):
        low, high = levels[start - 1], max(levels[start - 1 : stop])
        if levels[stop - 1] - low > KEPT_SHARE * (high - low):
            return False
    return True


def _floor(events: Sequence[Event], levels: Sequence[int]) -> list[int]:
    """Where memory is back at its floor after it had risen far above.

    One forward may come back after each of its layers: what follows the last of them, the head of a
    model, is found in none, while a loop that was interrupted only repeats what it did.
    """
    floor, top = min(levels[len(levels) // 2 :], default=0), max(levels, default=0)
    stops, risen = [], False
    for number, level in enumerate(levels):
        if level > floor + RISEN * (top - floor):
            risen = True
        elif risen and level <= floor + AT_FLOOR * (top - floor):
            stops.append(number + 1)
            risen = False
    if len(stops) < MIN_STEP_ENDS:
        return []
    first, last = stops[0], stops[-1]
    inside = {_what(event) for event in events[first:last] if event.action == "alloc"}
    after = {_what(event) for event in events[last:] if event.action == "alloc"}
    return stops if after <= inside else []


def _what(event: Event) -> tuple[str, int]:
    """Tells allocations apart: by their line, and by their size where the line is not known."""
    return event.stack.line, 0 if event.stack.line else event.size


def growth_of(history: History, stops: Sequence[int]) -> tuple[MemoryGrowth, ...]:
    """Lines whose bytes in use rise from each end of a step to the next, the fastest first.

    The first end is left out: the first step makes what stays, such as the optimizer's state.
    """
    if len(stops) < MIN_STEP_ENDS:
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
        for more, (line, function) in growing[:NUM_LISTED]
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
