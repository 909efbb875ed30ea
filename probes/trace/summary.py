"""A trace in the few numbers that a trial records."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ...records import DeviceShare, IdleShares, KernelTime, MemoryCurve, Profile
from .memory_curves import memory_curves
from .metrics import NO_GPU, Analysis
from .reader import read_trace
from .results import DeviceMetrics, TraceMetrics

NUM_ROWS = 50
"""Operators and kernels that a record lists of a profiled window."""

_SAME_NAME = (
    "busy_pct",
    "kernel_pct",
    "compute_pct",
    "communication_pct",
    "sm_efficiency_pct",
    "occupancy_pct",
    "tensor_core_pct",
    "tensor_core_unknown_pct",
    "short_kernel_pct",
)
"""Fields of a device's metrics that a profile takes as they are."""
_GPU_FIELDS = (
    *_SAME_NAME,
    "exposed_communication_pct",
    "exposed_copy_pct",
    "sm_efficiency_computing_pct",
    "kernels_per_launch",
    "device_wait_pct",
    "idle",
    "longest_gap",
)
_OTHER_NAMES = {
    "sm_efficiency_computing_pct": "sm_efficiency_while_computing_pct",
    "kernels_per_launch": "num_launches",
    "exposed_communication_pct": "busy_pct",
    "exposed_copy_pct": "busy_pct",
    "idle": "busy_pct",
}
"""Field of a profile -> the device's field that says why it is missing."""


def summarise(path: Path | str, trace_name: str) -> Profile:
    """Reads a trace for a trial's record.

    When several GPUs worked, the one that was busy the longest is described.

    Args:
        path: the trace file.
        trace_name: what the record calls it: its path relative to the record's folder.

    Raises:
        UsageError: there is no such file, it is empty, or it is no trace.
    """
    analysis = Analysis(read_trace(path))
    return profile_of(analysis.result(), trace_name, memory=memory_curves(analysis))


def profile_of(
    metrics: TraceMetrics,
    trace_name: str | None,
    device: DeviceMetrics | None = None,
    *,
    kernels: Sequence[KernelTime] | None = None,
    memory: Sequence[MemoryCurve] = (),
    num_rows: int = NUM_ROWS,
) -> Profile:
    """The summary of an analysed trace.

    Args:
        metrics: of the trace.
        trace_name: what the record calls it.
        device: the GPU to describe; the busiest if not given.
        kernels: all of that GPU; those of all GPUs if not given.
        memory: over a step, of the devices that the profile is about.
        num_rows: operators and kernels that are listed.
    """
    kernels = metrics.kernels if kernels is None else kernels
    device = device or busiest(metrics.devices)
    unavailable: dict[str, str] = {
        field: metrics.unavailable[field]
        for field in ("operators_pct", "input_wait_pct", "trains")
        if field in metrics.unavailable
    }
    if not metrics.steps:
        unavailable["step_s"] = "the trace has no steps"
    values: dict[str, Any] = {}
    if device is None:
        unavailable.update(dict.fromkeys(_GPU_FIELDS, metrics.unrecorded or NO_GPU))
    else:
        values = _of_device(device, metrics)
        reasons = {**metrics.unavailable, "device_wait_pct": _no_calls(metrics)}
        reasons.update(device.unavailable)
        for field in _GPU_FIELDS:
            if values[field] is None:
                why = reasons.get(field) or reasons.get(_OTHER_NAMES.get(field, ""))
                unavailable[field] = why or "the trace does not tell"
    return Profile(
        trace=trace_name,
        num_steps=len(metrics.steps),
        step_s=metrics.window_s / len(metrics.steps) if metrics.steps else None,
        **values,
        operators_pct=metrics.operators_pct,
        input_wait_pct=metrics.input_wait_pct,
        calls=metrics.calls,
        trains=metrics.trains,
        left_out=metrics.left_out,
        fault=metrics.fault,
        unrecorded=metrics.unrecorded,
        copies=() if device is None else device.copies,
        operators=metrics.operators[:num_rows],
        kernels=tuple(kernels[:num_rows]),
        operators_s=sum(operator.self_s for operator in metrics.operators),
        num_operators=len(metrics.operators),
        kernels_s=sum(kernel.total_s for kernel in kernels),
        num_kernels=len(kernels),
        stacks=metrics.stacks,
        devices=shares(metrics.devices),
        memory=tuple(memory),
        losses=f"the trace is damaged: {metrics.losses}" if metrics.losses.any else "",
        unavailable=unavailable,
    )


def shares(devices: Sequence[DeviceMetrics]) -> tuple[DeviceShare, ...]:
    """How long each of several GPUs worked in the window; nothing of a single one."""
    known = [device for device in devices if device.busy_pct is not None]
    if len(known) < 2:
        return ()
    return tuple(
        DeviceShare(
            device=device.device,
            busy_pct=device.busy_pct or 0.0,
            idle_pct=100.0 - (device.busy_pct or 0.0),
            dependency_pct=None if (idle := _idle(device)) is None else idle.dependency_pct,
        )
        for device in known
    )


def busiest(devices: Sequence[DeviceMetrics]) -> DeviceMetrics | None:
    """The GPU that was busy the longest, the first of equals."""
    return max(devices, key=lambda device: (device.busy_pct or 0.0, -device.device), default=None)


def _no_calls(metrics: TraceMetrics) -> str:
    return metrics.unavailable.get("device_wait_s", "the window is empty")


def _of_device(device: DeviceMetrics, metrics: TraceMetrics) -> dict[str, Any]:
    def share(seconds: float | None) -> float | None:
        if seconds is None or device.window_s <= 0:
            return None
        return 100 * seconds / device.window_s

    launches = device.num_launches
    return {
        **{field: getattr(device, field) for field in _SAME_NAME},
        "exposed_communication_pct": share(device.exposed_communication_s),
        "exposed_copy_pct": share(device.exposed_copy_s),
        "sm_efficiency_computing_pct": device.sm_efficiency_while_computing_pct,
        "kernels_per_launch": device.num_kernels / launches if launches else None,
        "device_wait_pct": share(metrics.device_wait_s),
        "idle": _idle(device),
        "longest_gap": device.longest_gap,
    }


def _idle(device: DeviceMetrics) -> IdleShares | None:
    idle = device.idle
    if idle is None or device.window_s <= 0:
        return None
    times = {
        "total": idle.total_s,
        "input": idle.host_input_s,
        "synchronize": idle.host_synchronize_s,
        "launch": idle.host_launch_s,
        "call": idle.host_call_s,
        "host": idle.host_other_s,
        "launch_latency": idle.launch_latency_s,
        "dependency": idle.dependency_s,
        "unknown": idle.unknown_s,
        "tail": idle.tail_s,
        "drained": idle.host_drained_s,
    }
    return IdleShares(**{f"{name}_pct": 100 * s / device.window_s for name, s in times.items()})
