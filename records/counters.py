"""NVML's counters over a window, and what its reasons for lower clocks mean, by their names.

The bits are those of NVML's `nvmlClocksEventReasons`; their names are read in probes.
"""

from __future__ import annotations

from .base import Record

GPU_LIMITS = frozenset(
    {
        "hw_slowdown",
        "sw_thermal_slowdown",
        "hw_thermal_slowdown",
        "hw_power_brake_slowdown",
    }
)
"""Something holds the GPU back: heat, a hardware brake, a brake from outside on power."""

GPU_SETTINGS = {
    "applications_clocks_setting": "application clocks that somebody set",
    "sw_power_cap": "its power limit, as a data-centre GPU does whenever it is full",
    "sync_boost": "clocks that are kept the same on several GPUs",
    "display_clock_setting": "the clocks of its display",
}
"""How the GPU is run; every size meets it, so that it is no reason to doubt one."""


class Counters(Record, frozen=True, kw_only=True):
    """NVML's readings over a window: medians over its samples, unless told otherwise below.

    Attributes:
        window_s: how long the window lasted; `energy_j` was used in it.
        utilization_pct: share of time in which at least one kernel ran, however small.
        memory_used_bytes: the highest value seen on the device, other processes included.
        process_memory_bytes: the highest value seen of the probed processes alone.
        energy_j: the driver's energy counter, end of the window less its begin.
        energy_update_s: between two moves of the counter, where samples saw it stand still.
        throttle_reasons: what lowered the clocks in any sample, the most frequent first; an idle
            GPU is no reason.
        throttled_pct: share of samples in which a power or thermal limit lowered the clocks.
        other_processes: compute processes on the GPU that are not the probed ones.
        sm_active_pct: share of multiprocessors that had work, averaged over the window.
        sm_occupancy_pct: resident warps over the most that the hardware holds.
        tensor_active_pct: share of time in which tensor cores worked.
        dram_active_pct: memory bandwidth used over the theoretical maximum.
        pcie_tx_bytes_per_s, pcie_rx_bytes_per_s: from and to the GPU.
    """

    num_samples: int = 0
    window_s: float | None = None
    utilization_pct: float | None = None
    memory_used_bytes: int | None = None
    process_memory_bytes: int | None = None
    power_w: float | None = None
    energy_j: float | None = None
    energy_update_s: float | None = None
    temperature_c: float | None = None
    sm_clock_mhz: float | None = None
    throttle_reasons: tuple[str, ...] = ()
    throttled_pct: float | None = None
    other_processes: tuple[str, ...] = ()
    sm_active_pct: float | None = None
    sm_occupancy_pct: float | None = None
    tensor_active_pct: float | None = None
    dram_active_pct: float | None = None
    pcie_tx_bytes_per_s: float | None = None
    pcie_rx_bytes_per_s: float | None = None
    unavailable: dict[str, str] = {}

    @property
    def mean_w(self) -> float | None:
        """Mean power: the energy counter over the window's time, else the median of the samples."""
        if self.energy_j is not None and self.window_s:
            return self.energy_j / self.window_s
        return self.power_w
