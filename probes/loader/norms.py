"""Normalisation layers, counted by kind."""

from __future__ import annotations

import gc
from collections.abc import Iterable
from math import isfinite
from typing import Any

import torch
from torch.nn.modules import batchnorm, instancenorm, normalization

from ...records import NormLayers


def count_norms(things: Iterable[Any] | None = None) -> NormLayers:
    """Normalisation layers in training mode.

    Args:
        things: modules, among anything else; all objects of this process if not given.
    """
    counts = dict.fromkeys(
        ("sync_batch_norm", "instance_norm", "batch_norm", "group_norm", "layer_norm"), 0
    )
    kinds: tuple[tuple[str, type], ...] = (
        ("sync_batch_norm", torch.nn.SyncBatchNorm),
        ("instance_norm", instancenorm._InstanceNorm),
        ("batch_norm", batchnorm._BatchNorm),
        ("group_norm", normalization.GroupNorm),
        ("layer_norm", normalization.LayerNorm),
    )
    for thing in gc.get_objects() if things is None else things:
        # type(), not isinstance(): some proxies answer isinstance by loading what they stand for.
        if not issubclass(type(thing), torch.nn.Module) or not thing.training:
            continue
        name = next((label for label, kind in kinds if isinstance(thing, kind)), None)
        if name is not None:
            counts[name] += 1
    return NormLayers(**counts)


class RunningStatistics:
    """The running variances of the BatchNorm layers in training mode, as they are now."""

    def __init__(self) -> None:
        self._layers = [
            (thing, thing.running_var.detach().clone())
            for thing in gc.get_objects()
            if issubclass(type(thing), batchnorm._BatchNorm)
            and thing.training
            and thing.running_var is not None
        ]

    @property
    def num_layers(self) -> int:
        """Layers that were read."""
        return len(self._layers)

    def num_non_finite(self) -> int:
        """Layers whose statistics are not numbers now."""
        return sum(
            1
            for layer, _ in self._layers
            if not bool(torch.isfinite(torch.cat((layer.running_mean, layer.running_var))).all())
        )

    def moved_most(self) -> tuple[float, float] | None:
        """Mean running variance before and now of the layer where it changed the most."""
        pairs = [
            (float(before.mean()), float(layer.running_var.mean()))
            for layer, before in self._layers
        ]
        finite = [pair for pair in pairs if all(map(isfinite, pair))]
        return max(
            finite, key=lambda pair: abs(pair[1] / pair[0] - 1) if pair[0] else 0, default=None
        )
