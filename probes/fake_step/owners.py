"""Which module holds a parameter."""

from __future__ import annotations

import gc
from collections.abc import Iterable, Sequence

import torch
from torch import nn

from .origins import name_of


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
