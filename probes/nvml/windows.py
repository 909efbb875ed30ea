"""A window: its two edges, and the summary of the samples between them.

`utilization_pct` and `power_w` are averages that the driver keeps over up to a second. A sample
soon after a window began still tells of the time before it, so it is left out of the summary.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from ...records import GPU_LIMITS, Counters
from ...units import MIB
from .calls import NvmlRefusedError, ask
from .counters import PCIE, Sample, energy_j
from .gpus import whole_of
from .processes import GpuProcess

AVERAGED_S = 1.0
"""The longest time over which a driver averages utilisation and power (NVML's manual: 1/6..1 s)."""

GPM_SHORTEST_S = 0.5
"""The shortest window of GPM samples that is taken.

NVML's manual asks for more than 0.1 s. The counters move about as often: an H100 showed 23 % of SM
activity over a window of 0.15 s in which its kernels ran for 97 % of the time. At 0.5 s the edges
are off by about a fifth at most, an estimate from that period, and by less in longer windows."""

GPM_FIELDS = {
    "sm_active_pct": 2,  # NVML_GPM_METRIC_SM_UTIL
    "sm_occupancy_pct": 3,  # NVML_GPM_METRIC_SM_OCCUPANCY
    "tensor_active_pct": 5,  # NVML_GPM_METRIC_ANY_TENSOR_UTIL
    "dram_active_pct": 10,  # NVML_GPM_METRIC_DRAM_BW_UTIL
    "pcie_tx_bytes_per_s": 20,  # NVML_GPM_METRIC_PCIE_TX_PER_SEC, in MiB/s
    "pcie_rx_bytes_per_s": 21,  # NVML_GPM_METRIC_PCIE_RX_PER_SEC, in MiB/s
}

MEASURED = tuple(
    name
    for name in Counters.__struct_fields__
    if name not in {"num_samples", "energy_update_s", "unavailable"}
)
"""The fields of `Counters` that must have a value or a reason."""


class Edges:
    """The energy counter and a GPM sample, read as a window begins and again as it ends.

    Args:
        handle: the GPU.
        began_s: when the window began.
        gpm_refused: why this GPU has no GPM counters; `None` when it has.
    """

    def __init__(self, handle: Any, began_s: float, gpm_refused: str | None) -> None:
        self._handle = handle
        self._began_s = began_s
        self._reasons: dict[str, str] = {}
        self._gpm: Any = None
        self._energy_j: float | None = None
        try:
            self._energy_j = energy_j(handle)
        except NvmlRefusedError as error:
            self._reasons["energy_j"] = str(error)
        if gpm_refused is not None:  # the PCIe traffic then comes from the samples
            self._reasons |= {field: gpm_refused for field in GPM_FIELDS if field not in PCIE}
        else:
            try:
                self._gpm = _gpm_sample(handle)
            except NvmlRefusedError as error:
                self._reasons |= dict.fromkeys(GPM_FIELDS, str(error))

    def close(self, ended_s: float) -> tuple[dict[str, Any], dict[str, str]]:
        """Values and reasons over the window; the GPM buffers are given back."""
        values = self._gpm_values(ended_s) if self._gpm is not None else {}
        if self._energy_j is not None:
            try:
                used_j = energy_j(self._handle) - self._energy_j
            except NvmlRefusedError as error:
                self._reasons["energy_j"] = str(error)
            else:
                if used_j > 0:
                    values["energy_j"] = used_j
                else:
                    self._reasons["energy_j"] = (
                        "the driver's energy counter started anew during the window"
                        if used_j < 0
                        else "the driver's energy counter did not move during the window"
                    )
        reasons = {field: text for field, text in self._reasons.items() if field not in values}
        return values, reasons

    def discard(self) -> None:
        """Gives the GPM buffer back without reading."""
        _gpm_free(self._gpm)
        self._gpm = None

    def _gpm_values(self, ended_s: float) -> dict[str, Any]:
        lasted_s = ended_s - self._began_s
        if lasted_s <= GPM_SHORTEST_S:
            msg = (
                f"the window lasted {lasted_s:.2f} s: GPM's counters move too seldom for less "
                f"than {GPM_SHORTEST_S} s"
            )
            self._reasons |= dict.fromkeys(GPM_FIELDS, msg)
            self.discard()
            return {}
        last: Any = None
        values: dict[str, Any] = {}
        try:
            last = _gpm_sample(self._handle)
            values, refused = _gpm_metrics(self._gpm, last)
            self._reasons |= refused
        except NvmlRefusedError as error:
            self._reasons |= dict.fromkeys(GPM_FIELDS, str(error))
        finally:
            _gpm_free(last)
            self.discard()
        return values


def gpm_refused(handle: Any) -> str | None:
    """Why this GPU has no GPM counters; `None` when it has."""
    try:
        if ask("nvmlGpmQueryDeviceSupport", whole_of(handle)[0]).isSupportedDevice:
            return None
    except NvmlRefusedError as error:
        return str(error)
    return "this GPU has no GPM counters, Hopper and newer ones do"


def _gpm_sample(handle: Any) -> Any:
    buffer = ask("nvmlGpmSampleAlloc")
    try:
        whole, instance = whole_of(handle)
        if instance is None:
            ask("nvmlGpmSampleGet", whole, buffer)
        else:
            ask("nvmlGpmMigSampleGet", whole, instance, buffer)
    except NvmlRefusedError:
        _gpm_free(buffer)
        raise
    return buffer


def _gpm_free(buffer: Any) -> None:
    if buffer is not None:
        try:
            ask("nvmlGpmSampleFree", buffer)
        except NvmlRefusedError:
            return  # a leak of a few kilobytes; nothing in the result depends on it


def _gpm_metrics(first: Any, last: Any) -> tuple[dict[str, Any], dict[str, str]]:
    import pynvml

    query = pynvml.c_nvmlGpmMetricsGet_t()
    query.version = pynvml.NVML_GPM_METRICS_GET_VERSION
    query.numMetrics = len(GPM_FIELDS)
    query.sample1, query.sample2 = first, last
    for place, metric in enumerate(GPM_FIELDS.values()):
        query.metrics[place].metricId = metric
    ask("nvmlGpmMetricsGet", query)
    values: dict[str, Any] = {}
    reasons: dict[str, str] = {}
    for place, field in enumerate(GPM_FIELDS):
        answer = query.metrics[place]
        if answer.nvmlReturn != pynvml.NVML_SUCCESS:
            words = str(pynvml.NVMLError(answer.nvmlReturn))
            reasons[field] = f"nvmlGpmMetricsGet: {words} (NVML code {answer.nvmlReturn})"
        elif not math.isfinite(answer.value):
            reasons[field] = f"nvmlGpmMetricsGet: answered {answer.value}"
        else:
            values[field] = answer.value * (1 if field.endswith("_pct") else MIB)
    return values, reasons


def summarise(
    samples: Sequence[Sample],
    *,
    began_s: float,
    ended_s: float,
    steady_s: float,
    at_edges: dict[str, Any],
    reasons: dict[str, str],
) -> Counters:
    """One window's samples and edges as `Counters`; every field has a value or a reason.

    Args:
        samples: those whose time lies within the window.
        began_s, ended_s: the window.
        steady_s: how long the same work had been running before it began.
        at_edges: what the edges measured; goes before the samples.
        reasons: why the edges could not measure the rest.
    """
    values: dict[str, Any] = {"window_s": ended_s - began_s}
    for field in ("temperature_c", "sm_clock_mhz", *PCIE):
        values[field] = _over(samples, field, statistics.median)
    for field in ("memory_used_bytes", "process_memory_bytes"):
        values[field] = _over(samples, field, max)
    settled = [sample for sample in samples if sample.time_s >= began_s + AVERAGED_S - steady_s]
    for field in ("utilization_pct", "power_w"):
        values[field] = _over(settled, field, statistics.median)
    throttles = [
        sample.throttle_reasons for sample in samples if sample.throttle_reasons is not None
    ]
    named = Counter(name for names in throttles for name in names if name != "gpu_idle")
    if throttles:
        limited = sum(1 for names in throttles if GPU_LIMITS.intersection(names))
        values["throttled_pct"] = 100 * limited / len(throttles)
    listings = [sample.other_processes for sample in samples if sample.other_processes is not None]
    values |= at_edges
    values = {field: value for field, value in values.items() if value is not None}

    why = {field: text for sample in samples for field, text in sample.unavailable.items()}
    if "throttle_reasons" in why:
        why["throttled_pct"] = why["throttle_reasons"]
    why |= reasons
    if samples and not settled:
        too_soon = f"the driver averages it over {AVERAGED_S:g} s, the window was shorter"
        why = dict.fromkeys(("utilization_pct", "power_w"), too_soon) | why
    present = set(values)
    present |= {"throttle_reasons"} if throttles else set()
    present |= {"other_processes"} if listings else set()
    return Counters(
        num_samples=len(samples),
        energy_update_s=energy_update_s(samples),
        throttle_reasons=tuple(name for name, _ in named.most_common()),
        other_processes=_merge(listings),
        unavailable={
            field: why.get(field, "it was not read during the window")
            for field in MEASURED
            if field not in present
        },
        **values,
    )


def energy_update_s(samples: Sequence[Sample]) -> float | None:
    """Seconds between two moves of the energy counter, `None` where samples do not show them.

    They show them where it stood still between some: where it moved between all it is faster.
    """
    read = [(sample.time_s, sample.energy_j) for sample in samples if sample.energy_j is not None]
    moved = [later[0] for earlier, later in itertools.pairwise(read) if later[1] != earlier[1]]
    if not moved or len(moved) == len(read) - 1:
        return None
    return (moved[-1] - read[0][0]) / len(moved)


def _over(samples: Sequence[Sample], field: str, statistic: Callable[[list[Any]], Any]) -> Any:
    values = [value for sample in samples if (value := getattr(sample, field)) is not None]
    return statistic(values) if values else None


def _merge(listings: Sequence[tuple[GpuProcess, ...]]) -> tuple[str, ...]:
    """Every process once, with the most memory that it was seen with."""
    largest: dict[int, GpuProcess] = {}
    for process in (process for listing in listings for process in listing):
        before = largest.get(process.pid)
        if before is None or (process.memory_bytes or 0) > (before.memory_bytes or 0):
            largest[process.pid] = process
    return tuple(str(largest[pid]) for pid in sorted(largest))
