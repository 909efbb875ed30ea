"""Compiled modules of torch, for the workers of a run, where the user's Python keeps none.

Containers set PYTHONDONTWRITEBYTECODE, some installers compile nothing, and folders of packages
may be read only. `import torch` then compiles all of it in every process: 4 s in the place of 1.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Mapping
from pathlib import Path

CACHE_PREFIX = "PYTHONPYCACHEPREFIX"
DONT_WRITE = "PYTHONDONTWRITEBYTECODE"


def variables_for(environment: Mapping[str, str], scratch: Path) -> dict[str, str]:
    """The variables of a worker, changed where its modules would be compiled in each process.

    Args:
        scratch: a folder that all workers of a run share and that goes with it.
    """
    torch = importlib.util.find_spec("torch")  # found, not imported
    if torch is None or torch.origin is None or is_kept(Path(torch.origin)):
        return dict(environment)
    others = {name: text for name, text in environment.items() if name != DONT_WRITE}
    return {**others, CACHE_PREFIX: str(scratch / "bytecode")}


def is_kept(module: Path) -> bool:
    """Whether the compiled form of a module is there, or Python will put it there by itself."""
    compiled = Path(importlib.util.cache_from_source(module))
    if compiled.exists():
        return True
    folder = compiled.parent
    while not folder.exists():
        folder = folder.parent
    return not sys.dont_write_bytecode and os.access(folder, os.W_OK)
