"""Analyses a trace: steps, devices, breakdown, operators, input wait.

The definitions are those of torch-tb-profiler and HolisticTraceAnalysis where these agree with
what the names promise, and the corrected ones elsewhere; `results` states each.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt

from ...records import KernelTime, OperatorTime
from . import events as vocabulary
from . import intervals, tables
from .columns import Ranges, Trace
from .devices import Device, NameFlags
from .gaps import HostCalls
from .intervals import IntervalSet
from .reader import read_trace
from .results import Breakdown, DeviceMetrics, StepMetrics, TraceMetrics, WindowSource
from .steps import UNKNOWN, HostSteps, host_steps, launch_starts

NO_GPU = "the trace holds no GPU activity"
_NO_STEPS = "the trace holds no profiler steps"


def analyse_file(path: Path | str) -> TraceMetrics:
    """Reads a trace and analyses it.

    Raises:
        UsageError: there is no such file, it is empty, or it is no trace.
    """
    return analyse(read_trace(path))


def analyse(trace: Trace) -> TraceMetrics:
    """All metrics of a trace."""
    return Analysis(trace).result()


class Analysis:
    """A trace with all that is computed once for any window."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.launched = launch_starts(trace.gpu, trace.launches)
        self.steps = host_steps(trace, self.launched)
        self.flags = NameFlags(trace.names)
        self.inputs = _covered(
            trace.annotations.select(self._named(trace.annotations, vocabulary.is_input_wait))
        )
        synchronize = self._named(trace.launches, vocabulary.is_synchronize)
        self.host = HostCalls(
            inputs=self.inputs,
            synchronize=_covered(trace.launches.select(synchronize)),
            launches=_covered(
                trace.launches.select(self._named(trace.launches, vocabulary.is_launch))
            ),
            calls=_covered(trace.launches),
        )
        self.causes = self.host.exclusive()
        self.devices = [
            Device(
                number,
                trace.gpu.select(trace.gpu.device == number),
                self.launched[trace.gpu.device == number],
                trace.devices.get(number),
                self.flags,
            )
            for number in np.unique(trace.gpu.device).tolist()
        ]
        self.layers = self._layers()
        self.unavailable: dict[str, str] = {}

    def _named(self, ranges: Ranges, test: Callable[[str], bool]) -> npt.NDArray[np.bool_]:
        """Rows whose name passes the test."""
        wanted = np.array([test(name) for name in self.trace.names], bool)
        return np.asarray(wanted[ranges.name], bool)

    def window(self) -> tuple[int, int, WindowSource]:
        """The window of all shares: (start, end, what it is)."""
        gpu, operators, steps = self.trace.gpu, self.trace.operators, self.steps
        if len(steps):
            end = max(int(steps.end_ns.max()), int(steps.gpu_end_ns.max()))
            return int(steps.start_ns[0]), end, "steps"
        if len(gpu):
            return int(gpu.start_ns.min()), int(gpu.end_ns.max()), "GPU span"
        if len(operators):
            return int(operators.start_ns.min()), int(operators.end_ns.max()), "operators"
        return 0, 0, "none"

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
            _mean([step.breakdown for step in steps])
            if steps
            else _breakdown(self.layers, start, end)
        )
        operators = _covered(trace.operators)
        return TraceMetrics(
            window_s=(end - start) / 1e9,
            window_source=source,
            step_s=step_s,
            step_source=step_source,
            steps=steps,
            breakdown=breakdown if end > start else None,
            devices=self.device_metrics(start, end),
            operators=self._operators(start, end),
            kernels=self._kernels(start, end),
            operators_pct=self._share(operators, start, end, "operators_pct"),
            input_wait_pct=self._share(self.inputs, start, end, "input_wait_pct"),
            input_wait_s=intervals.length(intervals.clip(self.inputs, start, end)) / 1e9,
            synchronize_s=self._synchronize(start, end),
            num_unlaunched=int((self.launched == UNKNOWN).sum()),
            losses=trace.losses,
            unavailable=self.unavailable,
        )

    def _share(self, covered: IntervalSet, start: int, end: int, field: str) -> float | None:
        if end <= start:
            self.unavailable[field] = "the trace has no window: no steps, GPU work or operators"
            return None
        if field == "operators_pct" and len(self.trace.operators) == 0:
            self.unavailable[field] = "the trace holds no CPU operators"
            return None
        if field == "input_wait_pct" and len(self.trace.operators) + len(self.steps) == 0:
            self.unavailable[field] = "the trace holds no host activity"
            return None
        return 100.0 * intervals.length(intervals.clip(covered, start, end)) / (end - start)

    def _synchronize(self, start: int, end: int) -> float | None:
        if len(self.trace.launches) == 0:
            self.unavailable["synchronize_s"] = "the trace holds no calls of the GPU's API"
            return None
        return intervals.length(intervals.clip(self.host.synchronize, start, end)) / 1e9

    def _step_time(self) -> tuple[float | None, str]:
        if len(self.steps) == 0:
            self.unavailable["step_s"] = _NO_STEPS
            return None, ""
        spans, source = self.steps.intervals_ns
        return sum(spans) / len(spans) / 1e9, source

    def _layers(self) -> list[IntervalSet]:
        """What can go on at a moment, in the order of `Breakdown`, each with all before it."""
        gpu, trace = self.trace.gpu, self.trace
        communication = self.flags.communication[gpu.name] if len(gpu) else np.zeros(0, bool)
        kernels = gpu.kind == vocabulary.KERNEL
        layers = [
            intervals.union(gpu.start_ns[rows], gpu.end_ns[rows])
            for rows in (
                kernels & ~communication,
                kernels & communication,
                gpu.kind == vocabulary.MEMCPY,
                gpu.kind == vocabulary.MEMSET,
            )
        ]
        layers += [_covered(trace.launches), self.inputs, _covered(trace.operators)]
        for index in range(1, len(layers)):
            layers[index] = intervals.merge(layers[index - 1], layers[index])
        return layers

    def _step_metrics(self) -> tuple[StepMetrics, ...]:
        steps: HostSteps = self.steps
        windows = steps.windows
        found = []
        for index, (start, end) in enumerate(windows):
            gpu_end = int(steps.gpu_end_ns[index])
            host_end = int(steps.end_ns[index])
            found.append(
                StepMetrics(
                    name=steps.names[index],
                    host_s=(host_end - int(steps.start_ns[index])) / 1e9,
                    window_s=(end - start) / 1e9,
                    host_ahead_s=(gpu_end - host_end) / 1e9 if gpu_end > UNKNOWN else None,
                    num_activities=int(steps.num_launched[index]),
                    breakdown=_breakdown(self.layers, start, end),
                    devices=tuple(
                        device.metrics(self.causes, start, end) for device in self.devices
                    ),
                )
            )
        return tuple(found)

    def _operators(self, start: int, end: int) -> tuple[OperatorTime, ...]:
        ranges = self.trace.operators
        inside = (ranges.start_ns >= start) & (ranges.start_ns < max(end, start + 1))
        return tables.operator_table(ranges.select(inside), self.trace.names)

    def _kernels(self, start: int, end: int) -> tuple[KernelTime, ...]:
        parts, occupancy = [], []
        for device in self.devices:
            own = device.activities
            rows = (own.kind == vocabulary.KERNEL) & (own.end_ns > start) & (own.start_ns < end)
            parts.append(own.select(rows))
            occupancy.append(device.occupancy[rows])
        if not parts:
            return ()
        merged = (
            parts[0]
            if len(parts) == 1
            else type(parts[0])(
                **{
                    field: np.concatenate([getattr(part, field) for part in parts])
                    for field in parts[0].__struct_fields__
                }
            )
        )
        return tables.kernel_table(merged, np.concatenate(occupancy), self.trace.names)


def _covered(ranges: Ranges) -> IntervalSet:
    return intervals.union(ranges.start_ns, ranges.end_ns)


def _breakdown(layers: list[IntervalSet], start: int, end: int) -> Breakdown:
    window = (np.array([start]), np.array([end]))
    covered = [int(intervals.measure(layer, *window)[0]) for layer in layers]
    parts = np.diff([0, *covered, end - start]) / 1e9
    return Breakdown(
        **dict(zip(Breakdown.__struct_fields__[:-1], parts.tolist(), strict=True)),
        total_s=(end - start) / 1e9,
    )


def _mean(breakdowns: list[Breakdown]) -> Breakdown:
    return Breakdown(
        **{
            field: sum(getattr(one, field) for one in breakdowns) / len(breakdowns)
            for field in Breakdown.__struct_fields__
        }
    )
