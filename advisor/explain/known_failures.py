"""Failures of a size whose cause its own words tell, and what helps against each."""

from __future__ import annotations

import msgspec


class KnownFailure(msgspec.Struct, frozen=True):
    """What an exception says went wrong.

    Attributes:
        what: in a few words.
        remedy: what to do.
    """

    what: str
    remedy: str


SHARED_MEMORY = KnownFailure(
    "/dev/shm is full: data workers hand their batches over in it",
    "Give it more room (docker run --shm-size=8g or --ipc=host; in Kubernetes an emptyDir of "
    "medium Memory at /dev/shm), or take fewer data workers or a smaller prefetch_factor.",
)
TOO_LARGE = KnownFailure(
    "no kernel takes tensors of this size",
    "Smaller sizes ran; stay below this one.",
)
_SHARED = (
    # torch/utils/data/_utils/signal_handling.py and dataloader.py, and DataLoader.cpp
    "out of shared memory",
    "insufficient shared memory",
    # aten/src/ATen/MapAllocator.cpp
    "unable to allocate shared memory(shm)",
    "unable to write to file </torch_",
    "unable to resize file </torch_",
)
_BUS_ERROR = "is killed by signal: bus error"
_LARGE = (
    # cuDNN, of tensors beyond its 32-bit indices: pytorch/pytorch issues 3038, 4107
    "cudnn_status_not_supported",
    # aten/src/ATen/native: checks of canUse32BitIndexMath and of int32 strides
    "too large for 32-bit indexing",
    "canuse32bitindexmath",
    "integer out of range",
)


def known_failure(text: str, *, smaller_ran: bool = False) -> KnownFailure | None:
    """The failure that an exception's words tell of; `None` where they do not.

    Args:
        smaller_ran: a smaller size ran; without that a kernel may refuse anything.

    >>> known_failure("DataLoader worker (pid 7) is killed by signal: Bus error.").what[:16]
    '/dev/shm is full'
    >>> known_failure("cuDNN error: CUDNN_STATUS_NOT_SUPPORTED.") is None
    True
    """
    lower = text.lower()
    if _BUS_ERROR in lower or any(part in lower for part in _SHARED):
        return SHARED_MEMORY
    if smaller_ran and any(part in lower for part in _LARGE):
        return TOO_LARGE
    return None
