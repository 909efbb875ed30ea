"""Counts the values per channel that one sample gives to the model's normalisation layers.

Looked at with forward pre-hooks on the layers while a few native steps run; then they are gone.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import prod
from typing import Any

import msgspec
import torch
from torch.nn.modules import batchnorm, instancenorm, normalization

from ...records import NormLayers
from .compiled_modules import compiles, modules_alive
from .norms import count_norms

_CHECKED = (
    batchnorm._BatchNorm,  # SyncBatchNorm is one too
    instancenorm._InstanceNorm,
    normalization.GroupNorm,
)
MAX_LOOK_SHAPES = 10_000
"""Inputs remembered in one look; a model of any size has fewer."""
NORMS_NOT_SEEN = "no normalisation layer was called in the steps looked at"
UNEVEN = "samples give a normalisation layer different numbers of values"
NO_LOOK_COMPILED = (
    "torch.compile runs this script's code, and a look at its layers would compile it anew"
)


class NormInputs:
    """Looks at the inputs of the normalisation layers from `watch` to `stop`."""

    def __init__(self) -> None:
        self._hooks: list[Any] = []
        self._seen: list[tuple[torch.nn.Module, tuple[int, ...]]] = []
        self._watched = False
        self._compiled = False

    @property
    def watched(self) -> bool:
        """Whether a look was begun, whatever became of it."""
        return self._watched

    def watch(self) -> None:
        """Puts a hook on every normalisation layer that is alive."""
        self._watched = True
        self._compiled = compiles()
        if self._compiled:
            return
        look = _Look(self._seen)
        for layer in modules_alive():
            if isinstance(layer, _CHECKED):
                self._hooks.append(layer.register_forward_pre_hook(look))

    def stop(self) -> None:
        """Takes the hooks away."""
        for hook in self._hooks:
            hook.remove()
        self._hooks.clear()

    def layers(self, parameters: Iterable[Any], batch_size: int) -> tuple[NormLayers, str]:
        """The layers of the model and the fewest values that one sample gives them; ends the look.

        The model is what holds a parameter of an optimizer, and every layer that ran. Where no
        layer was seen to run, all of the process count.

        Args:
            parameters: of the optimizers that step.
            batch_size: samples of the batches in the steps looked at.

        Returns:
            The counts, and why the values are unknown: empty where they are known or where there
            is no layer that needs them.
        """
        self.stop()
        seen = self._seen[:]
        self._seen.clear()
        if not seen:
            counts = count_norms()
            needed = (
                counts.batch_norm
                + counts.sync_batch_norm
                + counts.group_norm
                + counts.instance_norm
            )
            reason = NO_LOOK_COMPILED if self._compiled else NORMS_NOT_SEEN
            return counts, reason if needed else ""
        model = _models_of(parameters)
        model.update((id(layer), layer) for layer, _ in seen)
        counts = count_norms(model.values())
        fewest, uneven = _fewest(seen, batch_size)
        return msgspec.structs.replace(counts, **fewest), UNEVEN if uneven else ""


class _Look:
    """The hook: remembers shapes alone. A copy of the model, or a pickle, gets an idle one."""

    def __init__(self, seen: list[tuple[torch.nn.Module, tuple[int, ...]]] | None = None) -> None:
        self._seen = seen

    def __call__(self, layer: torch.nn.Module, inputs: tuple[Any, ...]) -> None:
        if self._seen is None:
            return
        shape = getattr(inputs[0], "shape", None) if inputs else None
        if shape is not None and layer.training and len(self._seen) < MAX_LOOK_SHAPES:
            self._seen.append((layer, tuple(int(length) for length in shape)))

    def __reduce__(self) -> tuple[Any, ...]:
        return _Look, ()


def _models_of(parameters: Iterable[Any]) -> dict[int, torch.nn.Module]:
    """All modules, by id, of every tree of modules that holds one of these parameters."""
    owned = {id(parameter) for parameter in parameters}
    alive = modules_alive()
    inner = {
        id(child) for module in alive for child in module._modules.values() if child is not None
    }
    models: dict[int, torch.nn.Module] = {}
    for root in alive:
        if id(root) in inner:
            continue
        # Not root.modules() and root.parameters(): a script may have methods of these names.
        tree = list(torch.nn.Module.modules(root))
        if any(id(parameter) in owned for part in tree for parameter in part._parameters.values()):
            models.update((id(part), part) for part in tree)
    return models


def _fewest(
    seen: list[tuple[torch.nn.Module, tuple[int, ...]]], batch_size: int
) -> tuple[dict[str, int | None], bool]:
    """The fewest values by kind, and whether those of a kind are unknown as samples differ."""
    values: dict[str, list[int | None]] = {
        "batch_norm_values": [],
        "group_norm_values": [],
        "instance_norm_values": [],
    }
    for layer, shape in seen:
        if isinstance(layer, batchnorm._BatchNorm):
            values["batch_norm_values"].append(_per_sample(shape, batch_size))
        elif isinstance(layer, normalization.GroupNorm):
            each = shape[1] // layer.num_groups if len(shape) > 1 else 1
            places = _per_sample(shape, batch_size)
            values["group_norm_values"].append(places and each * places)
        elif isinstance(layer, instancenorm._InstanceNorm):
            spatial = shape[1:] if len(shape) == layer._get_no_batch_dim() else shape[2:]  # type: ignore[no-untyped-call]
            values["instance_norm_values"].append(prod(spatial))
    least = {name: _least(each) for name, each in values.items()}
    return least, any(each and least[name] is None for name, each in values.items())


def _least(values: list[int | None]) -> int | None:
    """The least; `None` where one that is unknown may be less."""
    known = min((value for value in values if value is not None), default=None)
    return known if known == 1 or None not in values else None


def _per_sample(shape: tuple[int, ...], batch_size: int) -> int | None:
    """Values per channel that a sample gives: the places of its map.

    Where the first dimension holds several rows a sample (time steps, two views of an image), they
    count as well. `None` where samples have different numbers of them (the nodes of graphs).
    """
    rows, left = divmod(shape[0], batch_size) if shape else (1, 0)
    if rows and left:
        return None
    return prod(shape[2:]) * max(1, rows)
