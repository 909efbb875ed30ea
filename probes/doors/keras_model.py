"""What a Keras model says of itself: its optimizer, its size, its normalisation layers."""

from __future__ import annotations

import math
from typing import Any

from ...records import NormLayers, OptimizerInfo


def learning_rate_of(model: Any) -> float | None:
    """Read before training: on JAX the variables are away meanwhile."""
    try:
        return float(model.optimizer.learning_rate)
    except (TypeError, ValueError, AttributeError):
        return None


def optimizer_of(model: Any, learning_rate: float | None) -> OptimizerInfo:
    """The record of the model's optimizer."""
    return OptimizerInfo(
        ordinal=0,
        place=None,
        name=type(model.optimizer).__name__,
        learning_rate=learning_rate,
        num_parameters=num_parameters_of(model),
        trains=True,
    )


def replicas_of(keras: Any, model: Any) -> tuple[str, int]:
    """What spreads a batch over devices, and how many: `DataParallel` of JAX, a tf strategy.

    Empty and 1 where one device trains, or where nobody knows.
    """
    backend = keras.backend.backend()
    if backend == "jax":
        spread = keras.distribution.distribution()
        if type(spread).__name__ != "DataParallel":
            return "", 1
        return "DataParallel", int(spread.device_mesh.devices.size)
    if backend == "tensorflow":
        strategy = model.distribute_strategy
        number = int(strategy.num_replicas_in_sync)
        name = type(strategy).__name__
        known = name.startswith(("MirroredStrategy", "MultiWorkerMirrored", "TPUStrategy"))
        if known and (number > 1 or name.startswith("TPU")):
            return name.removesuffix("V2"), number
    return "", 1


def num_parameters_of(model: Any) -> int:
    """Numbers that train."""
    total = 0
    for variable in model.trainable_variables:
        count = 1
        for length in variable.shape:
            count *= int(length)
        total += count
    return total


def norm_layers_of(model: Any) -> NormLayers:
    """How many normalisation layers of each kind it has, and the values that they see."""
    layers = list(model._flatten_layers())
    names = [type(layer).__name__ for layer in layers]
    places = [_places(layer) for layer in layers if type(layer).__name__ == "BatchNormalization"]
    return NormLayers(
        batch_norm=names.count("BatchNormalization"),
        batch_norm_values=None if None in places else min(places, default=None),  # type: ignore[type-var]
        group_norm=names.count("GroupNormalization"),
        layer_norm=names.count("LayerNormalization"),
    )


def _places(layer: Any) -> int | None:
    """Values per channel that a sample gives to a layer: the places of its map, if declared."""
    try:
        shape, channels = tuple(layer.input.shape), layer.axis % len(layer.input.shape)
    except (AttributeError, TypeError, ValueError):
        return None  # a subclassed model: no symbolic input
    lengths = [length for place, length in enumerate(shape) if place not in (0, channels)]
    return None if None in lengths else math.prod(lengths)
