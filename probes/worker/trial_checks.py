"""Notes on a trial after its window: what disturbed it, and what its steps left behind."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
import torch

from ...records import Cause, TailCheck, Trial
from ..loader.norms import RunningStatistics


def with_causes(trial: Trial, causes: tuple[Cause, ...]) -> Trial:
    """The trial with what disturbed it; a doubt only where too few of its steps were clean."""
    if not trial.contended:
        return msgspec.structs.replace(trial, causes=causes)
    assert trial.quality is not None
    messages = "; ".join(cause.message for cause in causes)
    doubt = (
        f"{trial.quality.num_disturbed} of {trial.quality.num_steps} steps were held up"
        f"{': ' + messages if messages else ''}"
    )
    return msgspec.structs.replace(trial, causes=causes, doubts=(*trial.doubts, doubt))


def check_tail(
    trial: Trial,
    parameters: Iterable[torch.Tensor],
    norms: RunningStatistics | None = None,
    num_steps: int | None = None,
) -> TailCheck:
    """Whether the parameters are still numbers after a step of the tail's length.

    Args:
        norms: running statistics as they were before; what became of them is said too.
    """
    num_broken = sum(
        1
        for parameter in parameters
        if parameter.is_floating_point() and not bool(torch.isfinite(parameter).all())
    )
    moved = norms.moved_most() if norms is not None else None
    return TailCheck(
        num_samples=trial.batch_size,
        outcome=trial.outcome,
        detail=trial.detail,
        num_non_finite=num_broken,
        num_steps=num_steps,
        num_norms=None if norms is None else norms.num_layers,
        num_non_finite_norms=0 if norms is None else norms.num_non_finite(),
        running_var_before=None if moved is None else moved[0],
        running_var_after=None if moved is None else moved[1],
    )
