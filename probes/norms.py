"""Normalisation layers, counted by kind."""

from __future__ import annotations

import gc
from collections.abc import Iterable
from typing import Any

import torch
from torch.nn.modules import batchnorm, instancenorm, normalization

from ..records import NormLayers


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
        name = next((one for one, kind in kinds if isinstance(thing, kind)), None)
        if name is not None:
            counts[name] += 1
    return NormLayers(**counts)
