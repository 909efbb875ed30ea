"""Memory over a step: the allocations that `profile_memory=True` recorded, as curves.

The host allocates ahead of the GPU, so a step is the host's range of it, and not the window that
holds the GPU's work.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ...records import MemoryCurve
from .anatomy import Chosen, picked_steps
from .columns import HOST_MEMORY, MOST_MEMORY_EVENTS, NOT_SAID, MemoryEvents, Trace
from .intervals import Ints
from .metrics import Analysis
from .nesting import Nesting

CURVE_POINTS = 500
"""Moments of a curve at most."""
_KEPT_OF_PIECE = 5
"""The last moment of a piece, and the least and the most of both quantities."""


class _Step(NamedTuple):
    """A step on the host."""

    name: str
    start_ns: int
    end_ns: int


def memory_curves(analysis: Analysis, chosen: Chosen | None = None) -> tuple[MemoryCurve, ...]:
    """The memory of each device over the median step, GPUs first; nothing without allocations.

    Args:
        analysis: of the trace.
        chosen: the steps that other ranks show, as for `anatomy_of`.
    """
    events = analysis.trace.memory
    if not len(events):
        return ()
    step = _step(analysis, chosen)
    if step.end_ns <= step.start_ns:
        return ()
    devices = np.unique(events.device).tolist()
    curves = [
        _curve(analysis.trace, np.flatnonzero(events.device == device), device, step)
        for device in sorted(devices, key=lambda device: (device == HOST_MEMORY, device))
    ]
    return tuple(curve for curve in curves if curve is not None)


def _step(analysis: Analysis, chosen: Chosen | None) -> _Step:
    """The step that is shown; all that was recorded without steps."""
    picked = picked_steps(analysis, chosen)
    steps, events = analysis.steps, analysis.trace.memory
    for which in ("median", "only"):
        if which in picked:
            name, _, window_end = picked[which]
            # Names may repeat; windows end one after the other.
            row = next(
                number
                for number, (own, window) in enumerate(
                    zip(steps.names, analysis.step_windows(), strict=True)
                )
                if own == name and window[1] == window_end
            )
            return _Step(name, int(steps.start_ns[row]), int(steps.end_ns[row]))
    return _Step("", int(events.time_ns[0]), int(events.time_ns[-1]))


def _curve(trace: Trace, own: Ints, device: int, step: _Step) -> MemoryCurve | None:
    """The curve of one device, whose events are the rows `own`; `None` without any in the step."""
    events, (name, start, end) = trace.memory, step
    stated = events.allocated[own] != NOT_SAID
    relative = not stated.any()
    dropped = 0 if relative else int((~stated).sum())
    rows = own if relative else own[stated]
    time, allocated = events.time_ns[rows], events.allocated[rows]
    if relative:
        allocated = np.cumsum(events.num_bytes[rows])
    first, stop = np.searchsorted(time, start), np.searchsorted(time, end, side="right")
    if first == stop:
        return None
    inside = slice(int(first), int(stop))
    held: tuple[int, int] | None = None
    if first:
        held = int(allocated[first - 1]), int(events.reserved[rows[first - 1]])
    elif events.num_bytes[rows[0]]:  # what the first change was added to
        held = int(allocated[0] - events.num_bytes[rows[0]]), NOT_SAID
    rows, time, allocated = rows[inside], time[inside], allocated[inside]
    reserved = events.reserved[rows]
    most = int(np.argmax(allocated))
    operator, within = _operators(trace, int(rows[most]))
    peak, peak_ns = int(allocated[most]), int(time[most]) - start
    if held is not None and (time[0] == start or (held[0] < 0 and not relative)):
        held = None
    if held is not None and held[0] >= peak:
        peak, peak_ns, operator, within = held[0], 0, "", ""
    notes = _missing(events, dropped, device, end)
    if not relative:
        jumps = int((np.diff(allocated) != events.num_bytes[rows[1:]]).sum())
        if jumps:
            notes.append(f"at {_events(jumps)} the total does not follow from the one before it")
    kept = thinned(time, allocated, reserved)
    moments = [] if held is None else [(0, *held)]
    moments += zip(
        (time[kept] - start).tolist(),
        allocated[kept].tolist(),
        reserved[kept].tolist(),
        strict=True,
    )
    most_reserved = max(level for _, _, level in moments)
    return MemoryCurve(
        device=None if device == HOST_MEMORY else device,
        step=name,
        step_ns=end - start,
        time_ns=tuple(at for at, _, _ in moments),
        allocated_bytes=tuple(level for _, level, _ in moments),
        reserved_bytes=tuple(None if level == NOT_SAID else level for _, _, level in moments)
        if most_reserved != NOT_SAID
        else (),
        num_events=len(rows),
        peak_bytes=peak,
        peak_ns=peak_ns,
        peak_operator=operator,
        peak_within=within,
        peak_reserved_bytes=most_reserved if most_reserved != NOT_SAID else None,
        relative=relative,
        notes=tuple(notes),
    )


def thinned(time: Ints, allocated: Ints, reserved: Ints) -> Ints:
    """Rows of a curve, at most `CURVE_POINTS`: of each of equally long pieces the last, and those
    with the least and the most of both quantities.
    """
    if len(time) <= CURVE_POINTS:
        return np.arange(len(time))
    num_pieces = CURVE_POINTS // _KEPT_OF_PIECE
    borders = np.linspace(0, int(time[-1] - time[0]), num_pieces + 1)[1:-1]
    bounds = np.searchsorted(time - time[0], borders, side="right")
    kept: set[int] = set()
    for first, stop in zip([0, *bounds.tolist()], [*bounds.tolist(), len(time)], strict=True):
        if first == stop:
            continue
        kept.add(stop - 1)
        for values in (allocated[first:stop], reserved[first:stop]):
            kept |= {first + int(np.argmin(values)), first + int(np.argmax(values))}
    return np.array(sorted(kept), np.int64)


def _operators(trace: Trace, event: int) -> tuple[str, str]:
    """The innermost operator that was open on the event's thread, and the outermost one around it;
    empty where there is none.

    Torch 1.8 writes the same thread as a number and as a text.
    """
    at, thread = int(trace.memory.time_ns[event]), int(trace.memory.thread[event])
    text = trace.threads[thread]
    same = np.array([number for number, own in enumerate(trace.threads) if own == text], np.int32)
    open_then = (trace.operators.start_ns <= at) & (trace.operators.end_ns > at)
    operators = trace.operators.select(open_then & np.isin(trace.operators.thread, same))
    if not len(operators):
        return "", ""
    nesting = Nesting(operators)
    found = nesting.innermost(same, np.full(len(same), at))
    inner = found[found >= 0]
    if not len(inner):
        return "", ""
    last = outer = int(inner[np.argmax(nesting.starts[inner])])
    while nesting.parents[outer] >= 0:
        outer = int(nesting.parents[outer])
    names = [trace.names[int(operators.name[nesting.order[at]])] for at in (last, outer)]
    return names[0], names[1] if outer != last else ""


def _missing(events: MemoryEvents, dropped: int, device: int, end: int) -> list[str]:
    notes = []
    if events.num_left_out:
        notes.append(
            f"{_events(events.num_left_out)} of memory without a usable time, device or size left "
            "out"
        )
    if dropped:
        notes.append(f"{_events(dropped)} of memory without a total left out")
    if events.num_unordered:
        notes.append(f"{_events(events.num_unordered)} of memory not in order of time and sorted")
    if events.num_more and end > int(events.time_ns[-1]):
        notes.append(
            f"the first {MOST_MEMORY_EVENTS:,} events of memory are read, {events.num_more:,} more "
            "are not"
        )
    if device == HOST_MEMORY:
        notes.append("what was allocated before the profiler began is not in it")
    return notes


def _events(count: int) -> str:
    return "1 event" if count == 1 else f"{count:,} events"
