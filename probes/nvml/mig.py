"""Parts of a partitioned GPU (MIG), as NVML tells of them."""

from __future__ import annotations

from typing import Any

from .calls import NvmlRefusedError, ask


def mig_instances(handle: Any) -> list[Any]:
    """Handles of the parts of a GPU, in the driver's order; none where it tells of none."""
    try:
        most = int(ask("nvmlDeviceGetMaxMigDeviceCount", handle))
    except NvmlRefusedError:
        return []
    parts = []
    for place in range(most):
        try:
            parts.append(ask("nvmlDeviceGetMigDeviceHandleByIndex", handle, place))
        except NvmlRefusedError:
            continue  # places may be empty
    return parts


def whole_of(handle: Any) -> tuple[Any, int | None]:
    """The GPU that a handle belongs to, and the number of the GPU instance if it is a part.

    A driver that knows nothing of parts has none.

    Raises:
        NvmlRefusedError: it is a part, and the driver does not tell of which.
    """
    try:
        is_part = bool(ask("nvmlDeviceIsMigDeviceHandle", handle).value)
    except NvmlRefusedError:
        is_part = False
    if not is_part:
        return handle, None
    whole = ask("nvmlDeviceGetDeviceHandleFromMigDeviceHandle", handle)
    return whole, int(ask("nvmlDeviceGetGpuInstanceId", handle))
