"""Versions of what runs in a probed process."""

from __future__ import annotations

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
