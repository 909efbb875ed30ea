"""What a forecast for a GPU takes for granted. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from ....advisor.gpu_memory.context import LEAST_CONTEXT_BYTES, MOST_CONTEXT_BYTES
from ....units import MIB
from .forecast import EAGER_BYTES, most_beside


def assumptions(
    names: Iterable[str] = (), *, eager: bool = False, grouped: bool = False
) -> tuple[str, ...]:
    """Words what a forecast takes for granted.

    Args:
        names: of the GPUs.
        eager: CUDA loads all kernels at its start; see `forecast`.
        grouped: cuDNN tries all kernels of grouped convolutions in half precision.
    """
    more = EAGER_BYTES // MIB if eager else 0
    ends = [num_bytes // MIB + more for num_bytes in (LEAST_CONTEXT_BYTES, MOST_CONTEXT_BYTES)]
    largest = max((most_beside(name) for name in names), default=MOST_CONTEXT_BYTES) // MIB + more
    hopper = f" (on Hopper {largest}, by what an H100 took)" if largest > ends[1] else ""
    why = ", since it loads all kernels at its start" if eager else ""
    spared = "other convolutions" if grouped else "convolutions"
    convolutions = f"{spared} take no workspaces"
    if grouped:
        convolutions = f"grouped convolutions take 4 or 8 times their input, {convolutions}"
    taken = f"{ends[0]} to {ends[1]} MiB{hopper}"
    return (
        f"CUDA and its libraries take {taken} beside torch's allocator{why}",
        "torch's allocator rounds, splits and keeps memory as a replica of it does",
        f"{convolutions}, and sums over leading dimensions those of an A100",
    )


ASSUMPTIONS = assumptions()
"""The assumptions behind the forecasts for most scripts."""
