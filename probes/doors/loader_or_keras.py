"""The loader door, until the script calls Keras's `fit`: then the Keras door."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ...records import LengthChoice
from ..loader.loader_handle import LoaderHandle
from .keras import KerasDoor
from .loader import LoaderDoor
from .protocols import Door, PassingBatches, StepListener
from .script_watch import ScriptWatch


class LoaderOrKerasDoor:
    """Both doors of a script that is run as it is; nobody knows which one it needs."""

    def __init__(self, loader: LoaderDoor, keras: KerasDoor) -> None:
        self._loader = loader
        self._keras = keras

    @property
    def watch(self) -> ScriptWatch:
        """Knows the script's loaders and optimizers."""
        return self._loader.watch

    @property
    def in_control(self) -> bool:
        """Whether a loop over loaders was found."""
        return self._loader.in_control

    # what the script does --------------------------------------------------------------------

    def stepped(self, optimizer: Any) -> None:
        """An optimizer of torch made a step; Keras tells of its own."""
        if not self._keras.fitted:
            self._loader.stepped(optimizer)

    def next_batch(
        self, handle: LoaderHandle, iterator: Any, native_next: Callable[[Any], Any]
    ) -> Any:
        """The script, or Keras for it, fetches from a loader."""
        if self._keras.fitted:
            return handle.fetch(iterator, native_next)
        return self._loader.next_batch(handle, iterator, native_next)

    # asked by the trial runner ---------------------------------------------------------------

    def report_to(self, listener: StepListener) -> None:
        """See `Door`."""
        self._loader.report_to(listener)
        self._keras.report_to(listener)

    def ask(self, batch_size: int, length: LengthChoice = "") -> None:
        """A trial of this size begins."""
        self._present.ask(batch_size, length)

    def resize(self, batch_size: int) -> None:
        """The next step has this size."""
        self._present.resize(batch_size)

    @property
    def batches(self) -> PassingBatches | None:
        """See `Door`."""
        return self._present.batches

    def parameters(self) -> list[torch.Tensor]:
        """Parameters that torch's optimizers train."""
        return self._present.parameters()

    @property
    def _present(self) -> Door:
        return self._keras if self._keras.fitted else self._loader
