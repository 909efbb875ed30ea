"""Which shapes of parallelism live in this process, seen from its modules."""

from __future__ import annotations

import gc
import sys
from collections import Counter
from collections.abc import Iterable
from typing import Any

import torch
from torch import nn

from ...records import Parallelism

DDP_CLASS, DP = "DistributedDataParallel", "DataParallel"
FSDP1, FSDP2, SPREAD, SYNC_BN = "FSDP", "FSDP2", "spread model", "SyncBatchNorm"

NOT_MEASURED = {
    FSDP1: "what FSDP's gathering and scattering cost: no_sync leaves the gathering in place, so "
    "steps without communication cannot be made; the profiled window shows its collectives",
    FSDP2: "what FSDP2's gathering and scattering cost: no step without them can be made; the "
    "profiled window shows its collectives",
    DP: "what DataParallel's scatter, replication and gather cost: they are inside its forward; "
    "the profiled window shows the copies",
    SPREAD: "which part of a device's idle time is the bubble of a pipeline, and which has other "
    "causes: the trace shows how long each does nothing",
    SYNC_BN: "what SyncBatchNorm's own collectives cost: they run inside the forward and stay in "
    "steps without gradient synchronisation",
}


def modules() -> list[nn.Module]:
    """Every module that lives in this process."""
    # type(), not isinstance(): some proxies answer isinstance by loading what they stand for.
    return [candidate for candidate in gc.get_objects() if issubclass(type(candidate), nn.Module)]


def ddp_modules(alive: Iterable[nn.Module] | None = None) -> list[Any]:
    """The DistributedDataParallel modules of this process."""
    from torch.nn.parallel import DistributedDataParallel

    return [
        module for module in (alive or modules()) if isinstance(module, DistributedDataParallel)
    ]


def recognise(parameters: Iterable[torch.Tensor]) -> Parallelism:
    """Recognises how the script trains in parallel.

    Args:
        parameters: those that the script trains.
    """
    alive = modules()
    shapes = [name for name, present in _shapes(alive).items() if present]
    devices: Counter[str] = Counter()
    for parameter in parameters:
        devices[str(parameter.device)] += parameter.numel() * parameter.element_size()
    parallel = [module for module in alive if type(module).__name__ == DP]
    replicas = tuple(
        f"cuda:{index}" for module in parallel[:1] for index in getattr(module, "device_ids", ())
    )
    if len(devices) > 1:
        shapes.append(SPREAD)
    world, backend = _process_group()
    return Parallelism(
        shapes=tuple(shapes),
        world_size=world,
        backend=backend,
        devices=dict(devices),
        replicas=replicas,
        comm_hook=any(_has_hook(module) for module in ddp_modules(alive)),
        not_measured=tuple(NOT_MEASURED[shape] for shape in shapes if shape in NOT_MEASURED),
    )


def _shapes(alive: list[nn.Module]) -> dict[str, bool]:
    from torch.nn.parallel import DataParallel

    return {
        DDP_CLASS: bool(ddp_modules(alive)) if alive else False,
        DP: any(isinstance(instance, DataParallel) for instance in alive),
        FSDP1: _is_sharded(alive, "FullyShardedDataParallel"),
        FSDP2: _is_sharded(alive, "FSDPModule"),
        SYNC_BN: any(isinstance(instance, nn.SyncBatchNorm) for instance in alive),
    }


def _is_sharded(alive: list[nn.Module], name: str) -> bool:
    """Whether a model is of a class of FSDP's, which is not imported for that."""
    kind = getattr(sys.modules.get("torch.distributed.fsdp"), name, None)
    return kind is not None and any(isinstance(instance, kind) for instance in alive)


def _has_hook(module: Any) -> bool:
    return bool(getattr(module, "_comm_hooks", None))


def _process_group() -> tuple[int | None, str | None]:
    import torch.distributed as dist

    if not dist.is_available() or not dist.is_initialized():
        return None, None
    return dist.get_world_size(), str(dist.get_backend())
