"""The modules of the script that hold what is trained."""

from __future__ import annotations

import gc
from collections import Counter, OrderedDict
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor
from torch.nn.parameter import is_lazy

from .origins import name_of

MOST_BUFFERS = 8
"""A list or dict is looked at that has at most so many times as many tensors as the model has
parameters: buffers are among them."""


def local_part(tensor: torch.Tensor) -> torch.Tensor:
    """The part of a tensor that this rank holds; any tensor that is not shared itself."""
    if type(tensor) is FakeTensor:  # most of all
        return tensor
    held: torch.Tensor = getattr(tensor, "_local_tensor", tensor)  # a DTensor's
    return held


def parts_of(tensor: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Tensors in whose storages it lies: itself, or the places and values of a sparse one."""
    held = local_part(tensor)
    if held.layout is torch.sparse_coo:
        with torch.utils._python_dispatch._disable_current_modes():
            return held._indices(), held._values()
    return (held,)


def roots_of(trained: Iterable[torch.Tensor]) -> list[nn.Module]:
    """Modules that hold some of these parameters and stand in no other module.

    What only wraps another module, as `torch.compile` does, is left out.
    """
    wanted = {id(tensor) for tensor in trained}
    holders = [
        module
        for module in gc.get_objects()
        if _is_module(module) and any(id(p) in wanted for p in module.parameters())
    ]
    inner = {id(child) for module in holders for child in module.children()}
    return [_unwrapped(module) for module in holders if id(module) not in inner]


def beside(trained: Collection[torch.Tensor]) -> list[torch.Tensor]:
    """Parameters and buffers of all other modules, whether a step touches them or not, and what
    lists and dicts hold that have one tensor for each parameter.

    An average of the weights that is updated once an epoch lives all the time, as a network does
    that only the evaluation asks.

    Args:
        trained: what is trained; what lies on none of their devices is left out.
    """
    gc.collect()  # a model that was replaced may only refer to itself
    known = {id(tensor) for tensor in trained}
    devices = {tensor.device for tensor in trained}
    found: dict[int, torch.Tensor] = {}
    objects = gc.get_objects()
    of_modules = (
        tensor
        for module in filter(_is_module, objects)
        for tensor in (*module._parameters.values(), *module._buffers.values())
    )
    for tensor in (*of_modules, *_one_for_each(trained, objects)):
        if (
            tensor is not None
            and not is_lazy(tensor)
            and id(tensor) not in known
            and tensor.layout is torch.strided
            and tensor.device in devices
        ):
            found[id(tensor)] = tensor
    return list(found.values())


def _one_for_each(
    trained: Iterable[torch.Tensor], objects: Iterable[Any]
) -> Iterator[torch.Tensor]:
    """Tensors of lists and dicts that have all shapes of a model's trained parameters: an average
    of the weights is often kept so, by name or in their order."""
    wanted = {id(tensor) for tensor in trained}
    models = [
        Counter(_shape_of(each) for each in root.parameters() if id(each) in wanted)
        for root in roots_of(trained)
    ]
    models = [shapes for shapes in models if shapes.total() > 1]
    most = MOST_BUFFERS * max((shapes.total() for shapes in models), default=0)
    for kept in objects:
        if type(kept) not in (list, dict, OrderedDict) or not 1 < len(kept) <= most:
            continue
        values = list(kept.values()) if isinstance(kept, dict) else kept
        if not all(issubclass(type(each), torch.Tensor) for each in values):
            continue
        shapes = Counter(map(_shape_of, values))
        if any(model <= shapes for model in models):
            yield from values


def _shape_of(tensor: torch.Tensor) -> torch.Size | None:
    return None if is_lazy(tensor) or tensor.is_nested else tensor.shape


def _is_module(thing: Any) -> bool:
    # Proxies of lazy objects answer isinstance by importing what they stand for.
    return issubclass(type(thing), nn.Module) and "_parameters" in vars(thing)


def _unwrapped(module: nn.Module) -> nn.Module:
    inner = module._modules.get("_orig_mod")
    return module if inner is None else inner


def owners_of(
    parameters: Iterable[torch.Tensor], modules: Sequence[nn.Module] | None = None
) -> dict[int, str]:
    """Classes of the modules that hold each, as origins name them, by the tensor's `id`.

    Args:
        modules: all that there are; found among the objects of the process if not given. A
            parameter that none holds has no owner.
    """
    wanted = {id(tensor) for tensor in parameters}
    if modules is None:
        modules = [each for each in gc.get_objects() if issubclass(type(each), nn.Module)]
    inner = {id(child) for module in modules for child in module.children()}
    owners: dict[int, str] = {}
    paths: list[tuple[nn.Module, tuple[nn.Module, ...]]] = [
        (module, ()) for module in modules if id(module) not in inner
    ]
    seen: set[int] = set()
    while paths:
        module, above = paths.pop()
        if id(module) in seen:
            continue
        seen.add(id(module))
        path = (*above, module)
        for parameter in module._parameters.values():
            if parameter is not None and id(parameter) in wanted:
                owners.setdefault(id(parameter), name_of(path))
        paths += [(child, path) for child in module.children()]
    return owners
