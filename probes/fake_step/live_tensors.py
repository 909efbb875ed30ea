"""Which tensors of a running training live, by its own objects; nothing is run or changed."""

from __future__ import annotations

import time
import traceback
from collections import Counter
from collections.abc import Iterable
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer
from torch.utils._pytree import tree_leaves

from ...records import HeldRole, HeldSource, HeldTensors
from ..devices.live_objects import Bound, objects_of
from ..memory.stacks import short_place
from .model_tree import owners_of
from .origins import is_of_user

MOST = 10
NO_COUNT = "a CPU counts no tensors: what only autograd's graph holds is not seen"


def live_tensors(
    device: str,
    parameters: Iterable[torch.Tensor] = (),
    *,
    step: int,
    refused: BaseException | None = None,
) -> HeldTensors:
    """Sums what lives on a device now: parameters, gradients, optimizer state, all other tensors.

    Found among the objects of the process, each storage counted once. On CUDA the allocator tells
    what is held beyond them.

    Args:
        device: as `str(torch.device)`.
        parameters: that train; those of the optimizers if not given.
        step: number of optimizer steps made.
        refused: the error, where memory was just refused.

    Raises:
        LookTooLongError: the process has too many objects to look through.
    """
    began_s = time.monotonic()
    tensors, optimizers, modules = objects_of(torch.Tensor, Optimizer, nn.Module, bound=Bound())
    trained = list(parameters) or [
        parameter
        for optimizer in optimizers
        for group in optimizer.param_groups
        for parameter in group["params"]
    ]
    look = _Look(torch.device(device))
    owners = owners_of(trained, modules)
    for parameter in trained:
        owner = owners.get(id(parameter), "")
        look.take(parameter, "parameters", owner)
        look.take(parameter.grad, "gradients", owner)
    for optimizer in optimizers:
        for key, state in optimizer.state.items():
            for leaf in tree_leaves(state):
                look.take(leaf, "optimizer's state", owners.get(id(key), ""))
    for tensor in tensors:
        look.take(tensor, "other tensors", _shape_of(tensor))
    unavailable = {}
    allocated = None
    if look.device.type == "cuda":
        allocated = int(torch.cuda.memory_allocated(look.device))
    else:
        unavailable["allocated_bytes"] = NO_COUNT
    return HeldTensors(
        step=step,
        refused=refused is not None,
        line="" if refused is None else line_of_user(refused),
        held=dict(look.by_role.most_common()),
        modules=look.sources(others=False),
        others=look.sources(others=True),
        allocated_bytes=allocated,
        elapsed_s=time.monotonic() - began_s,
        unavailable=unavailable,
    )


class _Look:
    """Counts storages of one device, each for the first role that it is taken for."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.by_role: Counter[HeldRole] = Counter()
        self._seen: set[int] = set()
        self._sources: dict[tuple[bool, str], Counter[HeldRole]] = {}
        self._tensors: Counter[tuple[bool, str]] = Counter()

    def take(self, tensor: Any, role: HeldRole, name: str) -> None:
        """Counts it if it is a tensor that holds memory of its own here."""
        if not isinstance(tensor, torch.Tensor):
            return
        try:
            if tensor.device.type != self.device.type:
                return
            if tensor.device.index not in (None, self.device.index or 0):
                return
            storage = tensor.untyped_storage()
            key, size = storage.data_ptr(), storage.nbytes()
        except Exception:  # noqa: BLE001  of a kind without storage: fake, sparse, of a subclass
            return
        if not key or key in self._seen:
            return
        self._seen.add(key)
        self.by_role[role] += size
        place = (role == "other tensors", name)
        self._sources.setdefault(place, Counter())[role] += size
        self._tensors[place] += 1

    def sources(self, *, others: bool) -> tuple[HeldSource, ...]:
        """The largest by name: modules, or shapes of all other tensors."""
        sums = Counter(
            {place: sum(roles.values()) for place, roles in self._sources.items()
             if place[0] == others}
        )  # fmt: skip
        return tuple(
            HeldSource(
                name=place[1],
                roles=dict(self._sources[place].most_common()),
                num_tensors=self._tensors[place],
            )
            for place, _ in sums.most_common(MOST)
        )


def line_of_user(error: BaseException) -> str:
    """The innermost line of the user's that an exception passed; empty if there is none."""
    line = ""
    for frame, number in traceback.walk_tb(error.__traceback__):
        if is_of_user(frame.f_code.co_filename):
            line = f"{short_place(frame.f_code.co_filename)}:{number}"
    return line


def _shape_of(tensor: torch.Tensor) -> str:
    try:
        tensor = tensor if tensor._base is None else tensor._base  # a view shows its whole
        shape = " x ".join(map(str, tensor.shape)) or "a number"
        return f"{str(tensor.dtype).removeprefix('torch.')} {shape}"
    except Exception:  # noqa: BLE001
        return type(tensor).__name__
