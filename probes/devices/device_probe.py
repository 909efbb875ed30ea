"""The interface of a device to a window, and the parts that devices of several kinds share."""

from __future__ import annotations

import time
from typing import Any, Protocol

from ...records import DeviceInfo, Memory


class WindowDevice(Protocol):
    """The part of a device that a window uses."""

    def reset_peaks(self) -> None:
        """Empties caches and starts peak memory anew."""

    def read_memory(self) -> Memory:
        """Peaks since `reset_peaks`; call after `synchronize`."""

    def synchronize(self) -> None:
        """Waits for the device. Only at the edges of a window, never inside timed steps."""

    def mark(self) -> Any:
        """A point on the device's own timeline, without waiting for it."""

    def elapsed_s(self, start: Any, end: Any) -> float | None:
        """Seconds between two marks, `None` while the device has not reached them."""

    def reach(self, mark: Any, /) -> None:
        """Waits until the device has come to a mark; what is queued behind it goes on."""


class DeviceProbe(WindowDevice, Protocol):
    """A device that trials are measured on."""

    def info(self) -> DeviceInfo:
        """The device, its memory and what the script can have of it."""


class HostTimeline:
    """The marks of a device whose work is done when the call returns: those of the host's clock."""

    def synchronize(self) -> None:
        return

    def mark(self) -> float:
        return time.perf_counter()

    def elapsed_s(self, start: float, end: float) -> float | None:
        return end - start

    def reach(self, _mark: float, /) -> None:
        return


def within(limit_bytes: int | None, capacity: int, source: str) -> tuple[int, str]:
    """Bytes that may be used, and who says so: a user's limit goes before a larger capacity."""
    if limit_bytes is not None and limit_bytes < capacity:
        return limit_bytes, "--memory-limit"
    return capacity, source
