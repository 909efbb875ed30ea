"""The anatomy of a step: an analysed trace in, lanes of spans out.

The idle time is that of the metrics, piece by piece (`IdlePieces`), so that the picture and the
verdict cannot differ. What is too short to be seen is drawn together with what lies beside it; what
is left out is said.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ...records.anatomy import (
    IdleTime,
    Lane,
    LaneKind,
    SpanKind,
    StepAnatomy,
    TraceAnatomy,
    WhichStep,
)
from . import intervals
from . import kineto_names as vocabulary
from .columns import Activities
from .critical_way import NOBODY, ON_HOST, critical_way
from .devices import Device
from .event import whole_number
from .gaps import CAUSES, IdlePieces
from .host_ranges import ANNOTATION, CALL, OPERATOR, PYTHON, HostRanges
from .intervals import IntervalSet, Ints
from .metrics import NO_GPU, Analysis
from .spans import KINDS, NUMBER, Events, Kinds, Labels
from .steps import UNKNOWN

PIXELS = 1024
"""Events that take less than this part of the picture are merged, where there are too many."""
FINEST_POWER, COARSEST = 12, -4
"""Widths that are tried, as powers of the square root of 2 times `PIXELS`; the finest that gives
few enough spans is taken."""
STRIP = 700
"""Parts of the strip of a GPU that stands among those of other ranks."""
MAX_SPANS = 8000
"""Spans of the pictures of a trace together, about: they are merged until they have no more."""
MAX_STREAMS = 12
"""Streams that have a lane of their own, those that work the longest; the rest share one."""
MAX_DEVICES = 8
MAX_THREAD_LANES = 3
"""Threads of the host that have a lane of their own, those with the most operators."""
MAX_DEPTH = 6
"""Rows of nested operators, and of nested frames."""
NO_FRAMES = (
    "no Python function is in the trace, so that no line of code stands beside "
    "an operator (with_stack=True records them, batchadvisor run does with --stacks)"
)


class Chosen(NamedTuple):
    """Steps that a picture is asked for by name, because other ranks show the same."""

    median: str
    slowest: str


def anatomy_of(analysis: Analysis, trace: str, chosen: Chosen | None = None) -> TraceAnatomy:
    """The pictures of a trace: of its median step and its slowest one.

    Args:
        analysis: of the trace.
        trace: what the trace is called.
        chosen: the steps to show, if the trace has both; by its own rule otherwise.
    """
    labels = Labels(analysis.trace.all_names)
    start, end, source = analysis.window()
    notes = [f"left out: {clause}" for clause in analysis.health.left_out]
    if not analysis.devices:
        notes.append(f"{analysis.health.doubt or NO_GPU}: there are no lanes of a GPU")
    if analysis.trace.losses.any:
        notes.append(f"the trace is damaged: {analysis.trace.losses}")
    if len(analysis.trace.operators) and not len(analysis.trace.python):
        notes.append(NO_FRAMES)
    picked = picked_steps(analysis, chosen)
    if source == "steps" and not picked:
        notes.append("no step of the trace takes any time: the picture is of the whole window")
    elif source != "steps":
        notes.append("the trace has no steps: the picture is of the whole window")
    windows = picked or {"whole": ("", start, end)}
    if end <= start:
        return TraceAnatomy(
            trace=trace, notes=tuple(notes), unavailable="nothing in the trace takes any time"
        )
    whole = _whole_window(analysis, start, end)
    steps = tuple(
        _Picture(analysis, labels, first, last, whole).step(name, which, MAX_SPANS // len(windows))
        for which, (name, first, last) in windows.items()
    )
    return TraceAnatomy(
        trace=trace,
        rank=_rank(analysis),
        num_steps=len(analysis.steps),
        steps=steps,
        labels=tuple(labels.known),
        notes=tuple(notes),
    )


def chosen_steps(anatomy: TraceAnatomy) -> Chosen | None:
    """The steps that the pictures of other ranks should show as well."""
    names = {step.which: step.name for step in anatomy.steps}
    if anatomy.rank is None or "median" not in names:
        return None
    return Chosen(names["median"], names.get("slowest", names["median"]))


def _rank(analysis: Analysis) -> int | None:
    return whole_number(analysis.trace.distributed.get("rank"))


def picked_steps(
    analysis: Analysis, chosen: Chosen | None = None
) -> dict[WhichStep, tuple[str, int, int]]:
    """The steps that are drawn: their names and windows.

    Of steps that launched work of a GPU, if any did, the median is the one in the middle when they
    are sorted by the length of their windows, the shorter of two; of equal ones the first counts.
    Where no step is slower, it is the only one.
    """
    steps = analysis.steps
    listed = [
        (name, *window, work > 0)
        for name, window, work in zip(
            steps.names, analysis.step_windows(), steps.num_launched.tolist(), strict=True
        )
        if window[1] > window[0]
    ]
    working = any(work for *_, work in listed)
    windows = [(name, start, end) for name, start, end, work in listed if work or not working]
    if not windows:
        return {}
    if len(windows) == 1:
        return {"only": windows[0]}
    by_name = {window[0]: window for window in windows}
    if chosen is not None and {chosen.median, chosen.slowest} <= by_name.keys():
        asked: dict[WhichStep, tuple[str, int, int]] = {"median": by_name[chosen.median]}
        if chosen.slowest != chosen.median:
            asked["slowest"] = by_name[chosen.slowest]
        return asked
    lengths = [end - start for _, start, end in windows]
    median = sorted(lengths)[(len(lengths) - 1) // 2]
    picked: dict[WhichStep, tuple[str, int, int]] = {"median": windows[lengths.index(median)]}
    if max(lengths) > median:
        picked["slowest"] = windows[lengths.index(max(lengths))]
    return picked


def _whole_window(analysis: Analysis, start: int, end: int) -> dict[int, tuple[int, IdlePieces]]:
    """Returns the length of the whole window for each GPU, and its idle time there."""
    return {
        device.number: (end - start, device.idle(analysis.causes, start, end))
        for device in analysis.devices
    }


_HOST_KINDS: tuple[SpanKind, ...] = ("input", "synchronize", "launch", "call", "host")
"""In the order of `Analysis.causes`."""
_WORK_KINDS: tuple[SpanKind, ...] = ("compute", "communication", "copy")
_SHOWN_ALONE: tuple[SpanKind, ...] = ("compute", "exposed communication", "exposed copy")
"""What they are called where nothing before them in that order goes on."""
_IDLE_KINDS = np.array([NUMBER[cause] for cause in CAUSES], np.int8)


class _RawLane(NamedTuple):
    """A lane before anything is merged; `way` is where the critical path runs through it."""

    kind: LaneKind
    name: str
    rows: list[Events]
    way: IntervalSet = intervals.EMPTY
    device: int | None = None
    derived: bool = False


def _exposed(covered: IntervalSet, hiding: IntervalSet, bare: SpanKind, hidden: SpanKind) -> Events:
    """A set in two kinds of pieces: what nothing hides, and what something does."""
    exposed = intervals.subtract(covered, hiding)
    rest = intervals.overlaps(covered, hiding)
    return Events.of(
        np.concatenate([exposed[0], rest[0]]),
        np.concatenate([exposed[1], rest[1]]),
        np.repeat(
            np.array([NUMBER[bare], NUMBER[hidden]], np.int8), [len(exposed[0]), len(rest[0])]
        ),
    )


class _Picture:
    """The picture of one window."""

    def __init__(
        self,
        analysis: Analysis,
        labels: Labels,
        start: int,
        end: int,
        whole: Mapping[int, tuple[int, IdlePieces]],
    ) -> None:
        self.analysis = analysis
        self.labels = labels
        self.start, self.end = start, end
        self.whole = whole
        self.left_out: list[str] = []
        gpu = analysis.trace.gpu
        self.near = (gpu.end_ns > start) & (gpu.start_ns < end)
        began = analysis.calls.began_ns[self.near]
        earliest = int(began[began > UNKNOWN].min(initial=start))
        self.host = HostRanges(analysis.trace, min(start, earliest), end)
        self.shown = (self.host.end_ns > start) & (self.host.start_ns < end)
        operator, code = self.host.of_calls(analysis.calls.row[self.near])
        rows = np.flatnonzero(self.near)
        self.gpu_kind = self._kinds_of_work(gpu)
        self.work = Events.of(
            gpu.start_ns[rows],
            gpu.end_ns[rows],
            self.gpu_kind[rows],
            name=gpu.name[rows],
            operator=operator,
            code=code,
        )
        self.work_rows = rows[np.argsort(gpu.start_ns[rows], kind="stable")]
        self.by_row_place = np.argsort(self.work_rows, kind="stable")
        self.by_row = self.work_rows[self.by_row_place]
        self.device = gpu.device[self.work_rows].astype(np.int64)
        self.way = self._way() if analysis.devices else None

    def _kinds_of_work(self, gpu: Activities) -> Kinds:
        kernels = gpu.kind == vocabulary.KERNEL
        communication = kernels & self.analysis.flags.communication[gpu.name]
        return np.select(
            [communication, kernels],
            [NUMBER["communication"], NUMBER["compute"]],
            NUMBER["copy"],
        ).astype(np.int8)

    def step(self, name: str, which: WhichStep, most: int) -> StepAnatomy:
        """The picture, merged until it has no more than so many spans."""
        raw = [lane for lane in self._lanes() if any(len(row.start_ns) for row in lane.rows)]
        rows = [row.cut(self.start, self.end) for lane in raw for row in lane.rows]
        resolution = self._resolution(rows, most)
        lanes = [self._drawn(lane, resolution) for lane in raw]
        shown = [lane for lane in raw if not lane.derived]
        return StepAnatomy(
            name=name,
            which=which,
            begins_ns=self.start,
            window_ns=self.end - self.start,
            lanes=tuple(lanes),
            idle=tuple(self._idle_time(device) for device in self.analysis.devices),
            way_ns={} if self.way is None else self._way_ns(self.way),
            num_events=sum(len(row.start_ns) for lane in shown for row in lane.rows),
            num_spans=sum(
                len(row)
                for lane, of in zip(lanes, raw, strict=True)
                for row in lane.rows
                if not of.derived
            ),
            merged_below_ns=resolution,
            left_out=tuple(self.left_out),
            strips=tuple(self._strip(device) for device in self._busiest_devices()),
            **self._last_collective(),
        )

    def _last_collective(self) -> dict[str, Any]:
        """The communication kernel that ended last, which all ranks leave at about one time."""
        rows = np.flatnonzero(self.work.kind == NUMBER["communication"])
        if not len(rows):
            return {}
        last = rows[np.argmax(self.work.end_ns[rows])]
        name = self.analysis.trace.names[self.work.name[last]].partition("(")[0]
        return {
            "last_collective": f"{name} {len(rows)}",
            "last_collective_ns": min(int(self.work.end_ns[last]), self.end) - self.start,
        }

    def _strip(self, device: Device) -> Lane:
        """What one GPU did at each moment, each moment once, in the order of a verdict's shares."""
        work = self.work.select(self.device == device.number).cut(self.start, self.end)
        before = intervals.EMPTY
        parts = []
        for kind, shown in zip(_WORK_KINDS, _SHOWN_ALONE, strict=True):
            rows = work.kind == NUMBER[kind]
            covered = intervals.union(work.start_ns[rows], work.end_ns[rows])
            own = intervals.subtract(covered, before)
            before = intervals.merge(before, covered)
            parts.append((*own, np.full(len(own[0]), NUMBER[shown], np.int8)))
        pieces = self._idle(device)
        parts.append((pieces.start_ns, pieces.end_ns, _IDLE_KINDS[pieces.cause]))
        start, end, kinds = (np.concatenate(column) for column in zip(*parts, strict=True))
        events = Events.of(start, end, kinds)
        resolution = max(1, (self.end - self.start) // STRIP)
        return Lane(
            kind="gpu",
            name=f"GPU {device.number}",
            rows=(events.spans(resolution, self.start, self.labels),),
            device=device.number,
        )

    def _resolution(self, rows: Sequence[Events], most: int) -> int:
        """The finest at which the picture has no more than so many spans; 0 where all can be."""
        if sum(len(row.start_ns) for row in rows) <= most:
            return 0
        resolution = 0
        for power in range(COARSEST, FINEST_POWER + 1):
            finer = max(1, int((self.end - self.start) / (PIXELS * 2.0 ** (power / 2))))
            if resolution and sum(len(row.groups(finer)) for row in rows) > most:
                break
            resolution = finer
        return resolution

    def _drawn(self, lane: _RawLane, resolution: int) -> Lane:
        rows = (row.cut(self.start, self.end) for row in lane.rows)
        way = Events.of(*lane.way, "host").cut(self.start, self.end)
        coarse = max(resolution, (self.end - self.start) // PIXELS)
        return Lane(
            kind=lane.kind,
            name=lane.name,
            rows=tuple(row.spans(resolution, self.start, self.labels) for row in rows),
            way=way.spans(coarse, self.start, self.labels),
            device=lane.device,
        )

    def _idle(self, device: Device) -> IdlePieces:
        return device.idle(self.analysis.causes, self.start, self.end)

    def _idle_events(self, pieces: IdlePieces) -> Events:
        """Idle time with what ended it, its operator and its line of code."""
        place = np.searchsorted(self.by_row, pieces.ended_by)
        known = pieces.ended_by >= 0
        ended = self.by_row_place[place[known]]
        columns = []
        for column in (self.work.operator, self.work.code, self.work.name):
            values = np.full(len(known), -1, np.int64)
            values[known] = column[ended]
            columns.append(values)
        operator, code, name = columns
        return Events.of(
            pieces.start_ns,
            pieces.end_ns,
            _IDLE_KINDS[pieces.cause],
            operator=operator,
            code=code,
            waits_for=name,
        )

    def _idle_time(self, device: Device) -> IdleTime:
        pieces = self._idle(device)
        whole_window, whole = self.whole[device.number]
        return IdleTime(
            device=device.number,
            window_ns=self.end - self.start,
            idle_ns=pieces.total_ns(),
            drained_ns=pieces.drained_ns(),
            whole_window_ns=whole_window,
            whole_idle_ns=whole.total_ns(),
            whole_drained_ns=whole.drained_ns(),
        )

    def _lanes(self) -> Iterator[_RawLane]:
        if self.way is not None:
            yield _RawLane("way", "critical path", [self.way], derived=True)
        several = len(self.analysis.devices) > 1
        more = len(self.analysis.devices) - MAX_DEVICES
        if more > 0:
            self.left_out.append(f"the idle time of {more:,} more GPUs")
        for device in self._busiest_devices():
            pieces = self._idle(device)
            name = f"GPU {device.number}: idle, by cause" if several else "GPU idle, by cause"
            idle = self._idle_events(pieces)
            yield _RawLane("idle", name, [idle], device=device.number, derived=True)
        yield from self._host_lanes()
        yield from self._gpu_lanes(several=several)

    def _busiest_devices(self) -> list[Device]:
        devices = self.analysis.devices
        if len(devices) <= MAX_DEVICES:
            return list(devices)
        most = sorted(devices, key=lambda device: -len(device.activities))[:MAX_DEVICES]
        return sorted(most, key=lambda device: device.number)

    # The host.

    def _host_lanes(self) -> Iterator[_RawLane]:
        trace, host = self.analysis.trace, self.host
        notes = trace.annotations
        loads = np.array([vocabulary.is_input_wait(name) for name in trace.names], bool)
        rows = loads[notes.name] if len(notes) else np.zeros(0, bool)
        loader = Events.of(
            notes.start_ns[rows], notes.end_ns[rows], "input", name=notes.name[rows]
        ).cut(self.start, self.end)
        yield _RawLane("input", "DataLoader", [loader], self._way_in("input"))
        yield from self._threads()
        calls = self.shown & (host.kind == CALL)
        launch, synchronize = (
            np.array([test(name) for name in trace.all_names], bool)[host.name]
            if len(host.name)
            else np.zeros(0, bool)
            for test in (vocabulary.is_launch, vocabulary.is_synchronize)
        )
        blocking = self._blocking()
        kinds = np.select(
            [synchronize, launch], [NUMBER["synchronize"], NUMBER["launch"]], NUMBER["call"]
        ).astype(np.int8)
        waits = synchronize | (blocking & ~launch)
        lanes: list[tuple[LaneKind, str, npt.NDArray[np.bool_], tuple[SpanKind, ...]]] = [
            ("launch", "launches", launch & ~waits, ("launch",)),
            ("synchronize", "synchronising calls", waits, ("synchronize", "call")),
            ("call", "other calls of the GPU's API", ~(waits | launch), ("call",)),
        ]
        for kind, name, own, ways in lanes:
            chosen = calls & own
            on_way = [self._way_in(way) for way in ways]
            events = host.events(np.flatnonzero(chosen), kinds[chosen])
            covered = intervals.union(events.start_ns, events.end_ns)
            start, end, _ = intervals.overlaps(intervals.merge(*on_way), covered)
            yield _RawLane(kind, name, [events], (start, end))

    def _blocking(self) -> npt.NDArray[np.bool_]:
        """Which of the host's ranges are calls that came back only when their copy was done."""
        host = self.host
        blocking = np.zeros(len(host.name), bool)
        rows = np.flatnonzero(self.analysis.blocking)
        known = host.call_of[rows]
        blocking[known[known >= 0]] = True
        return blocking

    def _threads(self) -> Iterator[_RawLane]:
        """Frames and operators of the threads with the most of them."""
        host = self.host
        inside = self.shown & (host.kind != CALL)
        operators = inside & (host.kind != PYTHON)
        threads, counts = np.unique(host.thread[inside], return_counts=True)
        most = threads[np.argsort(-counts, kind="stable")].tolist()
        main = self._main_thread(most)
        most = [main, *(thread for thread in most if thread != main)] if main is not None else most
        if len(most) > MAX_THREAD_LANES:
            self.left_out.append(f"operators of {len(most) - MAX_THREAD_LANES} more threads")
        on_way = self._way_in("host")
        code_depth, depth = (
            host.depth(host.kind == PYTHON),
            host.depth((host.kind == OPERATOR) | (host.kind == ANNOTATION)),
        )
        kinds = np.where(host.kind == OPERATOR, NUMBER["operator"], NUMBER["annotation"]).astype(
            np.int8
        )
        deeper = 0
        for number, thread in enumerate(most[:MAX_THREAD_LANES]):
            own = host.thread == thread
            frames = inside & own & (host.kind == PYTHON)
            rows, more = self._nested(frames, code_depth, "code")
            deeper += more
            if rows:
                yield _RawLane("code", f"Python: {self._thread_name(thread, main)}", rows)
            rows, more = self._nested(operators & own, depth, kinds)
            deeper += more
            name = f"operators: {self._thread_name(thread, main)}"
            way = on_way if number == 0 else intervals.EMPTY
            yield _RawLane("operators", name, rows, way)
        if deeper:
            ranges = "1 range" if deeper == 1 else f"{deeper:,} ranges"
            self.left_out.append(f"{ranges} nested deeper than {MAX_DEPTH} rows")

    def _nested(
        self, chosen: npt.NDArray[np.bool_], depth: Ints, kind: SpanKind | Kinds
    ) -> tuple[list[Events], int]:
        """Rows of nested ranges, and how many lie deeper."""
        rows = []
        for level in range(MAX_DEPTH):
            at = np.flatnonzero(chosen & (depth == level))
            if len(at):
                rows.append(self.host.events(at, kind if isinstance(kind, str) else kind[at]))
        return rows, int((chosen & (depth >= MAX_DEPTH)).sum())

    def _main_thread(self, threads: Sequence[int]) -> int | None:
        """The thread whose steps were marked, else the one with the most."""
        trace = self.analysis.trace
        steps = np.array([vocabulary.is_step(name) for name in trace.names], bool)
        notes = trace.annotations
        marked = notes.thread[steps[notes.name]] if len(notes) else notes.thread
        if len(marked) and int(marked[0]) in threads:
            return int(marked[0])
        return threads[0] if threads else None

    def _thread_name(self, thread: int, main: int | None) -> str:
        trace, host = self.analysis.trace, self.host
        if thread == main:
            return "main thread"
        own, names = np.unique(host.name[host.thread == thread]).tolist(), trace.all_names
        backward = any(names[name].startswith("autograd::engine") for name in own)
        return "backward pass" if backward else f"thread {trace.threads[thread][1]}"

    # The GPUs.

    def _gpu_lanes(self, *, several: bool) -> Iterator[_RawLane]:
        gpu, rows = self.analysis.trace.gpu, self.work_rows
        device, stream = self.device, gpu.stream[rows]
        keys, of = np.unique(np.stack([device, stream]), axis=1, return_inverse=True)
        of = of.reshape(-1)
        busy = np.bincount(of, self.work.end_ns - self.work.start_ns, keys.shape[1])
        alone = np.sort(np.argsort(-busy, kind="stable")[:MAX_STREAMS])
        for number in alone.tolist():
            own = of == number
            where = f"GPU {keys[0, number]} stream" if several else "stream"
            name = f"{where} {keys[1, number]}" if keys[1, number] >= 0 else f"{where} unknown"
            yield self._stream(own, name, int(keys[0, number]))
        others = keys.shape[1] - len(alone)
        if others > 0:
            yield self._stream(~np.isin(of, alone), f"{others:,} more streams", None)
            self.left_out.append(
                f"a lane of its own for {others:,} of {keys.shape[1]:,} streams, which share one"
            )
        for number in (known.number for known in self._busiest_devices()):
            yield from self._summed(device == number, number, several=several)

    def _stream(self, own: npt.NDArray[np.bool_], name: str, device: int | None) -> _RawLane:
        way = intervals.EMPTY
        if self.way is not None:
            on = np.isin(self.way_rows, self.work_rows[own])
            way = intervals.union(self.way.start_ns[on], self.way.end_ns[on])
        return _RawLane("stream", name, [self.work.select(own)], way, device)

    def _summed(
        self, own: npt.NDArray[np.bool_], device: int, *, several: bool
    ) -> Iterator[_RawLane]:
        """Communication and copies of one GPU over all its streams, exposed or covered."""
        work = self.work.select(own)
        compute, communication, copies = (
            intervals.union(work.start_ns[rows], work.end_ns[rows])
            for kind in _WORK_KINDS
            for rows in [work.kind == NUMBER[kind]]
        )
        kernels = intervals.merge(compute, communication)
        of = f" of GPU {device}" if several else ""
        yield _RawLane(
            "communication",
            f"communication{of}",
            [_exposed(communication, compute, "exposed communication", "communication")],
            device=device,
            derived=True,
        )
        yield _RawLane(
            "copy",
            f"copies and sets{of}",
            [_exposed(copies, kernels, "exposed copy", "copy")],
            device=device,
            derived=True,
        )

    # The critical path.

    def _way(self) -> Events:
        analysis = self.analysis
        trace = analysis.trace
        way = critical_way(trace.gpu, analysis.calls, analysis.waiting, self.start, self.end)
        ran, waited = way.row >= 0, way.row == NOBODY
        kinds = [self.gpu_kind[way.row[ran]]]
        kinds.append(np.array([NUMBER[kind] for kind in way.waits if kind is not None], np.int8))
        starts = [way.start_ns[ran], way.start_ns[waited]]
        ends = [way.end_ns[ran], way.end_ns[waited]]
        rows = [way.row[ran], way.row[waited]]
        host = way.row == ON_HOST
        on_host = way.start_ns[host], way.end_ns[host]
        for kind, covered in zip(_HOST_KINDS, analysis.causes, strict=True):
            start, end, _ = intervals.overlaps(on_host, covered)
            starts.append(start)
            ends.append(end)
            kinds.append(np.full(len(start), NUMBER[kind], np.int8))
            rows.append(np.full(len(start), ON_HOST, np.int64))
        row = np.concatenate(rows)
        start = np.concatenate(starts)
        self.way_rows = row[np.argsort(start, kind="stable")]
        name = np.where(row >= 0, trace.gpu.name[row], -1)
        return Events.of(start, np.concatenate(ends), np.concatenate(kinds), name=name)

    def _way_in(self, kind: SpanKind) -> IntervalSet:
        """Where the way runs through the host doing this."""
        if self.way is None:
            return intervals.EMPTY
        rows = (self.way.kind == NUMBER[kind]) & (self.way_rows == ON_HOST)
        return intervals.union(self.way.start_ns[rows], self.way.end_ns[rows])

    def _way_ns(self, way: Events) -> dict[SpanKind, int]:
        total = np.zeros(len(KINDS), np.int64)
        np.add.at(total, way.kind, way.end_ns - way.start_ns)
        return {kind: int(ns) for kind, ns in zip(KINDS, total, strict=True) if ns}
