"""Sizes that still fit when an evaluation runs between two epochs. Pure."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from ....advisor.gpu_memory.caching_allocator import LEAST_CONTEXT_BYTES
from ..records import EvaluationPeak, FittedGpu, Forecast
from .forecast import EAGER_BYTES, most_beside


def beside_evaluation(
    evaluation: EvaluationPeak, forecasts: Sequence[Forecast], *, eager: bool = False
) -> tuple[EvaluationPeak, list[Forecast]]:
    """Where the evaluation alone does not fit on a GPU, no training size does.

    Its batch is the script's own, so below that its peak says nothing of the training's size. Where
    it may fit or not, sizes have no lower end.

    Args:
        forecasts: the script as it is written first, then its variants.
        eager: CUDA loads all kernels at its start; see `forecast`.

    Returns:
        The evaluation with the GPUs that it is too large for, and what fits on each GPU.
    """
    more = EAGER_BYTES if eager else 0

    def exceeds(gpu: FittedGpu, beside: int) -> bool:
        return evaluation.peak_bytes > gpu.memory_bytes - beside - more

    def fitted(gpu: FittedGpu, *, bf16: bool) -> FittedGpu:
        # Under bf16, which was not looked at, it may take less.
        if exceeds(gpu, LEAST_CONTEXT_BYTES) and not bf16:
            return msgspec.structs.replace(gpu, low=0, high=0)
        if exceeds(gpu, most_beside(gpu.name)):
            return msgspec.structs.replace(gpu, low=0)
        return gpu

    too_large = [gpu.name for gpu in forecasts[0].gpus if exceeds(gpu, LEAST_CONTEXT_BYTES)]
    left = [
        msgspec.structs.replace(
            each, gpus=tuple(fitted(gpu, bf16=each.variant.bf16) for gpu in each.gpus)
        )
        for each in forecasts
    ]
    return msgspec.structs.replace(evaluation, too_large=tuple(too_large)), left
