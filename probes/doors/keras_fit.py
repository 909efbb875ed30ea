"""The script's call of `fit`, made again and again with batches of our size."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from ...records import SourceLine
from ..devices.device_probe import DeviceProbe
from ..devices.keras_devices import probe_of
from .keras_data import FitData
from .protocols import StepListener

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
