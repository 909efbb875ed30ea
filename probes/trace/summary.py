"""A trace in the few numbers that a trial records."""

from __future__ import annotations

from pathlib import Path

from ...records import Profile
from .metrics import NO_GPU, analyse_file
from .results import DeviceMetrics, TraceMetrics

NUM_ROWS = 10

_GPU_FIELDS = ("busy_pct", "kernel_pct", "sm_efficiency_pct", "occupancy_pct")


def summarise(path: Path | str, trace_name: str) -> Profile:
    """Reads a trace for a trial's record.

    When several GPUs worked, the one that was busy the longest is described.

    Args:
        path: the trace file.
        trace_name: what the record calls it: its path relative to the record's folder.

    Raises:
        UsageError: there is no such file, it is empty, or it is no trace.
    """
    return profile_of(analyse_file(path), trace_name)


def profile_of(metrics: TraceMetrics, trace_name: str | None) -> Profile:
    """The summary of an analysed trace."""
    device = max(metrics.devices, key=_busy, default=None)
    unavailable: dict[str, str] = {
        field: metrics.unavailable[field]
        for field in ("operators_pct", "input_wait_pct")
        if field in metrics.unavailable
    }
    if device is None:
        unavailable.update(dict.fromkeys(_GPU_FIELDS, NO_GPU))
    else:
        reasons = device.unavailable
        unavailable.update({field: reasons[field] for field in _GPU_FIELDS if field in reasons})
    if metrics.losses.any:
        unavailable["trace"] = f"the trace is damaged: {metrics.losses}"
    return Profile(
        trace=trace_name,
        num_steps=len(metrics.steps),
        busy_pct=device.busy_pct if device else None,
        kernel_pct=device.kernel_pct if device else None,
        sm_efficiency_pct=device.sm_efficiency_pct if device else None,
        occupancy_pct=device.occupancy_pct if device else None,
        operators_pct=metrics.operators_pct,
        input_wait_pct=metrics.input_wait_pct,
        operators=metrics.operators[:NUM_ROWS],
        kernels=metrics.kernels[:NUM_ROWS],
        unavailable=unavailable,
    )


def _busy(device: DeviceMetrics) -> tuple[float, int]:
    return device.busy_pct or 0.0, -device.device
