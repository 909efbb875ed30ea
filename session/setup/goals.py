"""The goal of a run, made of what was asked for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from ...errors import UsageError
from ...records import Goal


def goal_from(given: Mapping[str, Any], base: Goal | None = None) -> Goal:
    """A goal with the values that were given; sizes that are named twice are one.

    Args:
        given: by the names of a goal's fields.
        base: where the others come from.

    Raises:
        UsageError: a value is none that a goal may have.
    """
    values = {**msgspec.structs.asdict(base or Goal()), **given}
    values["sizes"] = tuple(dict.fromkeys(values["sizes"]))
    try:
        goal = msgspec.convert(values, Goal)
    except msgspec.ValidationError as error:
        text = str(error).replace("`$.kind`", "goal").replace("`$.", "`")
        raise UsageError(f"{text}.", "See help(batchadvisor.run).") from None
    sizes = [
        size
        for size in (
            given.get("start"),
            given.get("max_batch"),
            given.get("multiple_of"),
            *given.get("sizes", ()),
        )
        if size is not None
    ]
    if min(sizes, default=1) < 1:
        raise UsageError("a batch size below 1 was asked for.", "Sizes are whole numbers from 1.")
    for name in ("margin", "tolerance", "precision"):
        share = given.get(name)
        if share is not None and not 0 <= share < 1:
            raise UsageError(f"{name}={share} is not a share.", "Give a number from 0 to below 1.")
    return goal
