"""Dense peaks of GPUs by the exact name that torch gives the device.

In 10^12 operations per second, a multiplication and an addition are two, without sparsity; data
sheets that show the number with sparsity were halved. Where a type is missing the maker gives no
number for it. `bfloat16` and `float16` are those with sums in float32, as torch computes.
"""

from __future__ import annotations

from typing import Final, NamedTuple

A100_SHEET = (
    "nvidia.com/content/dam/en-zz/Solutions/Data-Center/a100/pdf/"
    "nvidia-a100-datasheet-us-nvidia-1758950-r4-web.pdf"
)
H100_SHEET = "resources.nvidia.com/en-us-tensor-core/nvidia-tensor-core-gpu-datasheet"
H200_SHEET = "nvdam.widen.net/s/nb5zzzsjdf/hpc-datasheet-sc23-h200-datasheet-3002446"
B200_SHEET = "resources.nvidia.com/en-us-blackwell-architecture"
V100_SHEET = (
    "images.nvidia.com/content/technologies/volta/pdf/volta-v100-datasheet-update-us-1165301-r5.pdf"
)
T4_SHEET = (
    "nvidia.com/content/dam/en-zz/Solutions/Data-Center/tesla-t4/"
    "t4-tensor-core-datasheet-951643.pdf"
)
A10_SHEET = "nvidia.com/content/dam/en-zz/Solutions/Data-Center/a10/pdf/a10-datasheet.pdf"
AMPERE_PAPER = (
    "nvidia.com/content/PDF/nvidia-ampere-ga-102-gpu-architecture-whitepaper-v2.pdf, appendix A"
)
ADA_PAPER = (
    "images.nvidia.com/aem-dam/Solutions/Data-Center/l4/"
    "nvidia-ada-gpu-architecture-whitepaper-v2.1.pdf, appendix A"
)


class Peaks(NamedTuple):
    """Dense peaks of one GPU.

    Attributes:
        tflops_per_s: by type.
        source: where they stand.
    """

    tflops_per_s: dict[str, float]
    source: str


def _of(
    source: str,
    *,
    half: float | None,
    tf32: float | None,
    float32: float,
    float64: float | None = None,
    float8: float | None = None,
    bfloat16: bool = True,
) -> Peaks:
    peaks = {"float32": float32}
    more = {"float64": float64, "tfloat32": tf32, "float16": half}
    more["bfloat16"] = half if bfloat16 else None
    more |= dict.fromkeys(("float8_e4m3fn", "float8_e5m2"), float8)
    return Peaks(peaks | {name: peak for name, peak in more.items() if peak is not None}, source)


A100 = _of(A100_SHEET, half=312, tf32=156, float32=19.5, float64=9.7)
H100_SXM = _of(H100_SHEET, half=989.4, tf32=494.7, float32=66.9, float64=33.5, float8=1978.9)
V100_SXM = _of(V100_SHEET, half=125, tf32=None, float32=15.7, float64=7.8, bfloat16=False)
V100_PCIE = _of(V100_SHEET, half=112, tf32=None, float32=14, float64=7, bfloat16=False)
PEAKS: Final[dict[str, Peaks]] = {
    "NVIDIA B200": _of(B200_SHEET, half=2250, tf32=1100, float32=75, float8=4500),
    "NVIDIA H200": _of(H200_SHEET, half=989.4, tf32=494.7, float32=67, float64=34, float8=1979),
    "NVIDIA H100 80GB HBM3": H100_SXM,
    "NVIDIA H100 PCIe": _of(
        H100_SHEET, half=756, tf32=378, float32=51.2, float64=25.6, float8=1513
    ),
    "NVIDIA H100 NVL": _of(H100_SHEET, half=835, tf32=417.5, float32=60, float64=30, float8=1670),
    "NVIDIA A100-SXM4-40GB": A100,
    "NVIDIA A100-SXM4-80GB": A100,
    "NVIDIA A100-PCIE-40GB": A100,
    "NVIDIA A100 80GB PCIe": A100,
    "NVIDIA A10": _of(A10_SHEET, half=125, tf32=62.5, float32=31.2),
    "NVIDIA L4": _of(ADA_PAPER, half=121, tf32=60, float32=30.3, float8=242),
    "NVIDIA L40": _of(ADA_PAPER, half=181, tf32=90.5, float32=90.5, float8=362),
    "NVIDIA GeForce RTX 4090": _of(ADA_PAPER, half=165.2, tf32=82.6, float32=82.6, float8=330.3),
    "NVIDIA GeForce RTX 3090": _of(AMPERE_PAPER, half=71, tf32=35.6, float32=35.6),
    "NVIDIA RTX A6000": _of(AMPERE_PAPER, half=154.8, tf32=77.4, float32=38.7),
    "Tesla T4": _of(T4_SHEET, half=65, tf32=None, float32=8.1, bfloat16=False),
    "Tesla V100-SXM2-16GB": V100_SXM,
    "Tesla V100-SXM2-32GB": V100_SXM,
    "Tesla V100-PCIE-16GB": V100_PCIE,
    "Tesla V100-PCIE-32GB": V100_PCIE,
}


def peaks_of(device_name: str) -> Peaks | None:
    """The dense peaks of a GPU; `None` for one whose exact name the table does not have."""
    return PEAKS.get(device_name)
