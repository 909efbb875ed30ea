"""Sizes that still fit when an evaluation runs between two epochs. Pure."""

from __future__ import annotations

import msgspec

from ....advisor.gpu_memory.context import LEAST_CONTEXT_BYTES
from ..records import EvaluationPeak, Forecast


def beside_evaluation(
    evaluation: EvaluationPeak, written: Forecast
) -> tuple[EvaluationPeak, Forecast]:
    """Where the evaluation alone does not fit on a GPU, no training size does.

    Its batch is the script's own, so below that its peak says nothing of the training's size.

    Returns:
        The evaluation with the GPUs that it is too large for, and what fits on each GPU.
    """
    too_large = [
        gpu.name
        for gpu in written.gpus
        if evaluation.peak_bytes > gpu.memory_bytes - LEAST_CONTEXT_BYTES
    ]
    gpus = tuple(
        msgspec.structs.replace(gpu, low=0, high=0) if gpu.name in too_large else gpu
        for gpu in written.gpus
    )
    return (
        msgspec.structs.replace(evaluation, too_large=tuple(too_large)),
        msgspec.structs.replace(written, gpus=gpus),
    )
