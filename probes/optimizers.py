"""What an optimizer of torch says of itself."""

from __future__ import annotations

from typing import Any

from ..records import OptimizerInfo, SourceLine


def optimizer_info(
    optimizer: Any, ordinal: int, *, place: SourceLine | None = None, trains: bool = True
) -> OptimizerInfo:
    """Its record; torch is not imported for it.

    Args:
        ordinal: among the optimizers, in order of creation.
        place: where the script makes it.
    """
    groups = optimizer.param_groups
    # What the user wrote, not what a schedule has made of it by now.
    rate = optimizer.defaults.get("lr", groups[0].get("lr") if groups else None)
    return OptimizerInfo(
        ordinal=ordinal,
        place=place,
        name=type(optimizer).__name__,
        learning_rate=None if rate is None else float(rate),
        num_parameters=sum(one.numel() for group in groups for one in group["params"]),
        trains=trains,
    )
