"""GPUs on which the smallest batch does not fit, what fills them, what would fit. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from ....advisor.gpu_memory.caching_allocator import LEAST_CONTEXT_BYTES
from ....records import PeakRole
from ..records import Estimate, FittingChange, Forecast, TooSmall


def too_small(answer: Estimate, training: Forecast | None = None) -> tuple[TooSmall, ...]:
    """Groups the GPUs that are too small for the script as written, the sure ones first.

    Args:
        training: what fits as written where nothing is evaluated: a step is not to blame for an
            evaluation that is too large.
    """
    written = training or answer.forecasts[0]
    smallest = written.trials[0]
    fixed = _fixed_parts(written)
    places_of: dict[bool, list[int]] = {True: [], False: []}
    for at, gpu in enumerate(written.gpus):
        if not gpu.high:
            capacity = gpu.memory_bytes - LEAST_CONTEXT_BYTES
            for_sure = smallest.batch_size == 1 or sum(fixed.values()) > capacity
            places_of[for_sure].append(at)
    groups = []
    for for_sure, places in places_of.items():
        if not places:
            continue
        by_itself = for_sure and smallest.batch_size > 1
        parts = fixed if by_itself else dict(smallest.at_peak)
        groups.append(
            TooSmall(
                gpus=tuple(written.gpus[at].name for at in places),
                for_sure=for_sure,
                batch_size=smallest.batch_size,
                held_bytes=sum(parts.values()) or smallest.peak_bytes,
                parts=dict(sorted(parts.items(), key=lambda part: -part[1])),
                fixes=tuple(_fixes(answer, places)),
            )
        )
    return tuple(groups)


def fits_nowhere(written: Forecast) -> bool:
    """Whether what does not depend on the batch is too much for each of the GPUs."""
    held_bytes = sum(_fixed_parts(written).values())
    return all(held_bytes > gpu.memory_bytes - LEAST_CONTEXT_BYTES for gpu in written.gpus)


def _fixed_parts(written: Forecast) -> dict[PeakRole, int]:
    """Bytes that live at once in the optimizer's step whatever the batch, by their use."""
    first = written.trials[0]
    kept = min(trial.at_peak.get("kept from before", 0) for trial in written.trials)
    parts: dict[PeakRole, int] = {
        "parameters": first.parameter_bytes,
        "gradients": first.gradient_bytes,
        "optimizer's state": first.optimizer_bytes,
        "kept from before": kept,
    }
    return {role: size for role, size in parts.items() if size}


def _fixes(answer: Estimate, places: list[int]) -> list[FittingChange]:
    written = answer.forecasts[0]
    fitting: dict[tuple[str, int], list[str]] = defaultdict(list)
    for at in places:
        gpu = written.gpus[at]
        for change, size in _changes(answer, at, gpu.memory_bytes - LEAST_CONTEXT_BYTES):
            fitting[change, size].append(gpu.name)
    fixes = [
        FittingChange(change=change, batch_size=size, gpus=tuple(names))
        for (change, size), names in fitting.items()
    ]
    return sorted(fixes, key=lambda fix: -len(fix.gpus))


def _changes(answer: Estimate, at: int, capacity: int) -> Iterator[tuple[str, int]]:
    """Those whose tensors fit a GPU, each with the batch that was looked at."""
    seen = set()
    for line in answer.what_ifs:
        if line.peak_bytes is not None and line.peak_bytes <= capacity:
            seen.add(line.variant.name)
            yield line.change, line.batch_size
    for each in (*answer.forecasts[1:], *answer.sharded):
        if each.gpus[at].high and each.variant.name not in seen:
            yield each.variant.name, each.trials[0].batch_size
