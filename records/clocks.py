"""What NVML's reasons for lower clocks mean, by their names.

The bits are those of NVML's `nvmlClocksEventReasons`; their names are read in probes.
"""

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
