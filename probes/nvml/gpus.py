"""The GPUs as the driver sees them, and the parts of a partitioned one (MIG).

Without a driver, or with one that refuses a question, nothing here raises but `find_handle`: the
field is `None` and the driver's own words stand in `unavailable`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from ...records import Record
from .calls import NvmlRefusedError, ask, nvml_unavailable

__all__ = ["NvmlDevice", "devices", "find_handle", "nvml_unavailable"]


class NvmlDevice(Record, frozen=True, kw_only=True):
    """One GPU at one moment.

    Attributes:
        index: NVML's own, in PCI order; `CUDA_VISIBLE_DEVICES` does not change it.
        mig_enabled: whether the GPU is partitioned.
        instances: its parts, if it is; `index` of each is that of the whole.
    """

    index: int
    uuid: str | None = None
    name: str | None = None
    total_bytes: int | None = None
    used_bytes: int | None = None
    free_bytes: int | None = None
    driver: str | None = None
    mig_enabled: bool | None = None
    instances: tuple[NvmlDevice, ...] = ()
    unavailable: dict[str, str] = msgspec.field(default_factory=dict)


def devices() -> list[NvmlDevice]:
    """All GPUs; an empty list when there are none or NVML cannot be used.

    `nvml_unavailable()` tells the two apart.
    """
    try:
        count = int(ask("nvmlDeviceGetCount"))
    except NvmlRefusedError:
        return []
    return [_describe(index) for index in range(count)]


def _describe(index: int) -> NvmlDevice:
    gpu = _described(index, lambda: ask("nvmlDeviceGetHandleByIndex", index))
    if not gpu.mig_enabled:
        return gpu
    parts = [
        _described(index, lambda part=part: part)  # type: ignore[misc]
        for part in mig_instances(ask("nvmlDeviceGetHandleByIndex", index))
    ]
    return msgspec.structs.replace(gpu, instances=tuple(parts))


def _described(index: int, handle: Callable[[], Any]) -> NvmlDevice:
    values: dict[str, Any] = {}
    reasons: dict[str, str] = {}

    def note(fields: tuple[str, ...], read: Callable[[], tuple[Any, ...]]) -> None:
        try:
            values.update(zip(fields, read(), strict=True))
        except NvmlRefusedError as error:
            reasons.update(dict.fromkeys(fields, str(error)))

    def memory() -> tuple[int, int, int]:
        answer = ask("nvmlDeviceGetMemoryInfo", handle())
        return int(answer.total), int(answer.used), int(answer.free)

    note(("uuid",), lambda: (ask("nvmlDeviceGetUUID", handle()),))
    note(("name",), lambda: (ask("nvmlDeviceGetName", handle()),))
    note(("total_bytes", "used_bytes", "free_bytes"), memory)
    note(("driver",), lambda: (ask("nvmlSystemGetDriverVersion"),))
    note(("mig_enabled",), lambda: (ask("nvmlDeviceGetMigMode", handle())[0] == 1,))
    return NvmlDevice(index=index, unavailable=reasons, **values)


def find_handle(gpu: str | int) -> Any:
    """NVML's handle of a GPU or of a part of one, by UUID or NVML index.

    The prefix may be missing, as in torch, or be the other one: torch does not tell a part of a
    GPU from a whole one.

    Raises:
        NvmlRefusedError: no driver, or no such GPU.
    """
    if isinstance(gpu, int):
        return ask("nvmlDeviceGetHandleByIndex", gpu)
    prefixes = ("MIG-", "GPU-") if gpu.startswith("MIG-") else ("GPU-", "MIG-")
    plain = gpu.removeprefix(prefixes[0])
    try:
        return ask("nvmlDeviceGetHandleByUUID", prefixes[0] + plain)
    except NvmlRefusedError as refusal:
        try:
            return ask("nvmlDeviceGetHandleByUUID", prefixes[1] + plain)
        except NvmlRefusedError:
            raise refusal from None


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
