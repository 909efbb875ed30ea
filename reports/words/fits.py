"""What should fit on a GPU, in words."""

from __future__ import annotations

from ...records import Estimate, FittedGpu
from ...units import format_bytes

TITLE = "Largest batch that should fit"
ENDS = (
    "Up to the smaller size of a range, what torch's allocator would ask for should fit beside "
    "CUDA itself. Beyond the larger one the tensors alone should not."
)
COUNTED = "Counted on one batch of the script, made longer: longer samples take more."
COMPILED = (
    "The script compiles its model. These steps run it as it is written, so compiled code may take "
    "less memory than is said here, and its caches and CUDA graphs are not counted."
)


def fitting_sizes(gpu: FittedGpu, num_samples: int | None, smallest: int) -> str:
    """The range of the largest batch.

    Args:
        num_samples: of the epoch; no batch is larger.
        smallest: batch that was looked at.
    """
    if not gpu.high:
        return f"below {smallest}" if smallest > 1 else "not even 1"
    if num_samples is not None and (gpu.low or 0) >= num_samples:
        return f"all {num_samples}"
    if not gpu.is_bounded:
        return f"{gpu.low or gpu.high} or more"
    high = gpu.high if num_samples is None else min(gpu.high, num_samples)
    if not gpu.low:
        return f"at most {high}"
    return str(high) if gpu.low == high else f"{gpu.low} to {high}"


def headline(answer: Estimate) -> str:
    """What all of it is."""
    return f"What should fit: {answer.label}"


def range_texts(answer: Estimate) -> list[str]:
    """What a range of sizes means, and what it takes for granted."""
    assumed = "; ".join(answer.assumptions)
    taken = [f"Assumed, and checked on no GPU: {assumed}."] if assumed else []
    return [ENDS, *taken, COUNTED]


def tensors_text(answer: Estimate, size: int) -> str:
    """What the tensors of a real step of this size should take, with its spread; or empty."""
    if answer.tensors is None:
        return ""
    low, high = answer.tensors
    middle, half = (low + high) / 2, (high - low) / (high + low)
    return (
        f"The tensors of a real step of batch {size} should take {format_bytes(middle)} "
        f"±{100 * half:.1f}% at once (estimate)."
    )
