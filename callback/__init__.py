"""The profiling callback: the same measurements inside a training of the user's own.

`core.py` is told of runs, steps and micro-batches and knows no framework; `keeper.py` makes the
record of it; each adapter is a file of its own and is imported, with its framework, when it is
asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .accelerate import AccelerateCallback
    from .huggingface import HuggingFaceCallback
    from .keras import KerasCallback
    from .lightning import LightningCallback
    from .plain import ProfilingCallback

__all__ = [
    "AccelerateCallback",
    "HuggingFaceCallback",
    "KerasCallback",
    "LightningCallback",
    "ProfilingCallback",
]

_HOMES = {
    "AccelerateCallback": "accelerate",
    "HuggingFaceCallback": "huggingface",
    "KerasCallback": "keras",
    "LightningCallback": "lightning",
    "ProfilingCallback": "plain",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        msg = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(msg)
    from importlib import import_module

    return getattr(import_module(f".{_HOMES[name]}", __name__), name)
