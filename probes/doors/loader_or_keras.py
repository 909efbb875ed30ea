"""The loader door, until the script calls Keras's `fit`: then the Keras door."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import torch

from ...records import InputSize, LengthChoice
from ..loader.loader_handle import LoaderHandle
from ..loader.token_meter import TokenMeter
from .keras import KerasDoor
from .loader import LoaderDoor
from .protocols import Aside, BatchSubstitute, Door, Evaluation, StepListener
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

    def inputs(self) -> InputSize | None:
        """How the batches of the trial that ends now varied."""
        return self._present.inputs()

    @property
    def meter(self) -> TokenMeter | None:
        """Is told of the batches that go to the script."""
        return self._present.meter

    def parameters(self) -> list[torch.Tensor]:
        """Parameters that torch's optimizers train."""
        return self._present.parameters()

    def replace_batches(self, substitute: BatchSubstitute, aside: Aside = nullcontext) -> bool:
        """The script gets what `substitute` makes of each batch."""
        return self._present.replace_batches(substitute, aside)

    def end_epoch(self, evaluation: Evaluation) -> bool:
        """See `Door`."""
        return self._present.end_epoch(evaluation)

    @property
    def _present(self) -> Door:
        return self._keras if self._keras.fitted else self._loader
