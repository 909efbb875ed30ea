"""Which device a run is for, found without importing torch where NVML can tell."""

from __future__ import annotations

import importlib.util
import os
import re
from collections.abc import Mapping
from pathlib import Path

import msgspec

from ...errors import UsageError
from ...probes.devices import host
from ...probes.nvml.gpus import devices, nvml_unavailable
from ...probes.process.duty_cycle import cores_for
from .gpu_choice import Chosen, Machine, choose_gpus

_LOGICAL_CPU = re.compile(r"cpu(:(?P<cores>[0-9]+))?(@(?P<share>[0-9]*\.?[0-9]+))?")
_BUILT_FOR_ROCM = re.compile(r"^hip\b[^=\n]*= *['\"]", re.MULTILINE)


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """The device as the worker gets it.

    Attributes:
        device: `cpu`, `cuda`, another torch device type, or `auto` when only torch can tell.
        data_limit_bytes: what the kernel shall allow the worker where it trains on the CPU.
        cores, share: of a logical CPU device; empty and 1 for the whole CPU.
        gpus: which GPUs the worker sees, and what becomes of them once the script's are known.
    """

    device: str
    data_limit_bytes: int | None
    cores: tuple[int, ...] = ()
    share: float = 1.0
    gpus: Chosen = Chosen(kind="auto")


def choose_target(
    device: str, memory_limit_bytes: int | None, environment: Mapping[str, str] = os.environ
) -> Target:
    """Turns `--device` into what a worker gets.

    Args:
        environment: the user's variables.

    Raises:
        UsageError: it does not exist, or the user's variables exclude it.
    """
    kind = device.partition(":")[0]
    if kind == "cpu":
        cores, share = logical_cpu(device)
        limit = _cpu_limit(memory_limit_bytes)
        return Target(device="cpu", data_limit_bytes=limit, cores=cores, share=share)
    if kind in ("auto", "cuda"):
        chosen = choose_gpus(device, environment, machine(device))
        limit = _cpu_limit(memory_limit_bytes)
        return Target(device=chosen.kind, data_limit_bytes=limit, gpus=chosen)
    if kind in ("mps", "xpu"):
        _check_with_torch(kind)
        return Target(device=device, data_limit_bytes=None)
    msg = f"--device {device}: there is no such device type."
    raise UsageError(msg, "Use auto, cuda, cuda:N, cuda:all, cpu, mps or xpu.")


def machine(device: str) -> Machine:
    """Finds the devices: by NVML, and where it lists none and a GPU is insisted on, by torch.

    Args:
        device: as the user asked; torch takes seconds to import, so `auto` does without it.
    """
    gpus = tuple(devices())
    if gpus:
        return Machine(gpus=gpus)
    refused, hip = nvml_unavailable() or "", _torch_is_for_rocm()
    num = _count_with_torch() if device.startswith("cuda") else None
    return Machine(refused=refused, hip=hip, num_by_torch=num)


def _torch_is_for_rocm() -> bool:
    """Read in torch's own text: importing it takes seconds."""
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        return False
    try:
        text = Path(spec.origin).with_name("version.py").read_text()
    except OSError:
        return False
    return _BUILT_FOR_ROCM.search(text) is not None


def _count_with_torch() -> int:
    import torch

    return torch.cuda.device_count() if torch.cuda.is_available() else 0


def logical_cpu(device: str) -> tuple[tuple[int, ...], float]:
    """Cores and share of the time of `cpu:CORES@SHARE`; no cores stand for all of them.

    Raises:
        UsageError: it is misspelt, or there are fewer cores.
    """
    match = _LOGICAL_CPU.fullmatch(device)
    share = float(match["share"] or 1) if match is not None else 0.0
    if match is None or not 0.05 <= share <= 1:
        msg = f"--device {device}: a logical CPU device is cpu:CORES@SHARE."
        raise UsageError(msg, "Write cpu:1, or cpu:1@0.4 for one core held to 40 % (at least 5 %).")
    if match["cores"] is None:
        if share < 1:
            raise UsageError(f"--device {device}: cores are missing.", "Write cpu:1@0.4.")
        return (), 1.0
    cores = cores_for(int(match["cores"]))
    if not cores:
        msg = f"--device {device}: this process may use {host.num_cores()} cores."
        raise UsageError(msg, "Ask for fewer, and at least one.")
    return cores, share


def _cpu_limit(memory_limit_bytes: int | None) -> int | None:
    """Real capacity is a limit too: better a refused allocation than a killed machine."""
    available = host.available_bytes()
    limits = (memory_limit_bytes, available and available[0])
    return min((limit for limit in limits if limit is not None), default=None)


def _check_with_torch(kind: str) -> None:
    import torch

    backend = getattr(torch, kind, None) or getattr(torch.backends, kind, None)
    available = getattr(backend, "is_available", None)
    if available is None or not available():
        msg = f"--device {kind}: torch sees no such device here."
        raise UsageError(msg, "Use --device cpu.")
