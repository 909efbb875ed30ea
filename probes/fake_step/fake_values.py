"""What a script reads out of a fake tensor, which has no values.

Logging and stopping rules read a loss, a norm, a count of right answers. They get a number that
keeps them going. A whole number that may decide a shape gets none: the step is refused.
"""

from __future__ import annotations

from math import isinf
from typing import Any

import torch
from torch.utils.weak import WeakIdKeyDictionary

COUNTS = {"sum", "argmax", "argmin", "count_nonzero", "add", "add_", "sub", "sub_"}
"""Operations whose whole numbers are read to be shown."""
UNWANTED = {"isnan", "isinf", "any", "ne"}
"""Questions that a healthy step answers with no."""
SAME_NUMBER = {"_to_copy", "clone", "detach", "lift_fresh", "alias", "view", "expand", "squeeze"}
"""Operations that return the number that they got."""


class FakeValues:
    """Remembers where single numbers come from, to answer for them."""

    def __init__(self) -> None:
        self._sources: WeakIdKeyDictionary = WeakIdKeyDictionary()

    def note(self, out: Any, name: str, args: Any) -> None:
        """The operation `name` returned `out`."""
        if isinstance(out, torch.Tensor) and out.numel() == 1:
            if name in SAME_NUMBER and args[0] in self._sources:
                self._sources[out] = self._sources[args[0]]
                return
            filled = args[1] if name == "full" and len(args) > 1 else None
            against_infinity = name == "eq" and isinstance(args[1], float) and isinf(args[1])
            self._sources[out] = ("isinf" if against_infinity else name, filled)

    def read(self, tensor: torch.Tensor) -> float:
        """The number that stands for the tensor's.

        Raises:
            NotImplementedError: a whole number that may decide what the step does.
        """
        known = tensor in self._sources
        name, filled = self._sources[tensor] if known else ("", None)
        if filled is not None:
            return filled  # type: ignore[no-any-return]
        if tensor.dtype is torch.bool:
            return name not in UNWANTED
        if tensor.is_floating_point():
            return 1.0
        if name in COUNTS:
            return 1
        msg = f"the step reads a whole number that {name or 'an operation'} computed"
        raise NotImplementedError(msg)
