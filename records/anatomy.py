"""The anatomy of a step: what ran when, why the GPU stood still, and what the step waited for.

Times are integer nanoseconds from the start of the picture, so that nothing is lost when they are
added up.
"""

from __future__ import annotations

from typing import Literal

from .base import Record

IdleCause = Literal[
    "input",
    "synchronize",
    "launch",
    "call",
    "host",
    "launch_latency",
    "dependency",
    "unknown",
    "tail",
]
"""Why nothing ran on a GPU; `IdleShares` says what each means."""

SpanKind = Literal[
    "input", "synchronize", "launch", "call", "host",
    "operator", "annotation", "code",
    "compute", "communication", "copy",
    "launch_latency", "dependency", "unknown", "tail",
    "exposed communication", "exposed copy",
]  # fmt: skip
"""What a span is, which is its colour."""

LaneKind = Literal[
    "way", "gpu", "idle", "input", "code", "operators", "launch", "synchronize", "call",
    "stream", "communication", "copy",
]  # fmt: skip

WhichStep = Literal["median", "slowest", "only", "whole"]
"""`whole`: there are no steps, or none that counts, and the picture is of the whole window."""


class Label(Record, frozen=True, kw_only=True):
    """What is said of a span.

    Attributes:
        name: of the kernel, operator, call or annotation; empty where its kind says all.
        operator: the innermost operator that it came from; empty where none is known.
        code: the innermost frame of the model's code, the user's or a library's, that it came from,
            as the profiler names it: `train.py(40): forward`; empty where there are no stacks.
        waits_for: of idle time, the activity that ended it; the operator and the code are those
            that it came from.
    """

    kind: SpanKind
    name: str = ""
    operator: str = ""
    code: str = ""
    waits_for: str = ""


class Spans(Record, frozen=True, kw_only=True):
    """One row of a lane, in order of time; an item of each field a span.

    Attributes:
        start_ns, end_ns: from the start of the picture.
        label: position in `TraceAnatomy.labels`; of several events that of the longest.
        num_events: how many are drawn as this span.
        total_ns: how long they took together, which is less than the span where gaps lie between
            them.
    """

    start_ns: tuple[int, ...] = ()
    end_ns: tuple[int, ...] = ()
    label: tuple[int, ...] = ()
    num_events: tuple[int, ...] = ()
    total_ns: tuple[int, ...] = ()

    def __len__(self) -> int:
        return len(self.start_ns)


class Lane(Record, frozen=True, kw_only=True):
    """One lane of the picture; rows lie below each other where ranges are nested.

    Attributes:
        way: where the critical path runs through the lane.
    """

    kind: LaneKind
    name: str
    rows: tuple[Spans, ...]
    way: Spans = Spans()
    device: int | None = None


class IdleTime(Record, frozen=True, kw_only=True):
    """The idle time of one GPU by cause, in the picture and in the whole profiled window.

    Attributes:
        window_ns, idle_ns: of the picture; every cause has an entry, together they are the time in
            which nothing ran on the GPU.
        whole_window_ns, whole_idle_ns: of all profiled steps, whose shares the verdict goes by.
        drained_ns, whole_drained_ns: the part of the host's causes that would not be there if the
            host had not waited for the GPU before; it cuts across them.
    """

    device: int
    window_ns: int
    idle_ns: dict[IdleCause, int]
    drained_ns: int
    whole_window_ns: int
    whole_idle_ns: dict[IdleCause, int]
    whole_drained_ns: int


class StepAnatomy(Record, frozen=True, kw_only=True):
    """One step, or the whole window of a trace without steps.

    Attributes:
        name: as the profiler named it; empty of the whole window.
        begins_ns: when the picture begins, as the trace counts time.
        way_ns: time on the critical path by kind; adds up to `window_ns`. Empty where it is not
            known.
        num_events, num_spans: what ran in the window, and as how many spans it is drawn.
        merged_below_ns: events that are shorter are drawn together with those beside them; 0 where
            each is drawn.
        left_out: what the picture does not show, a clause each.
        strips: what each GPU did, each moment once, for a row among those of other ranks.
        last_collective: which communication kernel ended last, as its name and how many there were;
            empty without one.
        last_collective_ns: when, from the start of the picture.
    """

    name: str
    which: WhichStep
    begins_ns: int
    window_ns: int
    lanes: tuple[Lane, ...]
    idle: tuple[IdleTime, ...] = ()
    way_ns: dict[SpanKind, int] = {}
    num_events: int = 0
    num_spans: int = 0
    merged_below_ns: int = 0
    left_out: tuple[str, ...] = ()
    strips: tuple[Lane, ...] = ()
    last_collective: str = ""
    last_collective_ns: int | None = None


class TraceAnatomy(Record, frozen=True, kw_only=True):
    """The steps of one trace that are drawn.

    Attributes:
        trace: path of the file.
        num_steps: profiled steps, of which these are drawn.
        labels: what `Spans.label` counts.
        notes: what to know of the trace before the picture is believed, a clause each.
        unavailable: why there is no picture; empty if there is one.
    """

    trace: str
    rank: int | None = None
    num_steps: int = 0
    steps: tuple[StepAnatomy, ...] = ()
    labels: tuple[Label, ...] = ()
    notes: tuple[str, ...] = ()
    unavailable: str = ""
