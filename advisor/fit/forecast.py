"""Which sizes to look at on fake tensors, and what fits on a GPU that is not there. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from ...records import FakeTrial, FittedGpu, Forecast
from .step_law import StepLaw, fit_step_law

MIN_TRIALS = 3
"""Two sizes always lie on a line; the third says whether there is one."""
MAX_TRIALS = 8
MAX_RESIDUAL = 0.02
"""A law that misses one of the sizes seen by more says nothing of sizes far away."""
LEAST_CONTEXT_BYTES = 300 << 20
MOST_CONTEXT_BYTES = 650 << 20
"""What CUDA's context, its libraries and their workspaces take beside torch's allocator."""


def next_size(trials: Sequence[FakeTrial], own: int, num_samples: int | None) -> int | None:
    """The size to look at next; `None` when there are enough, or no larger one is there.

    Args:
        trials: so far, ascending.
        own: the script's size.
        num_samples: of its dataset, `None` if unknown; no batch is larger.
    """
    most = own if num_samples is None else max(own, num_samples)
    if not trials:
        # Two doublings must be left below what the dataset has.
        room = num_samples is None or own * 4 <= num_samples
        return own if room and own < 16 else max(1, own // (2 if room else 4))
    if len(trials) >= MAX_TRIALS:
        return None
    if len(trials) >= MIN_TRIALS and isinstance(law_of(trials), StepLaw):
        return None
    size = trials[-1].batch_size * 2
    return size if num_samples is None or size <= most else None


def law_of(trials: Sequence[FakeTrial]) -> StepLaw | str:
    """The peak memory as a law of the size, or why there is none."""
    if len(trials) < MIN_TRIALS:
        return "fewer than three sizes could be looked at"
    floor = max(trial.floor_bytes for trial in trials)
    law = fit_step_law({t.batch_size: t.peak_bytes for t in trials}, floor_bytes=floor)
    if isinstance(law, str):
        return law
    if law.residual is None:
        return "only two sizes took more memory than the optimizer's step"
    if law.residual > MAX_RESIDUAL:
        return f"the line through the sizes misses one of them by {law.residual:.0%}"
    return law


def forecast(
    precision: str, trials: Sequence[FakeTrial], gpus: Sequence[tuple[str, int]]
) -> Forecast:
    """What the trials say of these GPUs, by name and memory in bytes."""
    law = law_of(trials)
    if isinstance(law, str):
        return Forecast(precision=precision, trials=tuple(trials), unavailable={"law": law})
    return Forecast(
        precision=precision,
        trials=tuple(trials),
        floor_bytes=law.floor_bytes,
        fixed_bytes=law.fixed_bytes,
        sample_bytes=law.sample_bytes,
        residual=law.residual,
        gpus=tuple(_fitted(name, memory, law, trials[-1]) for name, memory in gpus),
    )


def _fitted(name: str, memory: int, law: StepLaw, last: FakeTrial) -> FittedGpu:
    """From all that the allocator would ask for to the bytes of the tensors alone."""
    pieces = max(1.0, last.reserved_bytes / last.peak_bytes)
    return FittedGpu(
        name=name,
        memory_bytes=memory,
        low=law.largest_batch((memory - MOST_CONTEXT_BYTES) / pieces),
        high=law.largest_batch(memory - LEAST_CONTEXT_BYTES),
    )
