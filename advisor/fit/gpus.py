"""GPUs and the memory that torch reports of them.

A GPU of 80 GB does not offer 80 GB: firmware and error correction keep some. Each figure is what
torch (`total_memory`, or the capacity in its out-of-memory error) or the CUDA driver reported on
that GPU, rounded down; SOURCES says where. Drivers differ by a fraction of a percent.
"""

from __future__ import annotations

import difflib
from typing import Final

GIB: Final = 1 << 30
MEMORY_GIB: Final = {
    "T4": 14.56,
    "A10": 21.99,
    "L4": 22.03,
    "RTX-3090": 23.68,
    "V100-32GB": 31.74,
    "A100-40GB": 39.39,
    "L40": 44.40,
    "A100-80GB": 79.25,
    "H100-80GB": 79.11,
    "H100-NVL": 93.00,
    "B200": 178.35,
}
SOURCES: Final = {
    "T4": "github.com/AlphaGPU/leetgpu-challenges/issues/52",
    "A10": "github.com/zai-org/CogVLM/issues/236",
    "L4": "device line of the public report Horizon Stress Testing & Autograd Scaling, session 1",
    "RTX-3090": "github.com/vllm-project/vllm/issues/16343",
    "V100-32GB": "github.com/liucongg/ChatGLM-Finetuning/issues/73",
    "A100-40GB": "github.com/bottlerocket-os/bottlerocket/pull/3873",
    "L40": "github.com/NVlabs/Eagle/issues/68",
    "A100-80GB": "github.com/levihsu/OOTDiffusion/issues/235",
    "H100-80GB": "github.com/vllm-project/vllm/issues/27508",
    "H100-NVL": "github.com/ali-vilab/VACE/issues/56",
    "B200": "github.com/pytorch/ao/pull/4002",
}
ALSO: Final = {
    "TESLA-T4": "T4",
    "V100": "V100-32GB",
    "A100": "A100-80GB",
    "H100": "H100-80GB",
    "3090": "RTX-3090",
}
"""Short names, of the larger kind where there are two; the answer names the kind."""


def gpu_named(text: str) -> tuple[str, int] | None:
    """The name in the table and the memory in bytes; `None` for one that it does not have."""
    key = text.strip().upper().replace(" ", "-").replace("_", "-")
    key = ALSO.get(key, key)
    known = next((name for name in MEMORY_GIB if name.upper() == key), None)
    return None if known is None else (known, int(MEMORY_GIB[known] * GIB))


def nearest(text: str) -> list[str]:
    """Names of the table that look like it, the best first."""
    names = {name.upper(): name for name in MEMORY_GIB}
    near = difflib.get_close_matches(text.strip().upper(), names, n=3, cutoff=0.4)
    return [names[name] for name in near]
