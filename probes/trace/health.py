"""Whether a trace can carry a verdict, before anything of it is counted.

What cannot have been is left out or cut, and said: times of zero, work that begins before its
launch, work that outlasts what came after it on its stream. Where too much of the GPU's work is
not in the trace, or is not as it was, nothing of the GPU is believed, and that is said instead.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from ...records import TraceFault
from ...units import format_seconds
from . import kineto_names as vocabulary
from .columns import Activities, Ranges, Trace
from .intervals import Ints
from .steps import UNKNOWN, HostSteps, host_steps, launch_calls

FAR_NS = 1_000_000_000
"""An event of time zero is wrong where the next one comes so much later."""
LATEST_NS = 60_000_000_000
"""GPU work that begins this long after all work of the host has a time of another clock."""
TOLERATED = 0.05
"""Share of the GPU's events that may be wrong: the rest still carries a verdict."""
OPEN = 0.02
"""Share of the GPU's time up to which the lengths of events that were cut may be unsure."""
MISSING = 0.02
"""Share of a step's launches whose work may be missing. Of graphs none may, they are too large."""
_LAST = 2**62

_Rows = npt.NDArray[np.bool_]


class Health(msgspec.Struct, frozen=True, kw_only=True):
    """The part of a trace that counts, and why the rest does not.

    Attributes:
        trace: without what cannot have been; without any GPU work where there is a `doubt`.
        steps: those that count: the longest run of steps whose launches all have their work.
        left_out: what does not count, a clause each.
        fault: why the GPU's work carries no verdict, as a kind; empty if it does.
        doubt: the same in words.
    """

    trace: Trace
    steps: HostSteps
    left_out: tuple[str, ...] = ()
    fault: TraceFault = ""
    doubt: str = ""


def health_of(trace: Trace) -> Health:
    """Checks a trace."""
    return _Check(trace).health()


class _Missing(NamedTuple):
    """Launches, and those without work in the trace: of kernels, of graphs."""

    launches: int
    lacking: int
    graphs: int

    @property
    def too_many(self) -> bool:
        return self.graphs > 0 or self.lacking > MISSING * self.launches

    def __str__(self) -> str:
        return f"{self.lacking:,} of {self.launches:,} launches"


class _Check:
    """One check after the other; each sees what those before it left."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.left_out: list[str] = []
        self.fault: TraceFault = ""
        self.doubt = ""

    def health(self) -> Health:
        recorded = len(self.trace.gpu)
        self._times_of_zero()
        self._beside_the_launch()
        self._without_duration()
        self._ends()
        gpu = self.trace.gpu
        steps = self._one_by_one(
            host_steps(self.trace, launch_calls(gpu, self.trace.launches).began_ns)
        )
        if len(gpu) and not self.fault:
            steps = self._work_of_launches(steps)
        elif not self.fault:
            self._nothing_recorded()
        if self.fault and len(gpu):
            self.trace = _with_gpu(self.trace, gpu.select(np.zeros(len(gpu), bool)))
            nothing = np.full(len(steps), UNKNOWN, np.int64)
            steps = msgspec.structs.replace(
                steps, gpu_end_ns=nothing, num_launched=np.zeros(len(steps), np.int64)
            )
        if recorded and self.trace.unread_devices:
            kinds = ", ".join(self.trace.unread_devices)
            self.left_out.append(
                f"events of an accelerator that this version does not read: {kinds}"
            )
        return Health(
            trace=self.trace,
            steps=steps,
            left_out=tuple(self.left_out),
            fault=self.fault,
            doubt=self.doubt,
        )

    def _one_by_one(self, steps: HostSteps) -> HostSteps:
        """A step ends before the next begins."""
        latest = np.append(steps.start_ns[1:], _LAST)
        late = steps.end_ns > latest + CLOCKS_NS
        if late.any():
            self.left_out.append(f"what {_names(steps, late)} had left when the next began")
        return msgspec.structs.replace(steps, end_ns=np.minimum(steps.end_ns, latest))

    def _times_of_zero(self) -> None:
        """Events at time zero of a trace that begins much later were never given a time."""
        trace = self.trace
        groups = (trace.gpu, trace.launches, trace.operators, trace.annotations)
        begun = [group.start_ns[group.start_ns > 0] for group in groups]
        first = min((int(times.min()) for times in begun if len(times)), default=0)
        if first <= FAR_NS:
            return
        zero = [group.start_ns <= 0 for group in groups]
        count = sum(int(rows.sum()) for rows in zero)
        if not count:
            return
        self.left_out.append(f"{_events(count)} with a time of zero")
        kept = [~rows for rows in zero]
        self.trace = msgspec.structs.replace(
            trace,
            gpu=trace.gpu.select(kept[0]),
            launches=trace.launches.select(kept[1]),
            operators=trace.operators.select(kept[2]),
            annotations=trace.annotations.select(kept[3]),
        )
        if int(zero[0].sum()) > TOLERATED * len(trace.gpu):
            self._refuse(
                "times", f"{int(zero[0].sum()):,} of {len(trace.gpu):,} GPU events have no time"
            )

    def _beside_the_launch(self) -> None:
        gpu = self.trace.gpu
        began = launch_calls(gpu, self.trace.launches).began_ns
        early = (began > UNKNOWN) & (gpu.start_ns < began - CLOCKS_NS)
        self._drop(early, "before the call that launched it")
        gpu, hosts = self.trace.gpu, (self.trace.launches, self.trace.operators)
        ends = [int(group.end_ns.max()) for group in hosts if len(group)]
        if ends:
            self._drop(
                gpu.start_ns > max(ends) + LATEST_NS, "more than a minute after the host's last"
            )

    def _drop(self, rows: _Rows, what: str) -> None:
        count, gpu = int(rows.sum()), self.trace.gpu
        if not count:
            return
        begins = "begins" if count == 1 else "begin"
        if count > TOLERATED * len(gpu):
            self._refuse(
                "times",
                f"{count:,} of {len(gpu):,} GPU events {begins} {what}: the times of host and GPU "
                "do not go together",
            )
        self.left_out.append(f"{_events(count, gpu=True)} that {begins} {what}")
        self.trace = _with_gpu(self.trace, gpu.select(~rows))

    def _without_duration(self) -> None:
        """A kernel takes time: one without was not measured, unless whole microseconds are all."""
        gpu = self.trace.gpu
        kernels = gpu.kind == vocabulary.KERNEL
        empty = kernels & (gpu.end_ns <= gpu.start_ns)
        count, whole = int(empty.sum()), int(kernels.sum())
        coarse = not ((gpu.start_ns % 1000).any() or (gpu.end_ns % 1000).any())
        if not count or (coarse and 2 * count <= whole):
            return
        self.left_out.append(f"{count:,} of {whole:,} kernels, which have no duration")
        self.trace = _with_gpu(self.trace, gpu.select(~empty))
        if count > TOLERATED * whole:
            self._refuse("times", f"{count:,} of {whole:,} kernels have no duration")

    def _ends(self) -> None:
        for latest, what in (
            (ends_in_order, "after later ones of the same stream"),
            (ends_before_waits, "after the host has waited for all work"),
            (ends_with_the_rest, "long after everything else in the trace"),
        ):
            self._cut(latest(self.trace), what)

    def _cut(self, latest: Ints, what: str) -> None:
        """Ends events that end too late at the latest possible time.

        If that leaves much open of how long they took they are left out, and lack in their steps.
        """
        gpu = self.trace.gpu
        wrong = latest < gpu.end_ns
        count = int(wrong.sum())
        if not count:
            return
        ends = "ends" if count == 1 else "end"
        text = f"{_events(count, gpu=True)} that {ends} {what}, which cannot be"
        lost = int((gpu.end_ns - latest)[wrong].sum()) / 1e9
        span = int(gpu.start_ns.max()) - int(gpu.start_ns.min())
        if int((latest - gpu.start_ns)[wrong].sum()) <= OPEN * span:
            self.left_out.append(f"{format_seconds(lost)} of {text}")
            gpu = msgspec.structs.replace(gpu, end_ns=np.minimum(gpu.end_ns, latest))
        else:
            self.left_out.append(text)
            gpu = gpu.select(~wrong)
        self.trace = _with_gpu(self.trace, gpu)
        if count > max(TOLERATED * len(wrong), 1):
            self._refuse(
                "times",
                f"{count:,} of {len(wrong):,} GPU events {ends} {what}: their durations are "
                "wrong, or several queues stand under one stream",
            )

    def _work_of_launches(self, steps: HostSteps) -> HostSteps:
        """The steps whose launches have their work in the trace."""
        trace = self.trace
        calls = trace.launches
        launches = np.array([vocabulary.launches_work(name) for name in trace.names], bool)
        rows = launches[calls.name] & (calls.correlation >= 0)
        calls = calls.select(rows)
        has = np.isin(calls.correlation, trace.gpu.correlation)
        if not len(calls) or not np.isin(trace.gpu.correlation, trace.launches.correlation).any():
            return steps  # activities without numbers of calls, or of other calls: nothing to say
        graphs = np.array([vocabulary.is_graph(name) for name in trace.names], bool)[calls.name]
        if len(steps) == 0:
            self._without_steps(calls, has, graphs)
            return steps
        step = np.searchsorted(steps.start_ns, calls.start_ns, side="right") - 1
        step[(step >= 0) & (calls.start_ns > steps.end_ns[np.maximum(step, 0)])] = -1
        counts = [_count(has, graphs, step == number) for number in range(len(steps))]
        bad = np.array([missing.too_many for missing in counts], bool)
        if not bad.any():
            whole = _count(has, graphs, step >= 0)
            if whole.lacking:
                self.left_out.append(f"the work of {whole}, which the profiler did not record")
            return steps
        start, stop = _longest_run(~bad)
        lacking = _count(has, graphs, bad[np.maximum(step, 0)] & (step >= 0))
        if start == stop:
            self._refuse(
                "records missing",
                f"for {lacking} the profiler recorded no work of the GPU, so that how long it "
                "worked is not known",
            )
            return steps
        text = f"{_names(steps, bad)}: for {lacking} the profiler recorded no work of the GPU"
        beside = ~bad
        beside[start:stop] = False
        if beside.any():
            text += f"; {_names(steps, beside)}, not in a row with those that are judged"
        self.left_out.append(text)
        return steps.select(slice(start, stop))

    def _without_steps(self, calls: Ranges, has: _Rows, graphs: _Rows) -> None:
        """Launches before the first that has work, and after the last, are outside the window."""
        inside = np.zeros(len(calls), bool)
        order = np.argsort(calls.start_ns, kind="stable")
        known = np.flatnonzero(has[order])
        first, last = (known[0], known[-1]) if len(known) else (0, len(order))
        inside[order[first : last + 1]] = True
        missing, outside = _count(has, graphs, inside), _count(has, graphs, ~inside)
        if missing.too_many:
            self._refuse(
                "records missing",
                f"for {_count(has, graphs, np.ones(len(calls), bool))} the profiler recorded no "
                "work of the GPU, so that how long it worked is not known",
            )
        elif missing.lacking + outside.lacking:
            self.left_out.append(
                f"the work of {_count(has, graphs, np.ones(len(calls), bool))}, which the profiler "
                "did not record"
            )

    def _nothing_recorded(self) -> None:
        """A device that the script surely used, and of whose work the trace holds nothing."""
        trace = self.trace
        work = np.array([vocabulary.is_work(name) for name in trace.names], bool)
        if trace.unread_devices:
            kinds = ", ".join(trace.unread_devices)
            self._refuse(
                "another accelerator",
                f"events of an accelerator that this version does not read ({kinds})",
            )
        elif work[trace.launches.name].any():
            calls = len(trace.launches)
            self._refuse(
                "nothing recorded",
                f"no GPU activity was recorded: the trace holds {calls} "
                f"call{'s' if calls > 1 else ''} of the GPU's API, and neither a kernel nor a copy",
            )

    def _refuse(self, fault: TraceFault, doubt: str) -> None:
        if not self.fault:
            self.fault, self.doubt = fault, doubt


def _with_gpu(trace: Trace, gpu: Activities) -> Trace:
    return msgspec.structs.replace(trace, gpu=gpu)


def _count(has: _Rows, graphs: _Rows, rows: _Rows) -> _Missing:
    lacking = rows & ~has
    return _Missing(int(rows.sum()), int(lacking.sum()), int((lacking & graphs).sum()))


def _names(steps: HostSteps, rows: _Rows) -> str:
    """`step 3`, or `steps 3, 4, 5`."""
    own = [steps.names[n].removeprefix(vocabulary.STEP_PREFIX) for n in np.flatnonzero(rows)]
    more = f" and {len(own) - 5} more" if len(own) > 5 else ""
    return f"step{'s' if len(own) > 1 else ''} {', '.join(own[:5])}{more}"


def _longest_run(good: _Rows) -> tuple[int, int]:
    """(start, stop) of the longest run, the first of equals; equal where there is none."""
    edges = np.flatnonzero(np.diff(np.concatenate(([False], good, [False])).astype(np.int8)))
    starts, stops = edges[::2], edges[1::2]
    if len(starts) == 0:
        return 0, 0
    longest = int(np.argmax(stops - starts))
    return int(starts[longest]), int(stops[longest])


def _events(count: int, *, gpu: bool = False) -> str:
    return f"{count:,} {'GPU ' if gpu else ''}event{'' if count == 1 else 's'}"


# When work on a GPU ended at the latest, by what came after it; profilers may write other ends.

CLOCKS_NS = 1_000_000
"""Clocks of host and device may differ by so much."""
MANY = 100
"""Events from which on the last one is not believed if it outlasts all the rest of the trace."""


def ends_in_order(trace: Trace) -> Ints:
    """A stream runs in order: an event that outlasts a later one ended where the next began.

    A kernel may begin before its neighbour has ended on newer GPUs, and is not measured so exactly
    that it could not seem to end first; the one after that waits for both.
    """
    gpu = trace.gpu
    ends: Ints = gpu.end_ns.copy()
    for rows in _streams(gpu):
        start, end = gpu.start_ns[rows], gpu.end_ns[rows]
        lasting = end > start  # copies below the clock's resolution have no length of their own
        first = np.minimum.accumulate(np.where(lasting, end, _LAST)[::-1])[::-1]
        beyond = np.append(first[2:], _LAST)
        wrong = np.flatnonzero((end[:-1] > beyond) | (end[:-1] > first[1:] + CLOCKS_NS))
        following = np.searchsorted(start, start[wrong], side="right")
        cut = start[np.minimum(following, len(start) - 1)]
        ends[rows[wrong]] = np.maximum(cut, start[wrong])
    return ends


def _streams(gpu: Activities) -> list[Ints]:
    """Rows of each stream, sorted by start; what states no stream is nobody's."""
    order = np.lexsort((gpu.end_ns, gpu.start_ns, gpu.stream, gpu.device))
    order = order[gpu.stream[order] >= 0]
    device, stream = gpu.device[order], gpu.stream[order]
    bounds = np.flatnonzero((device[1:] != device[:-1]) | (stream[1:] != stream[:-1])) + 1
    return [rows for rows in np.split(order, bounds) if len(rows) > 1]


def ends_before_waits(trace: Trace) -> Ints:
    """A call that waits for the device comes back when all has ended that was launched before."""
    gpu, calls = trace.gpu, trace.launches
    names = np.array([vocabulary.waits_for_device(name) for name in trace.names], bool)
    waits = np.flatnonzero(names[calls.name])
    # Of several devices it waits for one, and it is not said for which.
    if len(waits) == 0 or len(np.unique(gpu.device)) != 1:
        return gpu.end_ns
    waits = waits[np.argsort(calls.start_ns[waits], kind="stable")]
    began = launch_calls(gpu, calls).began_ns
    given = np.where(began > UNKNOWN, began, gpu.start_ns)
    after = np.searchsorted(calls.start_ns[waits], given)
    limit = np.full(len(gpu), _LAST, np.int64)
    known = after < len(waits)
    limit[known] = calls.end_ns[waits[after[known]]]
    wrong = gpu.end_ns > limit + CLOCKS_NS
    return np.where(wrong, np.maximum(limit, gpu.start_ns), gpu.end_ns)


def ends_with_the_rest(trace: Trace) -> Ints:
    """The last event does not go on, after all else has ended, for longer than all else took."""
    gpu = trace.gpu
    if len(gpu) < MANY:
        return gpu.end_ns
    row = int(np.argmax(gpu.end_ns))
    others = np.arange(len(gpu)) != row
    hosts = (trace.launches, trace.operators, trace.annotations)
    ends = [gpu.end_ns[others], *(group.end_ns for group in hosts)]
    starts = [gpu.start_ns, *(group.start_ns for group in hosts)]
    last = max(int(times.max()) for times in ends if len(times))
    first = min(int(times.min()) for times in starts if len(times))
    cut: Ints = gpu.end_ns.copy()
    if int(cut[row]) - last > last - first:
        cut[row] = max(last, int(gpu.start_ns[row]))
    return cut
