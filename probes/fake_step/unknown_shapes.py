"""Operations whose results depend on values that fake tensors lack, where a bound of them is known.

Sequences of unknown lengths are taken to be as long as their tensor: they take no more than that.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor


def _packed(given: torch.Tensor, lengths: torch.Tensor, batch_first: bool) -> Any:
    """Output of `pack_padded_sequence`: steps of all sequences, how many take part in each."""
    samples, steps = given.shape[:2] if batch_first else (given.size(1), given.size(0))
    with torch.utils._python_dispatch._disable_current_modes():
        known = torch.full((samples,), steps) if isinstance(lengths, FakeTensor) else lengths
        taking_part = (known[:, None] > torch.arange(int(known.max()))).sum(0)
        rows = int(known.sum())
    return given.new_empty((rows, *given.shape[2:])), taking_part


def _unpacked(gradient: torch.Tensor, size: list[int], _steps: Any, _batch_first: bool) -> Any:
    return gradient.new_zeros(size)


def _aligned(
    scores: torch.Tensor,
    targets: torch.Tensor,
    _lengths: Any,
    target_lengths: Any,
    *_rest: Any,
    **_named: Any,
) -> Any:
    """Output of a CTC loss: it keeps the score of each place of each target at each step."""
    steps, samples = scores.shape[:2]
    longest = targets.size(-1)
    if isinstance(target_lengths, (list, tuple)):
        longest = max(target_lengths)
    elif not isinstance(target_lengths, FakeTensor):
        with torch.utils._python_dispatch._disable_current_modes():
            longest = int(target_lengths.max())
    elif targets.dim() == 1:
        longest = -(-longest // samples)  # one after the other, of unknown lengths: their mean
    return scores.new_empty(samples), scores.new_empty((samples, steps, 2 * longest + 1))


def _sparse(
    like: torch.Tensor, num: int, *, merged: bool, values: torch.Tensor | None = None
) -> Any:
    """Makes a sparse tensor with so many entries, of the shape of another.

    Args:
        values: of the type of the entries; without them it is the other's.
    """
    values, places = like._values() if values is None else values, like._indices()
    made: Any = torch.sparse_coo_tensor(
        places.new_empty((places.size(0), num)),
        values.new_empty((num, *values.shape[1:])),
        like.shape,
        check_invariants=False,
    )
    return made._coalesced_(merged)


def _merged(given: torch.Tensor) -> Any:
    """A row that was asked for twice is there once; at most all rows of the table are."""
    return _sparse(given, min(given._values().size(0), given.size(0)), merged=True)


def _copied(given: torch.Tensor, *_others: Any, dtype: torch.dtype | None = None, **_: Any) -> Any:
    values = given._values() if dtype is None else given._values().to(dtype)
    return _sparse(given, values.size(0), merged=given.is_coalesced(), values=values)


def _summed(given: torch.Tensor, other: torch.Tensor, **_named: Any) -> Any:
    """The rows of both, one after the other: they are merged when somebody needs that."""
    return _sparse(given, given._values().size(0) + other._values().size(0), merged=False)


def _added(given: torch.Tensor, other: torch.Tensor, **named: Any) -> Any:
    """Adds in place, as gradients of a table are accumulated."""
    return torch.ops.aten.copy_sparse_to_sparse_(given, _summed(given, other, **named))


def _taken(_dense: torch.Tensor, rows: torch.Tensor) -> Any:
    return _sparse(rows, rows._values().size(0), merged=rows.is_coalesced())


BOUNDED: dict[str, Callable[..., Any]] = {
    "_pack_padded_sequence": _packed,
    "_pack_padded_sequence_backward": _unpacked,
    "_ctc_loss": _aligned,
    "sparse_mask": _taken,
}
"""Functions that make the results of operations, by the operation's name."""
OF_SPARSE: dict[str, Callable[..., Any]] = {
    "_coalesce": _merged,
    **dict.fromkeys(("clone", "_to_copy", "neg", "mul", "div"), _copied),
}
"""Results of operations whose first argument is sparse, by name: torch's own forms lose the
entries."""
OF_TWO_SPARSE: dict[str, Callable[..., Any]] = {
    **dict.fromkeys(("add", "sub"), _summed),
    **dict.fromkeys(("add_", "sub_"), _added),
}
"""Results of operations whose first two arguments are sparse, by name."""


def bounded(name: str, args: Any) -> Callable[..., Any] | None:
    """The function that makes the result of such an operation; `None` for all others."""
    found = BOUNDED.get(name)
    if found is None and (name in OF_SPARSE or name in OF_TWO_SPARSE):
        sparse = [getattr(each, "layout", None) is torch.sparse_coo for each in args[:2]]
        if sparse[0]:
            return OF_TWO_SPARSE.get(name) if sparse[1:] == [True] else OF_SPARSE.get(name)
    return found


def is_never(name: str, args: Any) -> bool:
    """Whether an operation asks for a mistake: torch compares a flag of it with one that is set."""
    return (
        name == "equal"
        and all(isinstance(each, torch.Tensor) for each in args[:2])
        and all(each.dtype is torch.bool and each.numel() == 1 for each in args[:2])
    )
