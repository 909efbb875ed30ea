"""Lightning's checkpoints: filled from memory, where keeping `torch.save` from files is no help."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

_WRITERS = ("lightning.fabric.plugins.io.torch_io", "lightning_fabric.plugins.io.torch_io")
_CALLBACKS = (
    "lightning.pytorch.callbacks.model_checkpoint",
    "pytorch_lightning.callbacks.model_checkpoint",
)


def silence_lightning(saved: Callable[[Any], None]) -> None:
    """Keeps what is loaded of Lightning from writing checkpoints, and from replacing `last.ckpt`.

    Args:
        saved: told of each path that would have been written.
    """

    def save(checkpoint: object, filepath: Any) -> None:
        del checkpoint
        saved(filepath)

    def link(*_: object) -> None:
        """It would remove an older `last.ckpt` for a link to a file that is not there."""

    for name in _WRITERS:
        module = sys.modules.get(name)
        if hasattr(module, "_atomic_save"):
            vars(module)["_atomic_save"] = save
    for name in _CALLBACKS:
        callback: Any = getattr(sys.modules.get(name), "ModelCheckpoint", None)
        if hasattr(callback, "_link_checkpoint"):
            callback._link_checkpoint = staticmethod(link)
