"""Slices of a GPU (MIG, Multi-Instance GPU) and the memory that the driver lists for each.

The GiB are those of `nvidia-smi mig -lgip`, the smallest where drivers differ: for an A100 of 80 GB
in github.com/NVIDIA/mig-parted, for an H100 in NVIDIA's MIG User Guide, table of profiles.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ...units import GIB

SLICES_GIB: Final[Mapping[str, Mapping[str, float]]] = {
    "A100-40GB": {"1g.5gb": 4.75, "2g.10gb": 9.5, "3g.20gb": 19.5},
    "A100-80GB": {"1g.10gb": 9.5, "1g.20gb": 19.5, "3g.40gb": 39.25},
    "H100-80GB": {"1g.10gb": 9.62, "1g.20gb": 19.5, "3g.40gb": 39.25},
}
"""Slices of each GPU: of each amount of memory the one with the least compute, ascending."""
LARGER_GIB: Final = 45
"""An A100 with more memory than this is the one of 80 GB."""


def fitting_slice(name: str, total_bytes: int, need_bytes: int) -> str | None:
    """The smallest slice of the GPU with so much memory, `None` where there is none.

    Args:
        name: of the whole GPU, as torch gives it.
        need_bytes: everything that the process holds on the device.

    >>> fitting_slice("NVIDIA A100-SXM4-80GB", 79 * GIB, 12 * GIB)
    '1g.20gb'
    >>> fitting_slice("NVIDIA A100-SXM4-80GB", 79 * GIB, 50 * GIB)
    >>> fitting_slice("Tesla T4", 15 * GIB, GIB)
    """
    size = "80GB" if total_bytes > LARGER_GIB * GIB else "40GB"
    family = next((each for each in ("A100", "H100") if each in name), "")
    slices = SLICES_GIB.get(f"{family}-{size}", {}) if "MIG" not in name else {}
    return next((part for part, gib in slices.items() if need_bytes <= gib * GIB), None)
