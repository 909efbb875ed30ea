"""GPUs and the memory that torch reports of them.

A GPU of 80 GB does not offer 80 GB: firmware and error correction keep some. Each figure is what
torch (`total_memory`, or the capacity in its out-of-memory error) or the driver printed on one such
GPU, rounded down, with the place where it stands. Drivers differ by a percent: newer ones keep
more, and Windows keeps less. Where error correction can be switched, three GiB of 48 depend on it.
"""

from __future__ import annotations

import difflib
import re
from typing import Final, NamedTuple

GIB: Final = 1 << 30


class Card(NamedTuple):
    """One kind of GPU.

    Attributes:
        gib: of its memory.
        source: where that was printed.
        device_names: as torch.cuda.get_device_name() prints it.
    """

    gib: float
    source: str
    device_names: tuple[str, ...]


def _issue(path: str) -> str:
    return f"github.com/{path}"


def _line(mib: int) -> str:
    """Names the source: a line that torch prints of a device, seen in public without an address."""
    return f"torch's line of the device in public sources: total_memory={mib}MB"


CARDS: Final[dict[str, Card]] = {
    "T4": Card(14.56, _issue("AlphaGPU/leetgpu-challenges/issues/52"), ("Tesla T4",)),
    "P100-16GB": Card(
        15.89,
        _issue("leela-zero/leela-zero/issues/1554"),  # 17,071,734,784 bytes
        ("Tesla P100-PCIE-16GB", "Tesla P100-SXM2-16GB"),
    ),
    "V100-16GB": Card(
        15.78,
        _issue("kchengiva/Shift-GCN/issues/34"),
        ("Tesla V100-SXM2-16GB", "Tesla V100-PCIE-16GB"),
    ),
    "V100-32GB": Card(
        31.74,
        _issue("liucongg/ChatGLM-Finetuning/issues/73"),
        ("Tesla V100-SXM2-32GB", "Tesla V100-PCIE-32GB"),
    ),
    "RTX-2080-Ti": Card(
        10.76,
        _issue("JDAI-CV/image-captioning/issues/11"),
        ("NVIDIA GeForce RTX 2080 Ti", "GeForce RTX 2080 Ti"),
    ),
    "RTX-3060-12GB": Card(
        11.75, _issue("Kunhao-Liu/StyleGaussian/issues/12"), ("NVIDIA GeForce RTX 3060",)
    ),
    "RTX-3080-10GB": Card(9.78, _issue("zai-org/CogVideo/issues/34"), ("NVIDIA GeForce RTX 3080",)),
    "RTX-3090": Card(23.68, _issue("vllm-project/vllm/issues/16343"), ("NVIDIA GeForce RTX 3090",)),
    "RTX-4070": Card(
        # 12,282 MiB by the driver, as a 4070 Ti has of which torch says 11.70 GiB
        11.70,
        f"{_issue('meta-llama/llama/issues/466')}, {_issue('Kwai-Kolors/Kolors/issues/11')}",
        ("NVIDIA GeForce RTX 4070",),
    ),
    "RTX-4070-Ti": Card(
        11.70, _issue("Kwai-Kolors/Kolors/issues/11"), ("NVIDIA GeForce RTX 4070 Ti",)
    ),
    "RTX-4080": Card(15.67, _line(16049), ("NVIDIA GeForce RTX 4080",)),
    "RTX-4090": Card(
        23.64, _issue("3DTopia/Phidias-Diffusion/issues/8"), ("NVIDIA GeForce RTX 4090",)
    ),
    "RTX-5090": Card(
        31.36, _issue("TrajectoryCrafter/TrajectoryCrafter/issues/20"), ("NVIDIA GeForce RTX 5090",)
    ),
    "A10": Card(21.99, _issue("zai-org/CogVLM/issues/236"), ("NVIDIA A10",)),
    "A10G": Card(22.05, _line(22587), ("NVIDIA A10G",)),
    "A30": Card(23.50, _issue("LHRLAB/ChatKBQA/issues/2"), ("NVIDIA A30",)),
    "A40": Card(44.35, _line(45416), ("NVIDIA A40",)),
    "A6000": Card(47.53, _issue("black-forest-labs/flux2/issues/23"), ("NVIDIA RTX A6000",)),
    "RTX-6000-Ada": Card(
        # 50,865,307,648 bytes without error correction; 44.43 GiB with it, by DINGYANB/MTVCrafter
        47.37,
        _issue("unslothai/unsloth-zoo/pull/1053"),
        ("NVIDIA RTX 6000 Ada Generation",),
    ),
    "L4": Card(
        22.03,
        "device line of the public report Horizon Stress Testing & Autograd Scaling, session 1",
        ("NVIDIA L4",),
    ),
    "L40": Card(44.40, _issue("NVlabs/Eagle/issues/68"), ("NVIDIA L40",)),
    "L40S": Card(44.42, _issue("stepfun-ai/Step-Video-T2V/issues/8"), ("NVIDIA L40S",)),
    "A100-40GB": Card(
        39.39,
        _issue("bottlerocket-os/bottlerocket/pull/3873"),
        ("NVIDIA A100-SXM4-40GB", "NVIDIA A100-PCIE-40GB", "A100-SXM4-40GB"),
    ),
    "A100-80GB": Card(
        79.25,
        _issue("levihsu/OOTDiffusion/issues/235"),
        ("NVIDIA A100-SXM4-80GB", "NVIDIA A100 80GB PCIe"),
    ),
    "H20": Card(95.00, _issue("modelscope/DiffSynth-Studio/issues/1238"), ("NVIDIA H20",)),
    "H100-80GB": Card(
        79.11,
        _issue("vllm-project/vllm/issues/27508"),
        ("NVIDIA H100 80GB HBM3", "NVIDIA H100 PCIe"),
    ),
    "H100-NVL": Card(93.00, _issue("ali-vilab/VACE/issues/56"), ("NVIDIA H100 NVL",)),
    "H200": Card(139.80, _line(143156), ("NVIDIA H200",)),
    "B200": Card(178.35, _issue("pytorch/ao/pull/4002"), ("NVIDIA B200",)),
    "MI250X": Card(63.98, _line(65520), ("AMD Instinct MI250X",)),  # of each of its two devices
    "MI300X": Card(191.98, _issue("ROCm/ROCm/issues/4203"), ("AMD Instinct MI300X",)),
}
"""Cards by their short names."""
MEMORY_GIB: Final = {name: card.gib for name, card in CARDS.items()}
CONTEXTS_MIB: Final = {
    "Volta": (320, _issue("pytorch/pytorch/issues/28394")),  # a Titan V, PyCUDA, without torch
    "Ampere": (256, _issue("invoke-ai/InvokeAI/issues/9413")),  # RTX 3090, torch 2.7, CUDA 12.8
    "Ada": (426, _issue("unslothai/unsloth-zoo/pull/1053")),  # RTX 6000 Ada, torch 2.10, CUDA 13.0
}
"""MiB that CUDA's context was seen to take before any work, by architecture, and where. Others: not
known, but for a Hopper's training (`forecast.HOPPER_BYTES`). Libraries and what they load come to
it."""
EAGER_CONTEXTS_MIB: Final = {
    "Volta": (1006, _issue("pytorch/pytorch/issues/28394")),  # Titan V, torch 1.3
    "Turing": (877, _issue("pytorch/pytorch/issues/49877")),  # RTX 2080 Ti, torch 1.6, CUDA 10.1
    "Ampere": (1486, _issue("pytorch/pytorch/issues/49877")),  # RTX 3090, torch 1.7, CUDA 11.0
}
"""MiB of the context where CUDA loads all kernels of torch at its start, less the segment that held
the only tensor. cuBLAS and cuDNN come to it."""
_NO_HELP = frozenset({"NVIDIA", "GEFORCE", "TESLA", "RTX", "AMD", "INSTINCT"})
"""Words of names that tell no card from another."""
_SHARED = frozenset({"6000", "ADA", "GENERATION"})
"""Words that several cards beside those of the table bear: an RTX 6000 may be a Quadro of 24 GB, or
the PRO of 96 GB."""

_AMOUNT = re.compile(r"[\d.]+[KMGT]I?B?")


class AmbiguousGpuError(Exception):
    """A name of several GPUs.

    Attributes:
        names: of the table.
    """

    def __init__(self, names: list[str]) -> None:
        super().__init__(", ".join(names))
        self.names = names


def gpu_named(text: str) -> tuple[str, int] | None:
    """The name in the table and the memory in bytes; `None` for one that it does not have.

    Args:
        text: a name of the table, what torch.cuda.get_device_name() prints, or a part of either
            that is whole words: `4090`, `A100-SXM4-40GB`.

    Raises:
        AmbiguousGpuError: several have that name.
    """
    asked = _words(text)
    if all(_AMOUNT.fullmatch(word) for word in asked):
        return None
    named = {name: [_words(name), *map(_words, card.device_names)] for name, card in CARDS.items()}
    found = [name for name, known in named.items() if asked in known]
    if not found and (len(asked) > 1 or asked.isdisjoint(_SHARED)):
        found = [name for name, known in named.items() if any(asked < words for words in known)]
    if len(found) > 1:
        raise AmbiguousGpuError(found)
    return (found[0], int(CARDS[found[0]].gib * GIB)) if found else None


def _words(text: str) -> frozenset[str]:
    words = frozenset(part for part in re.split(r"[\s_-]+", text.strip().upper()) if part)
    return words - _NO_HELP or words


def nearest(text: str) -> list[str]:
    """Names of the table that look like it, the best first."""
    names = {name.upper(): name for name in MEMORY_GIB}
    near = difflib.get_close_matches(text.strip().upper(), names, n=3, cutoff=0.4)
    return [names[name] for name in near]
