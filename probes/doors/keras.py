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
from types import FrameType, ModuleType
from typing import Any

import torch

from ...records import (
    Discovery,
    LengthChoice,
    LoaderInfo,
    NormLayers,
    OptimizerInfo,
    SourceLine,
)
from ..devices.device_probe import DeviceProbe
from ..process.orders import WorkOrder
from ..source.call_site import is_own, is_users, user_call_site
from .keras_fit import FitCall, FitRun, NotSizedError, fit_data
from .protocols import FoundLoop, StepListener
from .script_watch import ScriptWatch

_ON_THE_WAY = ("importlib", "keras", "tensorflow")
"""Packages whose code runs between a script's import of Keras and Keras itself."""


class KerasDoor:
    """Waits for Keras to be imported and for `fit` to be called, and calls it again and again.

    Args:
        watch: knows the script's DataLoaders.
        order: of this worker.
        started_s: `time.monotonic()` at the start of the process.

    Attributes:
        imported: whether the script itself did, and no library for reasons of its own.
        fitted: whether the script called `fit`.
    """

    batches: None = None
    _listener: StepListener

    def __init__(self, watch: ScriptWatch, order: WorkOrder, started_s: float) -> None:
        self._watch = watch
        self._order = order
        self._started_s = started_s
        self._run: FitRun | None = None
        self.imported = False
        self.fitted = False

    def install(self) -> None:
        """Looks out for the import; nothing of Keras is loaded by us."""
        sys.meta_path.insert(0, _KerasFinder(self._patch))

    # asked by the trial runner ---------------------------------------------------------------

    def report_to(self, listener: StepListener) -> None:
        """See `Door`."""
        self._listener = listener

    def ask(self, batch_size: int, length: LengthChoice = "") -> None:  # noqa: ARG002
        """The next call of `fit` has this size."""
        assert self._run is not None
        self._run.ask(batch_size)

    def resize(self, batch_size: int) -> None:
        """As `ask`."""
        self.ask(batch_size)

    def parameters(self) -> list[torch.Tensor]:
        """None of torch's."""
        return []

    # inside ----------------------------------------------------------------------------------

    def _patch(self, keras: ModuleType) -> None:
        self.imported = _is_the_scripts_import()
        native = getattr(getattr(keras, "Model", None), "fit", None)
        if native is None:
            return  # not Keras as we know it; it is left alone
        door = self

        @functools.wraps(native)
        def fit(model: Any, *args: Any, **kwargs: Any) -> Any:
            if door.fitted:
                return native(model, *args, **kwargs)
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
        self.fitted = True
        self._watch.own_updates.stop()
        self._watch.stop_cutting()  # Keras makes a loader of its own for each size that we ask for
        place = user_call_site()
        bound = inspect.signature(native).bind(model, *args, **kwargs)
        bound.apply_defaults()
        try:
            data = fit_data(bound.arguments, self._watch)
        except NotSizedError as error:
            self._listener.cannot_steer(
                f"Model.fit{_at(place)} {error}",
                "give fit arrays and a batch_size, or a torch DataLoader.",
                door="template",
            )
            return
        call = FitCall(keras, model, native, bound.arguments, data, place, learning_rate_of(model))
        limit_bytes = self._order.memory_limit_bytes
        tell_found = functools.partial(self._found, call)
        self._run = FitRun(call, self._listener, tell_found, limit_bytes)
        cap = self._order.batch_cap or call.batch_size
        self._run.forever(min(call.batch_size, cap))

    def _found(
        self, call: FitCall, probe: DeviceProbe, device: str, steps_a_call: int, step_s: float
    ) -> None:
        foreign = call.backend != "torch"
        self._listener.found(
            FoundLoop(
                discovery=self._discovery(call, device, steps_a_call, step_s),
                device=torch.device("cpu"),
                probe=probe,
                no_input="Keras feeds the batches; waiting for them is not seen",
                no_profile=f"torch's profiler sees nothing of {call.backend}" if foreign else "",
            )
        )

    def _discovery(self, call: FitCall, device: str, steps_a_call: int, step_s: float) -> Discovery:
        data, source = call.data, None
        if call.place is not None:
            source = self._watch.source_of(call.place, call.batch_size)
        spread, num_replicas = replicas_of(call.keras, call.model)
        loader = LoaderInfo(
            ordinal=0,
            place=call.place,
            batch_size=call.batch_size,
            num_samples=data.num_samples,
            drop_last=data.drop_last,
            num_workers=data.num_workers,
            sampler=f"Keras on {call.backend}" + (f", {spread}" if spread else ""),
            iterable=data.iterable,
            steered="by the batch_size of Model.fit",
            trains=True,
            source=source or data.source,
        )
        return Discovery(
            door="keras",
            loaders=(loader,),
            optimizers=(optimizer_of(call.model, call.learning_rate),),
            primary_loader=0,
            native_batch_size=call.batch_size,
            micro_batches=steps_a_call,
            num_replicas=num_replicas,
            parameter_device=device,
            num_parameters=num_parameters_of(call.model),
            norm_layers=norm_layers_of(call.model),
            setup_s=time.monotonic() - self._started_s,
            native_step_s=step_s,
        )


def _is_the_scripts_import() -> bool:
    """Whether the user's code imports Keras at this moment, itself or with TensorFlow.

    TensorBoard and others bring it along for scripts that have nothing to do with it.
    """
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and not is_users(frame.f_code.co_filename):
        package = frame.f_globals.get("__name__", "").partition(".")[0]
        if package not in _ON_THE_WAY and not is_own(frame.f_code.co_filename):
            return False
        frame = frame.f_back
    return frame is not None


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


def _at(place: SourceLine | None) -> str:
    return f" at {place}" if place is not None else ""


# What a Keras model says of itself: its optimizer, its size, its normalisation layers.


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
    """The class that spreads a batch over devices (JAX's `DataParallel`, a tf strategy), their
    number.

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
