"""A trace in the few numbers that a trial records."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ...records import DeviceShare, KernelTime, MemoryCurve, Profile
from .devices import EMPTY_WINDOW
from .memory_curves import memory_curves
from .metrics import NO_GPU, Analysis
from .reader import read_trace
from .results import DeviceMetrics, TraceMetrics

NUM_ROWS = 50
"""Operators and kernels that a record lists of a profiled window."""

_OF_DEVICE = (
    "busy_pct",
    "kernel_pct",
    "compute_pct",
    "communication_pct",
    "exposed_communication_pct",
    "exposed_copy_pct",
    "sm_efficiency_pct",
    "sm_efficiency_computing_pct",
    "occupancy_pct",
    "tensor_core_pct",
    "tensor_core_unknown_pct",
    "short_kernel_pct",
    "idle",
    "longest_gap",
)
"""Fields that a profile takes of a device as they are."""
_GPU_FIELDS = (*_OF_DEVICE, "kernels_per_launch", "device_wait_pct")


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
        values = {field: getattr(device, field) for field in _OF_DEVICE}
        launches, wait_s = device.num_launches, metrics.device_wait_s
        values["kernels_per_launch"] = device.num_kernels / launches if launches else None
        waited = wait_s is not None and metrics.window_s > 0
        values["device_wait_pct"] = 100 * (wait_s or 0.0) / metrics.window_s if waited else None
        reasons = {
            **device.unavailable,
            "kernels_per_launch": device.unavailable.get("num_launches", ""),
            "device_wait_pct": metrics.unavailable.get("device_wait_s", EMPTY_WINDOW),
        }
        unavailable |= {field: reasons[field] for field in _GPU_FIELDS if values[field] is None}
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
            dependency_pct=None if device.idle is None else device.idle.dependency_pct,
        )
        for device in known
    )


def busiest(devices: Sequence[DeviceMetrics]) -> DeviceMetrics | None:
    """The GPU that was busy the longest, the first of equals."""
    return max(devices, key=lambda device: (device.busy_pct or 0.0, -device.device), default=None)
