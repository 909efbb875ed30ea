"""Frameworks that keep a batch until the next fetch, to know whether it is the last one."""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any

FRAMES_TO_THE_LOADER = 10
"""Calls between a fetch and the loop over the loader, at most."""
ACCELERATE_LOADERS = "accelerate.data_loader"
LIGHTNING = ("lightning.pytorch.loops.fetchers", "pytorch_lightning.loops.fetchers")


def reads_ahead() -> bool:
    """Whether the one who fetches now hands on the batch before this one.

    Accelerate does so with any loader, and so does Hugging Face's Trainer, which stands on it;
    Lightning with loaders without a length.
    """
    frame: FrameType | None = sys._getframe(1)
    for _ in range(FRAMES_TO_THE_LOADER):
        if frame is None:
            return False
        module = frame.f_globals.get("__name__")
        if module == ACCELERATE_LOADERS:
            code = frame.f_code
            if code.co_name == "__iter__" and "next_batch" in code.co_varnames:
                return True
        elif module in LIGHTNING:
            fetcher: Any = frame.f_locals.get("self")
            # Of a loader with a length it takes none ahead, whatever it is set to.
            return bool(getattr(fetcher, "prefetch_batches", 0)) and fetcher.length is None
        frame = frame.f_back
    return False
