"""The Keras door: the script's own `Model.fit`, called with its own data and our sizes.

Keras 3 trains on torch, TensorFlow or JAX; no torch optimizer steps there, and its loop is inside
`fit`. So the script's first call of `fit` is bound to its arguments and repeated, one call for
each change of the size, with one callback: the end of a batch is the end of a step. Keras hands
that callback plain numbers, for which it waits for the device, so a step is complete when told.
The script's own callbacks and its validation are left out.
"""

from __future__ import annotations

import functools
import importlib.machinery
import inspect
import math
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import torch

from ..records import Discovery, LoaderInfo, NormLayers, OptimizerInfo, SourceLine
from .batch_size_source import find_batch_size_source
from .call_site import user_call_site
from .conductor import Conductor
from .keras_data import FitData, NotSizedError, fit_data
from .keras_devices import probe_of
from .messages import WorkOrder
from .steering import Steering

KERAS_SIZE = 32
"""What `fit` takes where no batch_size is given (Keras 3)."""
DISCOVERY_STEPS = 3
ENDLESS = 1 << 30


@dataclass(frozen=True)
class _Call:
    """The script's call of `fit`."""

    keras: ModuleType
    model: Any
    native: Callable[..., Any]
    arguments: dict[str, Any]
    data: FitData
    place: SourceLine | None
    learning_rate: float | None

    @property
    def backend(self) -> str:
        return str(self.keras.backend.backend())

    @property
    def batch_size(self) -> int:
        return self.arguments["batch_size"] or self.data.batch_size or KERAS_SIZE


class KerasDoor:
    """Waits for Keras to be imported and for `fit` to be called.

    Args:
        steering: goes to sleep once `fit` is called.
        started_s: `time.monotonic()` at the start of the process.

    Attributes:
        imported, fitted: whether either happened.
    """

    def __init__(
        self, conductor: Conductor, steering: Steering, order: WorkOrder, started_s: float
    ) -> None:
        self._conductor = conductor
        self._steering = steering
        self._order = order
        self._started_s = started_s
        self.imported = False
        self.fitted = False

    def install(self) -> None:
        """Looks out for the import; nothing of Keras is loaded by us."""
        if self._order.door == "loader":
            sys.meta_path.insert(0, _KerasFinder(self._patch))

    def _patch(self, keras: ModuleType) -> None:
        self.imported = True
        native = getattr(getattr(keras, "Model", None), "fit", None)
        if native is None:
            return  # not Keras as we know it; it is left alone
        door = self

        @functools.wraps(native)
        def fit(model: Any, *args: Any, **kwargs: Any) -> Any:
            if door.fitted:
                return native(model, *args, **kwargs)
            door.fitted = True
            door._take_over(keras, model, native, args, kwargs)
            return None

        keras.Model.fit = fit

    def _take_over(
        self,
        keras: ModuleType,
        model: Any,
        native: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> None:
        place = user_call_site()
        bound = inspect.signature(native).bind(model, *args, **kwargs)
        bound.apply_defaults()
        try:
            data = fit_data(bound.arguments, self._steering)
        except NotSizedError as error:
            self._conductor.cannot_steer(
                f"Model.fit{_at(place)} {error}",
                "give fit arrays and a batch_size, or a torch DataLoader.",
                door="template",
            )
            return
        call = _Call(keras, model, native, bound.arguments, data, place, _learning_rate(model))
        self._steering.passive = True
        run = _FitRun(call, self._conductor, functools.partial(self._discovery, call))
        self._conductor.ask = run.ask
        self._conductor.parameters = list
        self._conductor.no_input = "Keras feeds the batches; waiting for them is not seen"
        if call.backend != "torch":
            self._conductor.no_profile = f"torch's profiler sees nothing of {call.backend}"
        cap = self._order.batch_cap or call.batch_size
        run.forever(min(call.batch_size, cap), self._order.memory_limit_bytes)

    def _discovery(self, call: _Call, device: str, steps_a_call: int, step_s: float) -> Discovery:
        data, source = call.data, None
        if call.place is not None:
            source = find_batch_size_source(call.place, call.batch_size, self._order.arguments)
        loader = LoaderInfo(
            ordinal=0,
            place=call.place,
            batch_size=call.batch_size,
            num_samples=data.num_samples,
            drop_last=data.drop_last,
            num_workers=data.num_workers,
            sampler=f"Keras on {call.backend}",
            iterable=False,
            steered="by the batch_size of Model.fit",
            trains=True,
            source=source or data.source,
        )
        return Discovery(
            door="keras",
            loaders=(loader,),
            optimizers=(_optimizer_of(call),),
            primary_loader=0,
            native_batch_size=call.batch_size,
            micro_batches=steps_a_call,
            parameter_device=device,
            num_parameters=_num_parameters(call.model),
            norm_layers=_norm_layers(call.model),
            setup_s=time.monotonic() - self._started_s,
            native_step_s=step_s,
        )


class _FitRun:
    """Calls `fit` again and again; its callback tells the conductor of every batch."""

    def __init__(
        self,
        call: _Call,
        conductor: Conductor,
        describe: Callable[[str, int, float], Discovery],
    ) -> None:
        self._call = call
        self._conductor = conductor
        self._describe = describe
        self._size = 0
        self._wanted = 0
        self._limit_bytes: int | None = None
        self._found = False
        self._num_batches = 0
        self._last_end = -1
        self._batch_started_s = 0.0

    def ask(self, size: int) -> None:
        """The next call of `fit` has this size."""
        self._wanted = size

    def forever(self, size: int, limit_bytes: int | None) -> None:
        """Trains, at the wanted size, until the process is ended."""
        self._wanted = size
        self._limit_bytes = limit_bytes
        callback, given = self._callback(), self._call.arguments
        while True:
            self._size = self._wanted
            arguments = self._call.data.arguments(self._size)
            try:
                self._call.native(
                    self._call.model,
                    **arguments,
                    epochs=ENDLESS,
                    verbose=0,
                    callbacks=[callback],
                    shuffle=given["shuffle"],
                    class_weight=given["class_weight"],
                )
            except Exception as error:
                if type(error).__name__ == "ResourceExhaustedError":  # TensorFlow's own type
                    raise MemoryError(str(error)) from error
                raise

    def _callback(self) -> Any:
        run = self

        class Pulse(self._call.keras.callbacks.Callback):  # type: ignore[name-defined,misc]
            def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:  # noqa: ARG002
                run._last_end = -1

            def on_train_batch_end(self, batch: int, logs: Any = None) -> None:  # noqa: ARG002
                run._batch_ended(batch)
                if run._wanted != run._size:
                    run._call.model.stop_training = True

        return Pulse()

    def _batch_ended(self, batch: int) -> None:
        # Under steps_per_execution one call makes several steps.
        steps, self._last_end = batch - self._last_end, batch
        now = time.monotonic()
        if self._found:
            for _ in range(max(1, steps)):
                self._conductor.arrived(self._size, "indices", 0.0, primary=True)
            self._conductor.boundary()
            return
        self._num_batches += 1
        step_s, self._batch_started_s = now - self._batch_started_s, now
        self._conductor.discovering(self._num_batches)
        if self._num_batches >= DISCOVERY_STEPS:
            self._found = True
            probe, device = probe_of(self._call.keras, self._call.model, self._limit_bytes)
            discovery = self._describe(device, max(1, steps), step_s)
            self._conductor.found(discovery, torch.device("cpu"), probe=probe)


class _KerasFinder:
    """Finds `keras` as Python would, and calls back once it is loaded."""

    def __init__(self, loaded: Callable[[ModuleType], None]) -> None:
        self._loaded = loaded

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name != "keras":
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        loader: Any = spec.loader if spec is not None else None
        if spec is None or loader is None:
            return spec
        native = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            native(module)
            self._loaded(module)

        loader.exec_module = exec_module
        return spec


def _learning_rate(model: Any) -> float | None:
    """Read before training: on JAX the variables are away meanwhile."""
    try:
        return float(model.optimizer.learning_rate)
    except (TypeError, ValueError, AttributeError):
        return None


def _optimizer_of(call: _Call) -> OptimizerInfo:
    return OptimizerInfo(
        ordinal=0,
        place=None,
        name=type(call.model.optimizer).__name__,
        learning_rate=call.learning_rate,
        num_parameters=_num_parameters(call.model),
        trains=True,
    )


def _num_parameters(model: Any) -> int:
    total = 0
    for variable in model.trainable_variables:
        count = 1
        for length in variable.shape:
            count *= int(length)
        total += count
    return total


def _norm_layers(model: Any) -> NormLayers:
    layers = list(model._flatten_layers())
    names = [type(one).__name__ for one in layers]
    places = [_places(one) for one in layers if type(one).__name__ == "BatchNormalization"]
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
    lengths = [one for place, one in enumerate(shape) if place not in (0, channels)]
    return None if None in lengths else math.prod(lengths)


def _at(place: SourceLine | None) -> str:
    return f" at {place}" if place is not None else ""
