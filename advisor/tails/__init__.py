"""Uneven final batches: what an epoch ends in, by arithmetic, and what that does."""

from __future__ import annotations

from typing import Any

import msgspec

from ...errors import UsageError
from ...records import Pipeline, TailReport
from .engine import report_of


def tails(pipeline: Pipeline | None = None, /, **fields: Any) -> TailReport:
    """Describes the end of an epoch of a training: layout, findings with fixes, clean sizes.

    Args:
        pipeline: the description; `fields` change it.
        fields: those of `batchadvisor.Pipeline`, such as num_samples, batch_size, num_ranks,
            setup; `model` takes a `batchadvisor.ModelFacts`.

    Raises:
        UsageError: the description contradicts itself, or a name or value is wrong.

    >>> report = tails(num_samples=50_000, batch_size=128)
    >>> report.layout.last_samples, round(report.layout.weight, 2)
    (80, 1.6)
    """
    known = msgspec.structs.asdict(pipeline) if pipeline is not None else {}
    try:
        described = msgspec.convert({**known, **fields}, Pipeline, from_attributes=True)
    except msgspec.ValidationError as error:
        msg = f"The pipeline cannot be described so: {error}."
        raise UsageError(msg, "See help(batchadvisor.Pipeline).") from None
    unknown = sorted(set(fields) - set(Pipeline.__struct_fields__))
    if unknown:
        msg = f"A pipeline has no {', '.join(unknown)}."
        raise UsageError(msg, f"It has {', '.join(Pipeline.__struct_fields__)}.")
    return report_of(described)
