"""Results of operations on fake tensors, remembered by the shapes of their inputs.

A model repeats its blocks, and a step repeats the one before it: most operations of a step were
made before, on tensors of the same shapes. torch keeps such a memory as well. Its look-ups take
several times longer, and it leaves out operations that return lists or nothing, and all operations
of libraries.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cache
from typing import Any, NamedTuple

import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

MOST = 100_000
"""Results that are remembered: shapes that never come again are not to fill the memory."""
NAMESPACES = ("aten", "fsdp")
"""Namespaces whose operations do nothing beside what they return."""
SIMPLE = {int, float, bool, str, type(None)}
SIMPLE |= {torch.dtype, torch.device, torch.layout, torch.memory_format}
"""Kinds of arguments that are what their values say."""
OWN_TAGS = {
    torch.Tag.inplace_view,
    torch.Tag.data_dependent_output,
    torch.Tag.dynamic_output_shape,
}
"""Tags of operations that change the shape of their inputs, or whose output depends on values."""
CONSTANTS = ("lift", "lift_fresh", "lift_fresh_copy", "_local_scalar_dense")
"""Operations on tensors whose contents the mode knows."""
UNKNOWN: Any = object()


class _Fresh(NamedTuple):
    """A tensor with a storage of its own."""

    shape: torch.Size
    stride: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device


class _View(NamedTuple):
    """A tensor in the storage of the n-th that was given."""

    number: int
    offset: int
    shape: torch.Size
    stride: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device


_Part = _Fresh | _View | int | None
"""One returned tensor; a number stands for the input itself at that place."""


class KnownOutputs:
    """Runs operations of a mode, unless what they return is known.

    Args:
        fakes: of all tensors that are given.
    """

    def __init__(self, fakes: FakeTensorMode) -> None:
        self._fakes = fakes
        self._known: dict[tuple[Any, ...], tuple[type | None, tuple[_Part, ...]] | None] = {}
        self._inside: dict[torch.device, dict[str, Any]] = {}
        self._guard: Any = (
            torch._C._set_warn_deprecated_on_mutable_data_ptr
            if fakes._allow_unsafe_data_ptr_access
            else torch._C._set_throw_on_mutable_data_ptr
        )

    def run(self, func: Any, args: Any, kwargs: Any, make: Callable[..., Any] | None = None) -> Any:
        """Returns the result of the operation.

        Args:
            make: called with `args` and `kwargs` where that is not known; the operation itself if
                not given.
        """
        make = func if make is None else make
        if torch.is_inference_mode_enabled() or not _is_told_by_shapes(func):
            return make(*args, **kwargs)
        key: list[Any] = [func, torch.get_default_dtype()]
        given: list[FakeTensor] = []
        if not (self._describe(args, key, given) and self._describe_named(kwargs, key, given)):
            return make(*args, **kwargs)
        asked = tuple(key)
        known = self._known.get(asked, UNKNOWN)
        if known is UNKNOWN:
            out = make(*args, **kwargs)
            if len(self._known) < MOST:
                self._known[asked] = self._noted(out, asked, args, kwargs)
            return out
        if known is None:
            return make(*args, **kwargs)
        kind, parts = known
        made = [self._made(part, given) for part in parts]
        return made[0] if kind is None else kind(made)

    # inside ----------------------------------------------------------------------------------

    def _describe_named(self, kwargs: Any, key: list[Any], given: list[FakeTensor]) -> bool:
        if kwargs:
            key += kwargs
            return self._describe(kwargs.values(), key, given)
        return True

    def _describe(self, values: Iterable[Any], key: list[Any], given: list[FakeTensor]) -> bool:
        """Adds all that an output may depend on; False where that cannot be told."""
        for value in values:
            kind = type(value)
            if kind is FakeTensor:
                if value.constant is not None or value.fake_mode is not self._fakes:
                    return False
                if value.layout is not torch.strided:
                    return False
                key += (
                    value.dtype,
                    value.shape,
                    value.stride(),
                    value.storage_offset(),
                    value.untyped_storage().nbytes(),
                    value.fake_device,
                    value.requires_grad,
                )
                given.append(value)
            elif kind in SIMPLE:
                key += (kind, value)
            elif kind is list or kind is tuple:
                key += (kind, len(value))
                if not self._describe(value, key, given):
                    return False
            else:
                return False
        return True

    def _noted(
        self, out: Any, asked: tuple[Any, ...], args: Any, kwargs: Any
    ) -> tuple[type | None, tuple[_Part, ...]] | None:
        """What tells the output; `None` where only a run of the operation does."""
        key: list[Any] = list(asked[:2])
        given: list[FakeTensor] = []
        told = self._describe(args, key, given) and self._describe_named(kwargs, key, given)
        if not told or tuple(key) != asked:
            return None  # it changed what it was given
        kind = type(out) if type(out) in (list, tuple) else None
        parts = []
        held: dict[int, list[int]] = {}
        for number, each in enumerate(given):
            held.setdefault(each.untyped_storage()._cdata, []).append(number)
        own: set[int] = set()
        for each in out if kind else (out,):
            part = self._part(each, given, held, own)
            if part is UNKNOWN:
                return None
            parts.append(part)
        return kind, tuple(parts)

    def _part(
        self, out: Any, given: Sequence[FakeTensor], held: dict[int, list[int]], own: set[int]
    ) -> Any:
        """One output.

        Args:
            held: which of the given tensors are in a storage, by its address.
            own: storages of the outputs before it; this one's is added.
        """
        if out is None:
            return None
        if type(out) is not FakeTensor or out.layout is not torch.strided:
            return UNKNOWN
        storage = out.untyped_storage()._cdata
        holders = held.get(storage, [])
        if len(holders) > 1 or storage in own:
            return UNKNOWN  # one of several, and not by its shape
        if holders and given[holders[0]] is out:
            return holders[0]
        shape, stride, dtype, device = out.shape, out.stride(), out.dtype, out.fake_device
        part: _Fresh | _View
        if holders:
            part = _View(holders[0], int(out.storage_offset()), shape, stride, dtype, device)
        else:
            own.add(storage)
            part = _Fresh(shape, stride, dtype, device)
        twin = self._made(part, given)
        return part if twin is not None and _are_alike(out, twin) else UNKNOWN

    def _made(self, part: _Part, given: Sequence[FakeTensor]) -> FakeTensor | None:
        if part is None:
            return None
        if type(part) is int:
            return given[part]
        assert not isinstance(part, int)
        with torch._C._DisableTorchDispatch():
            if isinstance(part, _View):
                inner = torch.empty(0, dtype=part.dtype, device="meta")
                storage = given[part.number].untyped_storage()
                inner.set_(storage, part.offset, part.shape, part.stride)
            else:
                inner = torch.empty_strided(
                    part.shape, part.stride, dtype=part.dtype, device="meta"
                )
        known = self._inside.get(part.device)
        if known is None:  # what torch's constructor makes; it takes most of the time
            out = FakeTensor(self._fakes, inner, part.device)
            self._inside[part.device] = dict(vars(out))
            return out
        out = torch.Tensor._make_subclass(
            FakeTensor, inner, False, dispatch_device=True, device_for_backend_keys=part.device
        )
        self._guard(out)
        vars(out).update(known)
        return out


def tensors_of(arguments: Iterable[Any]) -> list[torch.Tensor]:
    """Those of an operation; they stand alone or in a list."""
    found: list[torch.Tensor] = []
    for argument in arguments:
        if isinstance(argument, torch.Tensor):
            found.append(argument)
        elif isinstance(argument, (list, tuple)):
            found += [each for each in argument if isinstance(each, torch.Tensor)]
    return found


@cache
def name_of(func: Any) -> str:
    """Name of an operation, without its overload and without torch's own namespace."""
    name: str = func.name()
    return name.removeprefix("aten::").split(".")[0]


@cache
def _is_told_by_shapes(func: Any) -> bool:
    """Whether the shapes of what it is given tell the shapes of what an operation returns."""
    return (
        func.namespace in NAMESPACES
        and OWN_TAGS.isdisjoint(func.tags)
        and name_of(func) not in CONSTANTS
    )


def _are_alike(out: FakeTensor, twin: FakeTensor) -> bool:
    """Whether nothing tells one from the other."""
    return (
        torch._C._dispatch_key_set(out) == torch._C._dispatch_key_set(twin)
        and out.untyped_storage().nbytes() == twin.untyped_storage().nbytes()
        and out.storage_offset() == twin.storage_offset()
        and (out.requires_grad, out.is_conj(), out.is_neg())
        == (twin.requires_grad, twin.is_conj(), twin.is_neg())
        and out.constant is None is out.real_tensor
    )
