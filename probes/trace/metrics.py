"""Analyses a trace: steps, devices, breakdown, operators, input wait.

The definitions are those of torch-tb-profiler and HolisticTraceAnalysis where these agree with
what the names promise, and the corrected ones elsewhere; `results` states each.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import numpy.typing as npt

from ...records import Breakdown, KernelTime, OperatorTime
from . import intervals, tables
from . import kineto_names as vocabulary
from .columns import Ranges, Trace
from .devices import Device, NameFlags
from .event import whole_number
from .gaps import HostCalls, blocking_calls
from .health import health_of
from .intervals import IntervalSet
from .launchers import Host, Places
from .results import DeviceMetrics, StepMetrics, TraceMetrics, WindowSource
from .steps import UNKNOWN, HostSteps, launch_calls

NO_GPU = "the trace holds no GPU activity"
NO_HOST = "the trace holds no host activity"
_NO_OPERATORS = "the trace holds no CPU operators"
_NO_STEPS = "the trace holds no profiler steps"


class Analysis:
    """A trace with all that is computed once for any window; first its health is checked."""

    def __init__(self, trace: Trace) -> None:
        self.health = health_of(trace)
        self.trace = trace = self.health.trace
        self.calls = calls = launch_calls(trace.gpu, trace.launches)
        self.launched = calls.began_ns
        self.steps = self.health.steps
        self.flags = NameFlags(trace.names)
        self.inputs = self._when(trace.annotations, vocabulary.is_input_wait)
        self.synchronize = self._when(trace.launches, vocabulary.is_synchronize)
        self.causes = HostCalls(
            inputs=self.inputs,
            synchronize=self.synchronize,
            launches=self._when(trace.launches, vocabulary.is_launch),
            calls=intervals.union(trace.launches.start_ns, trace.launches.end_ns),
        ).exclusive()
        self.blocking = blocking_calls(trace.gpu, trace.launches)
        waits = self._named(trace.launches, vocabulary.is_synchronize) | self.blocking
        self.waiting = trace.launches.select(waits)
        self.waits = intervals.union(self.waiting.start_ns, self.waiting.end_ns)
        self.devices = [
            Device(
                number,
                trace.gpu,
                calls,
                trace.devices.get(number),
                self.flags,
                waits=self.waits,
            )
            for number in np.unique(trace.gpu.device).tolist()
        ]
        self.unavailable: dict[str, str] = {}

    def _named(self, ranges: Ranges, test: Callable[[str], bool]) -> npt.NDArray[np.bool_]:
        """Which of the ranges have a name that passes the test."""
        return np.array([test(name) for name in self.trace.names], bool)[ranges.name]

    def _when(self, ranges: Ranges, test: Callable[[str], bool]) -> IntervalSet:
        """The times of the ranges whose name passes the test."""
        rows = self._named(ranges, test)
        return intervals.union(ranges.start_ns[rows], ranges.end_ns[rows])

    def window(self) -> tuple[int, int, WindowSource]:
        """The window of all shares: (start, end, what it is)."""
        gpu, operators, steps = self.trace.gpu, self.trace.operators, self.steps
        if len(steps):
            end = max(int(steps.end_ns.max()), int(steps.gpu_end_ns.max()))
            return self.step_windows()[0][0], end, "steps"
        if len(gpu):
            return int(gpu.start_ns.min()), int(gpu.end_ns.max()), "GPU span"
        if len(operators):
            return int(operators.start_ns.min()), int(operators.end_ns.max()), "operators"
        calls = self.trace.launches
        if len(calls) and self.health.fault:
            return int(calls.start_ns.min()), int(calls.end_ns.max()), "calls"
        return 0, 0, "none"

    def _older_end(self) -> int:
        """When the work of older steps was done: with it the window would hold a step too many.

        A single step is timed by the host, whose range its window holds.
        """
        gpu = self.trace.gpu
        if np.count_nonzero(self.steps.gpu_end_ns > UNKNOWN) < 2:
            return UNKNOWN
        own = self.launched >= self.steps.start_ns[0]
        if not own.any():
            return UNKNOWN
        older = ~own & (gpu.start_ns < gpu.start_ns[own].min())
        return int(gpu.end_ns[older].max(initial=UNKNOWN))

    def step_windows(self) -> list[tuple[int, int]]:
        """The windows of the steps, (start, end) of each; they do not overlap."""
        windows = self.steps.windows
        if windows:
            start, end = windows[0]
            windows[0] = min(max(start, self._older_end()), end), end
        return windows

    def device_metrics(self, start: int, end: int) -> tuple[DeviceMetrics, ...]:
        """The metrics of all GPUs in a window, nanoseconds as in the trace."""
        return tuple(device.metrics(self.causes, start, end) for device in self.devices)

    def result(self) -> TraceMetrics:
        """All metrics."""
        trace = self.trace
        start, end, source = self.window()
        steps = self._step_metrics()
        step_s, step_source = self._step_time()
        if not self.devices:
            self.unavailable["devices"] = NO_GPU
            self.unavailable["kernels"] = NO_GPU
        breakdown = (
            mean([step.breakdown for step in steps])
            if steps
            else self._breakdowns([(start, end)])[0]
        )
        operators = intervals.union(trace.operators.start_ns, trace.operators.end_ns)
        return TraceMetrics(
            window_s=(end - start) / 1e9,
            window_source=source,
            step_s=step_s,
            step_source=step_source,
            steps=steps,
            breakdown=breakdown if end > start else None,
            devices=self.device_metrics(start, end),
            operators=self._operators(start, end),
            kernels=self._kernels(start, end, self.devices),
            operators_pct=self._share(operators, start, end, "operators_pct"),
            input_wait_pct=self._share(self.inputs, start, end, "input_wait_pct"),
            input_wait_s=self._input_wait(start, end),
            device_wait_s=self._device_wait(start, end),
            rank=whole_number(trace.distributed.get("rank")),
            world_size=whole_number(trace.distributed.get("world_size")),
            calls=tables.call_table(trace.launches, trace.names, start, end),
            trains=self._trains(),
            left_out=self.health.left_out,
            fault=self.health.fault,
            unrecorded=self.health.doubt,
            stacks=len(trace.python) > 0,
            losses=trace.losses,
            unavailable=self.unavailable,
        )

    def _trains(self) -> bool | None:
        """Whether a backward pass or an optimizer is in the trace."""
        if any(map(vocabulary.is_training, self.trace.names)):
            return True
        if len(self.trace.operators):
            return False
        self.unavailable["trains"] = _NO_OPERATORS
        return None

    def _has_host(self) -> bool:
        return len(self.trace.operators) + len(self.steps) > 0

    def _input_wait(self, start: int, end: int) -> float | None:
        if not self._has_host():
            self.unavailable["input_wait_s"] = NO_HOST
            return None
        return intervals.length(intervals.clip(self.inputs, start, end)) / 1e9

    def _share(self, covered: IntervalSet, start: int, end: int, field: str) -> float | None:
        if end <= start:
            self.unavailable[field] = "the trace has no window: no steps, GPU work or operators"
            return None
        if field == "operators_pct" and len(self.trace.operators) == 0:
            self.unavailable[field] = _NO_OPERATORS
            return None
        if field == "input_wait_pct" and not self._has_host():
            self.unavailable[field] = NO_HOST
            return None
        return 100.0 * intervals.length(intervals.clip(covered, start, end)) / (end - start)

    def _device_wait(self, start: int, end: int) -> float | None:
        if len(self.trace.launches) == 0:
            self.unavailable["device_wait_s"] = "the trace holds no calls of the GPU's API"
            return None
        return intervals.length(intervals.clip(self.waits, start, end)) / 1e9

    def _step_time(self) -> tuple[float | None, str]:
        if len(self.steps) == 0:
            self.unavailable["step_s"] = _NO_STEPS
            return None, ""
        step_ns, source = self.steps.pace_ns
        return step_ns / 1e9, source

    def kernels_of(self, number: int) -> tuple[KernelTime, ...]:
        """The kernels of one GPU in the window by total time, the most expensive first."""
        start, end, _ = self.window()
        return self._kernels(
            start, end, [device for device in self.devices if device.number == number]
        )

    def _breakdowns(self, windows: list[tuple[int, int]]) -> list[Breakdown]:
        return breakdowns(self.trace, self.flags, self.inputs, windows)

    def _step_metrics(self) -> tuple[StepMetrics, ...]:
        steps: HostSteps = self.steps
        windows = self.step_windows()
        parts = self._breakdowns(windows) if windows else []
        metrics = []
        for index, (start, end) in enumerate(windows):
            metrics.append(
                StepMetrics(
                    name=steps.names[index],
                    host_s=int(steps.end_ns[index] - steps.start_ns[index]) / 1e9,
                    window_s=(end - start) / 1e9,
                    breakdown=parts[index],
                    devices=self.device_metrics(start, end),
                )
            )
        return tuple(metrics)

    @functools.cached_property
    def host(self) -> Host:
        """What the host was in."""
        return Host(self.trace)

    @functools.cached_property
    def launched_from(self) -> Places:
        """Where each activity of the GPUs was launched from."""
        return self.host.of_launches(self.trace.gpu)

    def _operators(self, start: int, end: int) -> tuple[OperatorTime, ...]:
        ranges, names, nesting = self.trace.operators, self.trace.names, self.host.operators
        inside = (ranges.start_ns >= start) & (ranges.start_ns < max(end, start + 1))
        times = nesting.self_times()
        callers: tables.LaunchersOf = tables.nobody
        if len(self.trace.python):
            listed = np.flatnonzero(inside[nesting.order])
            rows = nesting.order[listed]
            callers = self.host.launchers(
                self.host.of_operators().select(listed), ranges.name[rows], times[rows]
            )
        return tables.operator_table(
            ranges.name[inside], times[inside], names, self._device_times(start, end), callers
        )

    def _device_times(self, start: int, end: int) -> intervals.Ints | None:
        """Time of the GPU's work in the window, by the name of the operator that launched it."""
        gpu, operator = self.trace.gpu, self.launched_from.operator
        if not self.devices:
            return None
        known = (operator >= 0) & (gpu.end_ns > start) & (gpu.start_ns < end)
        nesting = self.host.operators
        total = np.zeros(len(self.trace.names), np.int64)
        own = nesting.ranges.name[nesting.order[operator[known]]]
        np.add.at(total, own, (gpu.end_ns - gpu.start_ns)[known])
        return total

    def _kernels(self, start: int, end: int, devices: Sequence[Device]) -> tuple[KernelTime, ...]:
        names, durations, occupancy, numbers = [], [], [], []
        for device in devices:
            own = device.activities
            rows = (own.kind == vocabulary.KERNEL) & (own.end_ns > start) & (own.start_ns < end)
            names.append(own.name[rows])
            durations.append((own.end_ns - own.start_ns)[rows])
            occupancy.append(device.occupancy[rows])
            numbers.append(device.rows[rows])
        if not devices:
            return ()
        name, duration = np.concatenate(names), np.concatenate(durations)
        return tables.kernel_table(
            name,
            duration,
            np.concatenate(occupancy),
            self.trace.names,
            self.host.launchers(self.launched_from.select(np.concatenate(numbers)), name, duration),
        )


# Exclusive shares: where the time of a window went.


def breakdowns(
    trace: Trace, flags: NameFlags, inputs: IntervalSet, windows: list[tuple[int, int]]
) -> list[Breakdown]:
    """The breakdown of each window.

    Args:
        trace: columns.
        flags: what the trace's names say.
        inputs: when the script waited for its DataLoader.
        windows: (start, end), nanoseconds as in the trace.
    """
    starts, ends = (np.array(times, np.int64) for times in zip(*windows, strict=True))
    reached = [np.zeros(len(windows), np.int64)]
    covered = intervals.EMPTY
    for layer in _layers(trace, flags, inputs):
        covered = intervals.merge(covered, layer)
        reached.append(intervals.measure(covered, starts, ends))
    reached.append(ends - starts)
    parts = np.diff(np.stack(reached), axis=0) / 1e9
    return [
        Breakdown(
            **dict(zip(Breakdown.__struct_fields__[:-1], column, strict=True)),
            total_s=(end - start) / 1e9,
        )
        for column, (start, end) in zip(parts.T.tolist(), windows, strict=True)
    ]


def mean(parts: list[Breakdown]) -> Breakdown:
    """The mean of breakdowns, part by part."""
    return Breakdown(
        **{
            field: sum(getattr(part, field) for part in parts) / len(parts)
            for field in Breakdown.__struct_fields__
        }
    )


def _layers(trace: Trace, flags: NameFlags, inputs: IntervalSet) -> Iterator[IntervalSet]:
    """Yields the times of each kind of work, in the order of `Breakdown`."""
    gpu = trace.gpu
    kernels = gpu.kind == vocabulary.KERNEL
    communication = kernels & flags.communication[gpu.name]
    for rows in (
        kernels & ~communication,
        communication,
        gpu.kind == vocabulary.MEMCPY,
        gpu.kind == vocabulary.MEMSET,
    ):
        yield intervals.union(gpu.start_ns[rows], gpu.end_ns[rows])
    yield intervals.union(trace.launches.start_ns, trace.launches.end_ns)
    yield inputs
    yield intervals.union(trace.operators.start_ns, trace.operators.end_ns)
