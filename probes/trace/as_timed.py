"""The shares of a profiled window as they are in steps that nothing profiles.

Profiling makes the host slower and leaves the GPU's work as it is: on an H100, compiled steps of
21 ms took 29 ms while they were profiled, with 20 ms of kernels in them. What the GPU did
in a profiled step is therefore put beside the time of a timed one; the time in which it did nothing
shrinks to what is left, by whatever cause.
"""

from __future__ import annotations

import msgspec

from ...records import DeviceShare, IdleShares, Profile, Spread

SLOWED = 1.02
"""Profiled steps that are longer than timed ones by less than this are as long."""
STEADY = 0.25
"""Timed steps that differ by more (half-width of their interval) are no measure of others."""
_WORK = (
    "busy_pct",
    "kernel_pct",
    "compute_pct",
    "communication_pct",
    "exposed_communication_pct",
    "exposed_copy_pct",
    "sm_efficiency_pct",
)


def as_timed(profile: Profile, step_s: Spread | None) -> Profile:
    """The profile with its shares of a timed step; as it is where timed steps are no shorter.

    Args:
        step_s: seconds of a timed step of the same trial.
    """
    busy, idle = profile.busy_pct, profile.idle
    if profile.step_s is None or step_s is None or busy is None or idle is None:
        return profile
    longer = profile.step_s / step_s.median
    as_long = longer <= SLOWED or profile.step_s <= step_s.high
    if as_long or step_s.relative_half_width > STEADY or busy <= 0:
        return profile
    more = min(longer, 100.0 / busy)
    left = (100.0 - busy * more) / idle.total_pct if idle.total_pct > 0 else 1.0
    return msgspec.structs.replace(
        profile,
        **{
            field: value * more for field in _WORK if (value := getattr(profile, field)) is not None
        },
        idle=IdleShares(**{field: share * left for field, share in _shares(idle).items()}),
        input_wait_pct=None if profile.input_wait_pct is None else profile.input_wait_pct * left,
        devices=tuple(_as_timed(device, more) for device in profile.devices),
    )


def _as_timed(device: DeviceShare, more: float) -> DeviceShare:
    """Another GPU of the same steps."""
    busy = min(100.0, device.busy_pct * more)
    left = (100.0 - busy) / device.idle_pct if device.idle_pct > 0 else 1.0
    waits = device.dependency_pct
    return msgspec.structs.replace(
        device,
        busy_pct=busy,
        idle_pct=100.0 - busy,
        dependency_pct=None if waits is None else waits * left,
    )


def _shares(idle: IdleShares) -> dict[str, float]:
    return {field: getattr(idle, field) for field in idle.__struct_fields__}
