"""The profiling callback: the same measurements inside a training of the user's own.

`step_counter.py` is told of runs, steps and micro-batches and knows no framework;
`devices.py` reads memory and counters; `recorder.py` makes the record of both; each file of
`adapters/` is for one framework.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .adapters.accelerate import AccelerateCallback
    from .adapters.huggingface import HuggingFaceCallback
    from .adapters.keras import KerasCallback
    from .adapters.lightning import LightningCallback
    from .adapters.plain import ProfilingCallback

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

    return getattr(import_module(f".adapters.{_HOMES[name]}", __name__), name)
