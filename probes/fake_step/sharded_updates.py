"""Updates of lists of tensors that ranks share: made on this rank's parts at once.

Optimizers work on all parameters of a group in one operation. torch first finds out how each of
them may be divided, which for hundreds of parameters takes its square in time. Where each number of
the result depends on the numbers in its place alone, and all tensors are divided alike, the answer
is known: nothing is sent, and each rank works on its parts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import torch

from .known_outputs import name_of

PLACE_BY_PLACE = frozenset(
    {"abs", "add", "addcdiv", "addcmul", "clamp_max", "clamp_min", "copy", "div", "lerp"}
    | {"maximum", "minimum", "mul", "neg", "pow", "reciprocal", "sign", "sqrt", "sub", "zero"}
)
"""Operations on lists, without `_foreach_` before and `_` behind."""
NUMBERS = (int, float, bool, type(None))


def local_update(func: Any, args: Any, kwargs: Any, run: Callable[[Any, Any], Any]) -> Any:
    """Makes such an update on the local parts; `NotImplemented` for any other operation.

    Args:
        run: makes the operation on parts, of other arguments and keywords.
    """
    if not _is_place_by_place(func):
        return NotImplemented
    lists = [each for each in (*args, *kwargs.values()) if isinstance(each, (list, tuple))]
    others = [each for each in (*args, *kwargs.values()) if not isinstance(each, (list, tuple))]
    shared = [each for each in lists if not all(type(value) in NUMBERS for value in each)]
    if not (shared and all(map(_is_number, others)) and _are_alike(shared)):
        return NotImplemented
    out = run(tuple(map(_parts, args)), {name: _parts(each) for name, each in kwargs.items()})
    if out is None:
        return None
    return [_whole(part, like) for part, like in zip(out, shared[0], strict=True)]


@cache
def _is_place_by_place(func: Any) -> bool:
    name = name_of(func)
    return (
        name.startswith("_foreach_")
        and name.removeprefix("_foreach_").removesuffix("_") in PLACE_BY_PLACE
    )


def _is_number(value: Any) -> bool:
    """Also one in a tensor that every rank has whole."""
    places = getattr(value, "placements", None)
    if places is None:
        return type(value) in NUMBERS
    return value.dim() == 0 and all(place.is_replicate() for place in places)


def _are_alike(lists: Sequence[Sequence[Any]]) -> bool:
    """Whether all tensors are of one type and divided alike, and none is a sum still to be made."""
    from torch.distributed.tensor import DTensor

    first = lists[0][0]
    if type(first) is not DTensor or any(place.is_partial() for place in first.placements):
        return False
    return all(
        type(each) is DTensor
        and each.placements == first.placements
        and each.device_mesh is first.device_mesh
        and each.dtype is first.dtype
        and each.shape == beside.shape
        for tensors in lists
        for each, beside in zip(tensors, lists[0], strict=True)
    )


def _parts(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return [getattr(each, "_local_tensor", each) for each in value]
    return getattr(value, "_local_tensor", value)


def _whole(part: torch.Tensor, like: Any) -> Any:
    from torch.distributed.tensor import DTensor

    made: Any = DTensor
    return made(part, like._spec, requires_grad=False)
