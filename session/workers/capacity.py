"""The memory that a GPU has left for the script, told anew by each process."""

from __future__ import annotations

import msgspec

from ...records import DeviceInfo

MOVED = 0.01
"""Share by which the memory of a GPU must have changed to be written down anew."""


def capacity_moved(before: DeviceInfo, now: DeviceInfo) -> bool:
    """Whether the same GPU has noticeably more or less memory for the script than before."""
    if now.kind != "cuda" or before.uuid != now.uuid:
        return False
    return abs(now.capacity_bytes - before.capacity_bytes) >= MOVED * before.capacity_bytes


def with_capacity_of(before: DeviceInfo, now: DeviceInfo) -> DeviceInfo:
    """The device as it was, with the memory that it has now."""
    return msgspec.structs.replace(
        before, capacity_bytes=now.capacity_bytes, capacity_source=now.capacity_source
    )
