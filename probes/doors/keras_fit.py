"""The script's call of `fit`, made again and again with its data cut into batches of our size."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from torch.utils.data import DataLoader

from ...records import BatchSizeSource, SourceLine
from ..devices.device_probe import DeviceProbe
from ..devices.keras_devices import probe_of
from ..loader.loader_handle import LoaderHandle
from .protocols import StepListener
from .script_watch import ScriptWatch

KERAS_SIZE = 32
"""Batch size that `fit` takes where none is given (Keras 3)."""
KERAS_DISCOVERY_STEPS = 3
ENDLESS = 1 << 30


@dataclass(frozen=True)
class FitCall:
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
        """`torch`, `tensorflow` or `jax`."""
        return str(self.keras.backend.backend())

    @property
    def batch_size(self) -> int:
        """Its own, as Keras reads it."""
        return self.arguments["batch_size"] or self.data.batch_size or KERAS_SIZE


class FitRun:
    """Calls `fit` again and again; its callback tells the listener of every batch.

    Args:
        call: of the script.
        listener: decides at step boundaries.
        tell_found: told of the device's probe and name, the steps of a call and the seconds of a
            step once a few were made.
        limit_bytes: the memory that the user allows on the device.
    """

    def __init__(
        self,
        call: FitCall,
        listener: StepListener,
        tell_found: Callable[[DeviceProbe, str, int, float], None],
        limit_bytes: int | None,
    ) -> None:
        self._call = call
        self._listener = listener
        self._tell_found = tell_found
        self._limit_bytes = limit_bytes
        self._size = 0
        self._wanted = 0
        self._found = False
        self._num_batches = 0
        self._last_end = -1
        self._batch_started_s = 0.0

    def ask(self, size: int) -> None:
        """The next call of `fit` has this size."""
        self._wanted = size

    def forever(self, size: int) -> None:
        """Trains, at the wanted size, until the process is ended."""
        self._wanted = size
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
                run._epoch_began()

            def on_train_batch_end(self, batch: int, logs: Any = None) -> None:  # noqa: ARG002
                run._batch_ended(batch)
                if run._wanted != run._size:
                    run._call.model.stop_training = True

        return Pulse()

    def _epoch_began(self) -> None:
        self._last_end = -1

    def _batch_ended(self, batch: int) -> None:
        # Under steps_per_execution one call makes several steps.
        steps, self._last_end = batch - self._last_end, batch
        now = time.monotonic()
        if self._found:
            for _ in range(max(1, steps)):
                self._listener.arrived(self._size, "indices", 0.0, primary=True)
            self._listener.boundary()
            return
        self._num_batches += 1
        step_s, self._batch_started_s = now - self._batch_started_s, now
        self._listener.discovering(self._num_batches)
        if self._num_batches >= KERAS_DISCOVERY_STEPS:
            self._found = True
            probe, device = probe_of(self._call.keras, self._call.model, self._limit_bytes)
            self._tell_found(probe, device, max(1, steps), step_s)


class NotSizedError(Exception):
    """The size of these batches is not `fit`'s to choose."""


class FitData:
    """The data of one call of `fit`.

    Attributes:
        batch_size: of a loader; `None` where `fit` takes it.
        num_samples: of an epoch.
    """

    def __init__(self, arguments: Mapping[str, Any], handle: LoaderHandle | None) -> None:
        self._handle = handle
        self._data = {name: arguments[name] for name in ("x", "y", "sample_weight")}
        self.batch_size: int | None = None
        self.num_samples: int | None
        self.drop_last = False
        self.iterable = False
        self.num_workers = 0
        self.source: BatchSizeSource | None = None
        if handle is None:
            length = min(_leaves_lengths(self._data["x"]))
            # Keras cuts the validation part off the end of the arrays.
            self.num_samples = length - int(length * (arguments["validation_split"] or 0.0))
        else:
            info = handle.info()
            self.batch_size, self.num_samples = info.batch_size, info.num_samples
            self.drop_last, self.num_workers = info.drop_last, info.num_workers
            self.iterable = info.iterable
            self.source = info.source

    def arguments(self, size: int) -> dict[str, Any]:
        """Keyword arguments of `fit` that make batches of `size` and no other."""
        if self._handle is not None:
            self._handle.ask(size)
            return dict(self._data)
        assert self.num_samples is not None
        count = self.num_samples // size * size
        if count:
            # The first `count` samples: a view of arrays, no copy.
            cut = {
                name: _map(lambda array: array[:count], value) for name, value in self._data.items()
            }
        else:
            cut = {name: _map(_repeated(size), value) for name, value in self._data.items()}
        return {**cut, "batch_size": size}


def fit_data(arguments: Mapping[str, Any], watch: ScriptWatch) -> FitData:
    """The data of a call.

    Args:
        arguments: of `fit`, by name.
        watch: knows the DataLoaders.

    Raises:
        NotSizedError: they come from something that makes batches itself.
    """
    x = arguments["x"]
    if isinstance(x, DataLoader):
        handle = watch.handle_of(x)
        if handle is None or handle.cannot_steer:
            reason = handle.cannot_steer if handle is not None else "it is not known"
            raise NotSizedError(f"gets a DataLoader that cannot be steered: {reason}")
        return FitData(arguments, handle)
    try:
        lengths = _leaves_lengths(x)
    except TypeError:
        lengths = []
    if not lengths or min(lengths) < 1:
        kind = type(x).__name__
        raise NotSizedError(f"gets its batches from {kind}, which makes them itself")
    return FitData(arguments, None)


def _leaves_lengths(value: Any) -> list[int]:
    """First lengths of the arrays in a nest of lists and dictionaries.

    Raises:
        TypeError: something in it is no array.
    """
    if isinstance(value, Mapping):
        return [length for part in value.values() for length in _leaves_lengths(part)]
    if isinstance(value, (list, tuple)):
        return [length for part in value for length in _leaves_lengths(part)]
    if not hasattr(value, "shape") or not hasattr(value, "__getitem__") or not len(value.shape):
        raise TypeError(type(value).__name__)
    return [int(value.shape[0])]


def _map(function: Callable[[Any], Any], value: Any) -> Any:
    if value is None:
        return None
    if isinstance(value, Mapping):
        return {name: _map(function, part) for name, part in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_map(function, part) for part in value)
    return function(value)


def _repeated(size: int) -> Callable[[Any], Any]:
    """Makes `size` samples of fewer."""

    def repeat(array: Any) -> Any:
        np = sys.modules["numpy"]  # Keras has loaded it
        plain = np.asarray(array)
        return plain[np.arange(size) % len(plain)]

    return repeat
