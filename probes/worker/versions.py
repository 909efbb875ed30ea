"""Versions of what runs in a probed process."""

from __future__ import annotations

import os
import platform

from ... import __version__
from ...records import Versions


def versions() -> Versions:
    """Ours, Python's, torch's; imports torch."""
    import torch

    return Versions(
        batchadvisor=__version__,
        python=platform.python_version(),
        torch=str(torch.__version__),
        cuda=torch.version.cuda,
        platform=platform.platform(),
    )


LAZY_SINCE = (11, 7)
"""CUDA that can load kernels as they run; torch asks for it."""


def loads_all_kernels() -> bool:
    """Whether CUDA would load every kernel at its start in this process, needed or not.

    A torch without CUDA stands for one that loads them as they run.
    """
    import torch

    cuda = torch.version.cuda
    known = tuple(map(int, cuda.split(".")[:2])) if cuda else LAZY_SINCE
    return os.environ.get("CUDA_MODULE_LOADING", "").upper() == "EAGER" or known < LAZY_SINCE
