"""batchadvisor: which batch size to use, why, and how sure that is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .advisor.tails import tails as tails
    from .callback.adapters.plain import ProfilingCallback as ProfilingCallback
    from .records import ModelFacts as ModelFacts
    from .records import Pipeline as Pipeline
    from .session.api import ProbedRun as ProbedRun
    from .session.api import probe as probe
    from .session.api import run as run
    from .session.find import FoundBatchSize as FoundBatchSize
    from .session.find import find_batch_size as find_batch_size

__version__ = "0.1.0"
_LAZY = {
    "FoundBatchSize": ("session.find", "FoundBatchSize"),
    "ModelFacts": ("records", "ModelFacts"),
    "Pipeline": ("records", "Pipeline"),
    "ProbedRun": ("session.api", "ProbedRun"),
    "ProfilingCallback": ("callback", "ProfilingCallback"),
    "find_batch_size": ("session.find", "find_batch_size"),
    "probe": ("session.api", "probe"),
    "run": ("session.api", "run"),
    "tails": ("advisor.tails", "tails"),
}
__all__ = [
    "FoundBatchSize",
    "ModelFacts",
    "Pipeline",
    "ProbedRun",
    "ProfilingCallback",
    "__version__",
    "find_batch_size",
    "probe",
    "run",
    "tails",
]


def __getattr__(name: str) -> Any:
    """Public names are loaded when they are first used; `import batchadvisor` stays light."""
    if name not in _LAZY:
        msg = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(msg)
    from importlib import import_module

    module, attribute = _LAZY[name]
    return getattr(import_module(f".{module}", __name__), attribute)


def __dir__() -> list[str]:
    return sorted({*globals(), *_LAZY})
