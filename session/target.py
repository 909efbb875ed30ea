"""Which device a run is for, found without importing torch."""

from __future__ import annotations

import re

import msgspec

from ..errors import UsageError
from ..probes import host
from ..probes.duty import cores_for
from ..probes.nvml import NvmlDevice, devices, nvml_unavailable

_LOGICAL_CPU = re.compile(r"cpu(:(?P<cores>[0-9]+))?(@(?P<share>[0-9]*\.?[0-9]+))?")


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """The device as the worker gets it.

    Attributes:
        device: `cpu`, `cuda:UUID`, another torch device type, or `auto` when only torch can tell.
        data_limit_bytes: what the kernel shall allow the worker where the device is the CPU.
        cores, share: of a logical CPU device; empty and 1 for the whole CPU.
    """

    device: str
    data_limit_bytes: int | None
    cores: tuple[int, ...] = ()
    share: float = 1.0


def choose_target(device: str, memory_limit_bytes: int | None) -> Target:
    """Turns `--device` into one device.

    Raises:
        UsageError: it does not exist.
    """
    kind, _, which = device.partition(":")
    if kind == "cpu":
        cores, share = logical_cpu(device)
        limit = _cpu_limit(memory_limit_bytes)
        return Target(device="cpu", data_limit_bytes=limit, cores=cores, share=share)
    if kind in ("auto", "cuda"):
        return _gpu_or_cpu(device, kind, which, memory_limit_bytes)
    if kind in ("mps", "xpu"):
        _check_with_torch(kind)
        return Target(device=device, data_limit_bytes=None)
    msg = f"--device {device}: there is no such device type."
    raise UsageError(msg, "Use auto, cuda, cuda:N, cpu, mps or xpu.")


def logical_cpu(device: str) -> tuple[tuple[int, ...], float]:
    """Cores and share of the time of `cpu:CORES@SHARE`; no cores stand for all of them.

    Raises:
        UsageError: it is misspelt, or there are fewer cores.
    """
    found = _LOGICAL_CPU.fullmatch(device)
    share = float(found["share"] or 1) if found is not None else 0.0
    if found is None or not 0.05 <= share <= 1:
        msg = f"--device {device}: a logical CPU device is cpu:CORES@SHARE."
        raise UsageError(msg, "Write cpu:1, or cpu:1@0.4 for one core held to 40 % (at least 5 %).")
    if found["cores"] is None:
        if share < 1:
            raise UsageError(f"--device {device}: cores are missing.", "Write cpu:1@0.4.")
        return (), 1.0
    cores = cores_for(int(found["cores"]))
    if not cores:
        msg = f"--device {device}: this process may use {host.num_cores()} cores."
        raise UsageError(msg, "Ask for fewer, and at least one.")
    return cores, share


def _gpu_or_cpu(device: str, kind: str, which: str, limit: int | None) -> Target:
    found = devices()
    if not found:
        if kind == "cuda":
            reason = nvml_unavailable() or "NVML counts no GPU"
            msg = f"--device {device}: no CUDA device: {reason}."
            raise UsageError(msg, "Check nvidia-smi, or use --device cpu.")
        return Target(device="auto", data_limit_bytes=_cpu_limit(limit))
    if which:
        chosen = next((one for one in found if which in (str(one.index), one.uuid)), None)
        if chosen is None:
            names = ", ".join(f"{one.index} ({one.name})" for one in found)
            msg = f"--device {device}: there is no such GPU."
            raise UsageError(msg, f"GPUs here: {names}.")
    else:
        chosen = max(found, key=_free)
    return Target(device=f"cuda:{chosen.uuid or chosen.index}", data_limit_bytes=None)


def _free(device: NvmlDevice) -> tuple[int, int]:
    return (device.free_bytes or 0, -device.index)


def _cpu_limit(memory_limit_bytes: int | None) -> int | None:
    """Real capacity is a limit too: better a refused allocation than a killed machine."""
    available = host.available_bytes()
    limits = [one for one in (memory_limit_bytes, available and available[0]) if one is not None]
    return min(limits, default=None)


def _check_with_torch(kind: str) -> None:
    import torch

    backend = getattr(torch, kind, None) or getattr(torch.backends, kind, None)
    available = getattr(backend, "is_available", None)
    if available is None or not available():
        msg = f"--device {kind}: this torch sees no such device."
        raise UsageError(msg, "Use --device cpu.")
