"""What NVML counts: one round of questions to one GPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from ...records import Record
from .calls import NvmlRefusedError, ask, ask_either
from .processes import GpuProcess, ProcessTable

THROTTLE_NAMES = {
    0x001: "gpu_idle",
    0x002: "applications_clocks_setting",
    0x004: "sw_power_cap",
    0x008: "hw_slowdown",
    0x010: "sync_boost",
    0x020: "sw_thermal_slowdown",
    0x040: "hw_thermal_slowdown",
    0x080: "hw_power_brake_slowdown",
    0x100: "display_clock_setting",
    0x200: "board_limit",
    0x400: "reliability",
}
"""Bits of NVML's clocks-event reasons."""


class Sample(Record, frozen=True, kw_only=True, omit_defaults=True):
    """Answers to one round of questions.

    Attributes:
        time_s: when it began, on the sampler's monotonic clock.
        energy_j: the driver's energy counter, since the driver was loaded.
        throttle_reasons: `gpu_idle` included.
        pcie_tx_bytes_per_s, pcie_rx_bytes_per_s, other_processes: asked for less often than the
            rest; `None` in between.
    """

    time_s: float
    utilization_pct: float | None = None
    memory_used_bytes: int | None = None
    process_memory_bytes: int | None = None
    power_w: float | None = None
    energy_j: float | None = None
    temperature_c: float | None = None
    sm_clock_mhz: float | None = None
    throttle_reasons: tuple[str, ...] | None = None
    pcie_tx_bytes_per_s: float | None = None
    pcie_rx_bytes_per_s: float | None = None
    other_processes: tuple[GpuProcess, ...] | None = None
    unavailable: dict[str, str] = msgspec.field(default_factory=dict)


def decode_throttle(bits: int) -> tuple[str, ...]:
    """Names of the bits that are set; an unknown bit is named by its value.

    >>> decode_throttle(0x44), decode_throttle(0), decode_throttle(1 << 20)
    (('sw_power_cap', 'hw_thermal_slowdown'), (), ('unknown_0x100000',))
    """
    set_bits = (1 << place for place in range(bits.bit_length()) if bits >> place & 1)
    return tuple(THROTTLE_NAMES.get(bit, f"unknown_{bit:#x}") for bit in set_bits)


def _temperature(handle: Any) -> float:
    return float(ask_either("nvmlDeviceGetTemperatureV", "nvmlDeviceGetTemperature", handle, 0))


def _throttle(handle: Any) -> tuple[str, ...]:
    bits = ask_either(
        "nvmlDeviceGetCurrentClocksEventReasons",
        "nvmlDeviceGetCurrentClocksThrottleReasons",
        handle,
    )
    return decode_throttle(bits)


def energy_j(handle: Any) -> float:
    """The energy counter; the driver counts in millijoules."""
    return float(ask("nvmlDeviceGetTotalEnergyConsumption", handle)) / 1e3


def _pcie(handle: Any, counter: int) -> float:
    """Traffic over the 20 ms that this call lasts; the driver answers in KB/s."""
    return float(ask("nvmlDeviceGetPcieThroughput", handle, counter)) * 1e3


_FAST: dict[str, Callable[[Any], Any]] = {
    "utilization_pct": lambda handle: float(ask("nvmlDeviceGetUtilizationRates", handle).gpu),
    "memory_used_bytes": lambda handle: int(ask("nvmlDeviceGetMemoryInfo", handle).used),
    "power_w": lambda handle: ask("nvmlDeviceGetPowerUsage", handle) / 1e3,
    "energy_j": energy_j,
    "temperature_c": _temperature,
    "sm_clock_mhz": lambda handle: float(ask("nvmlDeviceGetClockInfo", handle, 1)),
    "throttle_reasons": _throttle,
}
PCIE: dict[str, Callable[[Any], Any]] = {
    "pcie_tx_bytes_per_s": lambda handle: _pcie(handle, 0),
    "pcie_rx_bytes_per_s": lambda handle: _pcie(handle, 1),
}


def read_sample(
    handle: Any, time_s: float, processes: ProcessTable | None = None, *, pcie: bool = False
) -> Sample:
    """One round of questions to one GPU; what it refuses stands in `unavailable`.

    Args:
        handle: the GPU, as NVML names it.
        time_s: the present time, for the sample.
        processes: lists the GPU's processes; `None` leaves them out.
        pcie: whether to ask for the PCIe traffic, which takes 40 ms.
    """
    values: dict[str, Any] = {}
    reasons: dict[str, str] = {}
    for field, question in (_FAST | PCIE if pcie else _FAST).items():
        try:
            values[field] = question(handle)
        except NvmlRefusedError as error:
            reasons[field] = str(error)
    if processes is not None:
        seen = processes.look(handle)
        values["process_memory_bytes"] = seen.own_bytes
        values["other_processes"] = seen.others
        reasons |= seen.unavailable
    return Sample(time_s=time_s, unavailable=reasons, **values)
