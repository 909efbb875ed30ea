"""The GPUs on which this process has memory, and a limit for them.

torch's allocator is asked, which knows every GPU and makes a context on none: a GPU that the script
does not use is left alone.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping

import torch

from .gpu_in_use import GpuInUse
from .visible_gpus import CUDA


def indices_in_use() -> list[int]:
    """Numbers of the GPUs on which torch holds memory for this process."""
    if not torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        return []
    return [gpu for gpu in range(torch.cuda.device_count()) if torch.cuda.memory_reserved(gpu)]


def gpus_in_use() -> tuple[GpuInUse, ...]:
    """The GPUs on which torch holds memory for this process, with their UUIDs."""
    return tuple(GpuInUse(index=gpu, uuid=uuid_of(gpu)) for gpu in indices_in_use())


def uuid_of(device: int | torch.device) -> str | None:
    """The UUID of a GPU with its prefix; `None` where torch does not tell it."""
    uuid = getattr(torch.cuda.get_device_properties(device), "uuid", None)
    return None if uuid is None else with_prefix(str(uuid), os.environ)


def with_prefix(uuid: str, environment: Mapping[str, str]) -> str:
    """A UUID as torch gives it, with the prefix by which the driver knows it.

    torch does not say whether it is that of a part of a GPU; the variable that made the part
    visible does.

    >>> with_prefix("12ab-34", {"CUDA_VISIBLE_DEVICES": "MIG-12ab"})
    'MIG-12ab-34'
    >>> with_prefix("12ab-34", {"CUDA_VISIBLE_DEVICES": "0,1"})
    'GPU-12ab-34'
    """
    words = environment.get(CUDA, "").split(",")
    part = any(gpu.startswith("MIG-") and f"MIG-{uuid}".startswith(gpu) for gpu in words)
    return f"{'MIG' if part else 'GPU'}-{uuid}"


class MemoryLimit:
    """Holds each GPU that the script uses to a limit, as soon as it has memory there.

    torch sets a limit for one GPU at a time and makes a context on it; earlier than this it would
    start CUDA before the script forks, and on GPUs that it leaves alone.
    """

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._held: set[int] = set()

    def hold(self) -> None:
        """To be called often; costs a microsecond a GPU."""
        for index in indices_in_use():
            if index not in self._held:
                self._held.add(index)
                total = torch.cuda.get_device_properties(index).total_memory
                share = min(1.0, self._limit_bytes / total)
                torch.cuda.set_per_process_memory_fraction(share, index)


def devices_of(first: torch.device, known: Iterable[str], in_use: Iterable[GpuInUse]) -> list[str]:
    """All devices of a model: where its parameters are, and on GPUs what else has memory.

    >>> devices_of(torch.device("cuda:0"), ["cuda:0"], [GpuInUse(index=0), GpuInUse(index=2)])
    ['cuda:0', 'cuda:2']
    >>> devices_of(torch.device("cpu"), ["cpu"], [GpuInUse(index=0)])
    ['cpu']
    """
    names = [f"cuda:{gpu.index}" for gpu in in_use] if first.type == "cuda" else []
    return list(dict.fromkeys([*known, *names]))
