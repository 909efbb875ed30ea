"""How fast GPUs of the table move and compute, by their exact names.

Bandwidth is the peak of the data sheet, in 10^9 bytes per second. Where no source that is named
here gives a number it is missing: `num_sms` of A10, L4 (58 and 60 are both said), H100 NVL,
H200, B200.
Dense peaks per type are in `peaks.py`.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from ....advisor.measured.peaks import (
    A10_SHEET,
    A100_SHEET,
    ADA_PAPER,
    AMPERE_PAPER,
    B200_SHEET,
    H100_SHEET,
    H200_SHEET,
    T4_SHEET,
    V100_SHEET,
    peaks_of,
)

L4_SHEET = "NVIDIA L4 Tensor Core GPU data sheet"
TURING_PAPER = "NVIDIA Turing GPU Architecture white paper, appendix on the Tesla T4"
VOLTA_PAPER = "NVIDIA Tesla V100 GPU Architecture white paper"
A100_PAPER = "NVIDIA A100 Tensor Core GPU Architecture white paper"
HOPPER_PAPER = "NVIDIA H100 Tensor Core GPU Architecture white paper"


class GpuSpecs(NamedTuple):
    """A GPU as its maker describes it.

    Attributes:
        name: that torch gives the device.
        gb_per_s: peak bandwidth of its memory, 10^9 bytes per second.
        num_sms: streaming multiprocessors; `None`: no named source.
        source: of the bandwidth.
        sm_source: of their number; empty where it is unknown.
    """

    name: str
    gb_per_s: float
    num_sms: int | None
    source: str
    sm_source: str = ""

    @property
    def tflops_per_s(self) -> dict[str, float]:
        """Dense peaks by type; see `peaks.py`."""
        peaks = peaks_of(self.name)
        return {} if peaks is None else peaks.tflops_per_s


SPECS: Final = {
    "T4": GpuSpecs("Tesla T4", 320, 40, T4_SHEET, TURING_PAPER),
    "L4": GpuSpecs("NVIDIA L4", 300, None, L4_SHEET),
    "A10": GpuSpecs("NVIDIA A10", 600, None, A10_SHEET),
    "RTX-3090": GpuSpecs("NVIDIA GeForce RTX 3090", 936, 82, AMPERE_PAPER, AMPERE_PAPER),
    "RTX-4090": GpuSpecs("NVIDIA GeForce RTX 4090", 1008, 128, ADA_PAPER, ADA_PAPER),
    "A6000": GpuSpecs("NVIDIA RTX A6000", 768, 84, AMPERE_PAPER, AMPERE_PAPER),
    "V100-16GB": GpuSpecs("Tesla V100-SXM2-16GB", 900, 80, V100_SHEET, VOLTA_PAPER),
    "V100-32GB": GpuSpecs("Tesla V100-SXM2-32GB", 900, 80, V100_SHEET, VOLTA_PAPER),
    "A100-40GB": GpuSpecs("NVIDIA A100-SXM4-40GB", 1555, 108, A100_PAPER, A100_PAPER),
    "L40": GpuSpecs("NVIDIA L40", 864, 142, ADA_PAPER, ADA_PAPER),
    "A100-80GB": GpuSpecs("NVIDIA A100-SXM4-80GB", 2039, 108, A100_SHEET, A100_PAPER),
    "H100-80GB": GpuSpecs("NVIDIA H100 80GB HBM3", 3350, 132, H100_SHEET, HOPPER_PAPER),
    "H100-NVL": GpuSpecs("NVIDIA H100 NVL", 3900, None, H100_SHEET),
    "H200": GpuSpecs("NVIDIA H200", 4800, None, H200_SHEET),
    "B200": GpuSpecs("NVIDIA B200", 8000, None, B200_SHEET),
}
"""Data of GPUs, for some of the names in `gpus.MEMORY_GIB`; of several boards the SXM one."""


def specs_of(name: str) -> GpuSpecs | None:
    """Finds a GPU's data by its name in the table, or by the exact name that torch gives it."""
    return SPECS.get(name) or next((gpu for gpu in SPECS.values() if gpu.name == name), None)
