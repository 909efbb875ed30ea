"""What a range for a GPU takes for granted: nothing of it was compared with one. Pure."""

from __future__ import annotations

from ...units import MIB
from .forecast import LEAST_CONTEXT_BYTES, MOST_CONTEXT_BYTES

CONTEXT = f"{LEAST_CONTEXT_BYTES // MIB} to {MOST_CONTEXT_BYTES // MIB} MiB"
ASSUMPTIONS = (
    f"CUDA and its libraries take {CONTEXT} beside torch's allocator",
    "torch's allocator rounds, splits and keeps memory as a replica of it does",
    "convolutions take no workspaces, and sums over leading dimensions those of an A100",
)
