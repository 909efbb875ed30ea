"""A time that a step cannot beat on a GPU, and what a real run makes of it. Pure.

The roofline model (Williams, Waterman, Patterson 2009), operation by operation: each takes at least
its multiplications over the dense peak of their type, and its bytes over the bandwidth. Beside it,
the kernels of a step take a while to launch, whatever they do.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from math import fsum
from statistics import median

from ....records import OpWork
from ..records import Calibration, StepBound
from .gpu_specs import GpuSpecs

LAUNCH_S = 4e-6
"""Seconds that launching a kernel takes, an assumption: it was measured on none of the GPUs."""
KNEE_SHARE = 0.9
"""Share of the best throughput from which on a larger batch gains little."""
AGREEMENT = 1.5
"""Factors of the sizes of a run that differ by more do not say how the time grows."""
OTHER_ORDER = "the operations of the sizes around it differ"
OUTSIDE = "no step of that size or of a larger one was looked at"

Works = Mapping[int, Sequence[OpWork]]


def work_at(works: Works, size: int) -> list[OpWork] | str:
    """The operations of a size between two that were looked at; why they are unknown.

    What each multiplies and moves is a line in the batch size.
    """
    if size in works:
        return list(works[size])
    sizes = sorted(works)
    at = bisect_left(sizes, size)
    if at in (0, len(sizes)):
        return OUTSIDE
    small, large = sizes[at - 1], sizes[at]
    few, many = works[small], works[large]
    if len(few) != len(many) or any(a.dtype != b.dtype for a, b in zip(few, many, strict=True)):
        return OTHER_ORDER
    share = (size - small) / (large - small)
    return [
        OpWork(
            less.dtype,
            int(less.flops + share * (more.flops - less.flops)),
            int(less.num_bytes + share * (more.num_bytes - less.num_bytes)),
        )
        for less, more in zip(few, many, strict=True)
    ]


def step_bound(
    gpu: str, specs: GpuSpecs | None, variant: str, size: int, work: Sequence[OpWork] | str
) -> StepBound:
    """The bound of a step on a GPU, or why it is unknown.

    Args:
        gpu, variant: how the bound names them.
        specs: of the GPU, if the table has it.
        size: batch size.
        work: of the step, or why it is unknown.
    """

    def unknown(reason: str) -> StepBound:
        return StepBound(gpu=gpu, variant=variant, batch_size=size, reason=reason)

    if isinstance(work, str):
        return unknown(work)
    if specs is None:
        return unknown("the table has no bandwidth and no dense peak for it")
    peaks = dict(specs.tflops_per_s)
    peaks.setdefault("tfloat32", peaks.get("float32", 0.0))
    missing = next((each.dtype for each in work if each.dtype and not peaks.get(each.dtype)), None)
    if missing is not None:
        return unknown(f"the table has no dense peak of {missing} for {specs.name}")
    roofline_s = fsum(
        max(
            each.flops / (1e12 * peaks[each.dtype]) if each.dtype else 0.0,
            each.num_bytes / (1e9 * specs.gb_per_s),
        )
        for each in work
    )
    launch_s = LAUNCH_S * len(work)
    return StepBound(
        gpu=gpu,
        variant=variant,
        batch_size=size,
        seconds=max(roofline_s, launch_s),
        roofline_s=roofline_s,
        launch_s=launch_s,
        num_kernels=len(work),
    )


def calibrated(
    specs: GpuSpecs,
    measured: Mapping[int, float],
    works: Works,
    largest: Sequence[tuple[str, GpuSpecs | None, int]],
) -> Calibration | str:
    """Measured step times over their bounds, and the sizes where the knees should lie.

    Args:
        specs: of the GPU of the run.
        measured: seconds of an optimizer step by batch size.
        works: of the steps as written.
        largest: GPUs by name, and the largest size that fits on each.

    Returns:
        Why there is no factor, where there is none.
    """
    factors = {}
    for size, seconds in sorted(measured.items()):
        bound = step_bound("", specs, "", size, work_at(works, size))
        if bound.seconds:
            factors[size] = seconds / bound.seconds
    if not factors:
        return "no size of its timed steps lies among those that were looked at"
    values = list(factors.values())
    answer = Calibration(device=specs.name, factors=factors, factor=median(values))
    reason = ""
    if len(factors) < 2:
        reason = "the run timed a single size; at least two are needed"
    elif max(values) > AGREEMENT * min(values):
        reason = (
            f"the factors of the sizes differ by more than x{AGREEMENT}, so the bound does not "
            "tell how the step time grows"
        )
    if reason:
        return Calibration(
            device=answer.device, factors=factors, factor=answer.factor, reason=reason
        )
    knees = {}
    for name, other, most in largest:
        knee = _knee(other, works, most, answer.factor)
        if knee is not None:
            knees[name] = knee
    return Calibration(device=specs.name, factors=factors, factor=answer.factor, knees=knees)


def _knee(specs: GpuSpecs | None, works: Works, most: int, factor: float) -> int | None:
    """The smallest of doubling sizes that has most of the best throughput."""
    if specs is None or not most:
        return None
    sizes = []
    size = min(works)
    while size < most:
        sizes.append(size)
        size *= 2
    throughputs = {}
    for each in (*sizes, most):
        bound = step_bound("", specs, "", each, work_at(works, each))
        if not bound.seconds:
            return None
        throughputs[each] = each / (factor * bound.seconds)
    best = max(throughputs.values())
    return min(size for size, per_s in throughputs.items() if per_s >= KNEE_SHARE * best)
