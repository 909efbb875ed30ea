"""What the script does as it is written, as seen in its process."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from ....probes.fake_step.checkpointed_blocks import CheckpointedBlocks
from ....probes.loader.compiled_modules import compiles
from ....probes.source.call_site import source_text
from ....records import SourceLine
from ..settings import UsedAlready
from .calls import Calls
from .constructions import Constructions, all_cores, implemented
from .numbers import Numbers
from .ordered import saved_by_order

CONVOLUTIONS = (nn.Conv2d, nn.Conv3d, nn.ConvTranspose2d, nn.ConvTranspose3d)


def used_already(
    calls: Calls,
    constructions: Constructions,
    numbers: Numbers,
    parameters: Sequence[torch.Tensor],
    device: torch.device,
    *,
    cores_at_start: int,
    batch_size: int,
) -> UsedAlready:
    """The facts, after a few steps."""
    loader = constructions.loader
    modules = {id(each): each for root in calls.roots for each in root.modules()}.values()
    convolutions = [each for each in modules if isinstance(each, CONVOLUTIONS)]
    optimizers = [there for ref in constructions.optimizers if (there := ref()) is not None]
    blocks = CheckpointedBlocks(parameters)
    by_order, why_no_order = saved_by_order(loader, batch_size)
    places = {
        "call": calls.call_place,
        "backward": numbers.backward_place,
        "optimizer": next(iter(constructions.optimizer_places), None),
        "loader": constructions.loader_place,
    }
    return UsedAlready(
        device=device.type,
        num_workers=0 if loader is None else loader.num_workers,
        prefetch_factor=None if loader is None else loader.prefetch_factor,
        persistent_workers=loader is not None and bool(loader.persistent_workers),
        pin_memory=loader is not None and bool(loader.pin_memory),
        autocast=", ".join(sorted(calls.autocast)),
        compiled=compiles(),
        optimizer_classes=tuple(dict.fromkeys(type(each).__name__ for each in optimizers)),
        optimizers=tuple(dict.fromkeys(map(implementation_of, optimizers))),
        can_fuse=can_take("fused", optimizers, parameters, device),
        can_foreach=can_take("foreach", optimizers, parameters, device),
        num_optimizer_places=len(constructions.optimizer_places),
        optimizer_share=numbers.optimizer_share,
        num_convolutions=len(convolutions),
        channels_last=any(
            each.weight.is_contiguous(memory_format=torch.channels_last)
            and not each.weight.is_contiguous()
            for each in convolutions
            if each.weight.dim() == 4
        ),
        layout_by_hand=any(map(refuses_layout, calls.roots)),
        tf32=torch.get_float32_matmul_precision() != "highest",
        benchmark=bool(torch.backends.cudnn.benchmark),
        checkpoints=calls.recomputes,
        expandable="expandable_segments:True" in allocator_settings(),
        blocks=blocks.names,
        by_order=by_order,
        why_no_order=why_no_order,
        drops=any(
            getattr(each, "p", 0) > 0
            for each in modules
            if isinstance(each, nn.modules.dropout._DropoutNd)
        ),
        threads=torch.get_num_threads(),
        num_cores=len(all_cores()),
        cores_at_start=cores_at_start,
        modules=tuple(type(root).__name__ for root in calls.roots),
        call_place=places["call"],
        backward_place=places["backward"],
        optimizer_place=places["optimizer"],
        loader_place=places["loader"],
        lines={name: line_of(place) for name, place in places.items() if place is not None},
    )


def refuses_layout(root: nn.Module) -> bool:
    """Whether `to(memory_format=torch.channels_last)` fails on it, or may."""
    has_own = any("to" in vars(kind) for kind in type(root).__mro__ if kind is not nn.Module)
    return has_own or any(parameter.dim() > 4 for parameter in root.parameters())


def allocator_settings() -> str:
    """The settings of torch's allocator in the environment."""
    names = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF")
    return ",".join(os.environ.get(name, "") for name in names)


def implementation_of(optimizer: Any) -> str:
    """How an optimizer updates; as torch chooses it where the script says nothing."""
    defaults = optimizer.defaults
    if defaults.get("fused"):
        return "fused"
    if defaults.get("foreach"):
        return "foreach"
    if defaults.get("foreach") is None and "foreach" in defaults:
        tensors = [each for group in optimizer.param_groups for each in group["params"]]
        return "foreach" if tensors and all(each.is_cuda for each in tensors) else "single"
    return "single"


def can_take(
    name: str, optimizers: Sequence[Any], parameters: Sequence[torch.Tensor], device: torch.device
) -> bool:
    """Whether an optimizer of torch's has an implementation of that name on this device."""
    kinds = tuple(implemented())
    whole = all(each.is_floating_point() and not each.is_sparse for each in parameters)
    fits = whole and device.type in ("cpu", "cuda", "xpu", "mps")
    return fits and any(isinstance(each, kinds) and name in each.defaults for each in optimizers)


def line_of(place: SourceLine) -> str:
    """The text of a line; empty where it cannot be read."""
    try:
        return source_text(place).splitlines()[place.line - 1].strip()
    except (OSError, ValueError, IndexError):
        return ""
