"""Memory that captured CUDA graphs keep.

A graph that was captured owns a private pool of the caching allocator for as long as it lives:
`torch.compile` with graphs keeps one for the shapes it met, and no emptied cache gives it back
(PyTorch's notes on CUDA semantics, "Graph memory management"). In a process that runs size after
size, a peak therefore holds the pools of the sizes before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch

_SHARED = (0, 0)
"""The pool of everything that is no graph."""


def graph_pools_bytes(device: torch.device) -> int | None:
    """What private pools hold on a GPU; `None` where this torch does not tell."""
    try:
        return in_private_pools(_segments(), device.index or 0)
    except (RuntimeError, KeyError, TypeError):  # another allocator or torch, a broken context
        return None


def in_private_pools(segments: Iterable[Mapping[str, Any]], device: int) -> int:
    """Bytes of a snapshot's segments that belong to private pools.

    Raises:
        KeyError: the segments do not name their pools.

    >>> pool = {"device": 0, "total_size": 2097152, "segment_pool_id": (0, 1)}
    >>> in_private_pools([pool, {**pool, "segment_pool_id": (0, 0)}, {**pool, "device": 1}], 0)
    2097152
    """
    return sum(
        int(segment["total_size"])
        for segment in segments
        if segment["device"] == device and tuple(segment["segment_pool_id"]) != _SHARED
    )


def _segments() -> Iterable[Mapping[str, Any]]:
    # Never with the history that the user may record. An older torch lacks the argument.
    snapshot: Callable[..., Iterable[Mapping[str, Any]]] = torch.cuda.memory_snapshot
    return snapshot(include_traces=False)
