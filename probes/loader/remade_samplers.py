"""Batch samplers of the script's own that cut their batches when they are made, made once more.

Their `batch_size`, or their budget of tokens, has no effect afterwards. Their class is called again
with the arguments that the script gave, and another size: sorting, buckets and shards stay theirs.
"""

from __future__ import annotations

import contextlib
import inspect
import re
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any
from weakref import WeakKeyDictionary

from torch.utils.data import Sampler

_PARAMETER = "batch_size"
BUDGET_NAME = re.compile(r"token|frame|duration|second|budget|batch_bins|capacity|max_len")
"""Names of settings that bound a batch by the lengths of its samples."""
_LOOKED_AT = 64
"""Batches from which it is told whether a batch sampler follows a size."""

_made_with: WeakKeyDictionary[Any, inspect.BoundArguments] = WeakKeyDictionary()
"""The arguments of batch samplers; those of other samplers are not kept alive."""


def remember(sampler: Sampler[Any], args: tuple[Any, ...], named: dict[str, Any]) -> None:
    """A sampler is about to be made with these arguments; kept where one may be a size or a budget.

    A copy is made without arguments, and is not remembered.
    """
    # No signature, a call that will fail, or a hash of what is not there yet.
    with contextlib.suppress(TypeError, ValueError, AttributeError):
        bound = inspect.signature(type(sampler).__init__).bind(sampler, *args, **named)
        if _PARAMETER in bound.arguments or any(map(_may_be_budget, bound.arguments.items())):
            # Without the sampler itself, which would never be let go.
            del bound.arguments[next(iter(bound.signature.parameters))]
            _made_with[sampler] = bound


def arguments_of(sampler: Any) -> dict[str, Any]:
    """Arguments that a batch sampler was made with; empty where its making was not seen."""
    bound = _bound(sampler)
    return {} if bound is None else dict(bound.arguments)


def remade(sampler: Any, size: int, parameter: str = _PARAMETER) -> Any | None:
    """A batch sampler of the same class, arguments and epoch, with batches of another size.

    Returns `None` where its making was not seen or fails a second time.

    Args:
        size: samples of a batch, or whatever the parameter counts.
    """
    bound = _bound(sampler)
    if bound is None or parameter not in bound.arguments:
        return None
    parameters = list(bound.signature.parameters.values())[1:]
    call = inspect.BoundArguments(inspect.Signature(parameters), bound.arguments.copy())
    given = call.arguments[parameter]
    call.arguments[parameter] = float(size) if isinstance(given, float) else size
    try:
        fresh = type(sampler)(*call.args, **call.kwargs)
        epoch = getattr(sampler, "epoch", None)
        if epoch is not None and hasattr(fresh, "set_epoch"):
            fresh.set_epoch(epoch)
    except Exception:  # noqa: BLE001  the script's own code; else batches are flattened
        return None
    return fresh


def _bound(sampler: Any) -> inspect.BoundArguments | None:
    with contextlib.suppress(TypeError, AttributeError):  # it has no hash, or takes no reference
        return _made_with.get(sampler)
    return None


def _may_be_budget(argument: tuple[str, Any]) -> bool:
    name, value = argument
    return BUDGET_NAME.search(name) is not None and isinstance(value, (int, float))


def follows(batches: Iterable[Any], size: int) -> bool:
    """Whether most samples come in batches of `size`: not those of a budget or of another size.

    Short ones are the ends of buckets. Where a budget of tokens bounds a batch too, the few that
    are as large as asked would be the short sequences alone.
    """
    num_samples = num_fitting = 0
    try:
        for num in _lengths(batches):
            num_samples += num
            num_fitting += num if num == size else 0
    except Exception:  # noqa: BLE001  the script's own code, with a size it never had
        return False
    return 2 * num_fitting > num_samples


def _lengths(batches: Iterable[Any]) -> Iterator[int]:
    return (len(batch) for batch in islice(iter(batches), _LOOKED_AT))
