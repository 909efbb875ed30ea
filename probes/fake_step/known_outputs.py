"""Results of operations on fake tensors, remembered by the shapes of their inputs.

A model repeats its blocks, and a step repeats the one before it: most operations of a step were
made before, on tensors of the same shapes. torch keeps such a memory as well. Its look-ups take
several times longer, and it leaves out operations that return lists or nothing, and all operations
of libraries.

What was not made before is asked of torch's meta kernels, where they are known to be right
(`MetaKernels`): a fake operation takes 0.5 to 20 ms, a meta kernel a tenth of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cache
from typing import Any, NamedTuple

import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

from .meta_kernels import MetaKernels, Types

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
OF_STORAGE = ("as_strided", "set_", "resize", "_resize")
"""How names of operations begin that go by where in its storage a tensor lies. All others do not,
and what they return lies there in relation to it."""
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
    """A tensor in the storage of the n-th that was given, `offset` numbers behind its first."""

    number: int
    offset: int
    shape: torch.Size
    stride: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device


_Part = _Fresh | _View | int | None
"""One returned tensor; a number stands for the input itself at that place."""

_Outputs = tuple[type | None, tuple[_Part, ...]]
"""The type of the list that is returned, if it is one, and what is in it."""


class KnownOutputs:
    """Runs operations of a mode, unless what they return is known.

    Args:
        fakes: of all tensors that are given.
    """

    def __init__(self, fakes: FakeTensorMode) -> None:
        self._fakes = fakes
        self._known: dict[tuple[Any, ...], _Outputs | None] = {}
        self._kernels = MetaKernels()
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
        if not is_told_by_shapes(func):
            return make(*args, **kwargs)
        given: list[FakeTensor] = []
        asked = self._asked(func, args, kwargs, given)
        if asked is None:
            return make(*args, **kwargs)
        known = self._known.get(asked, UNKNOWN)
        if known is UNKNOWN:
            kind = None
            if not torch.is_inference_mode_enabled():  # where layers come whole, and views differ
                kind = self._kernels.kind_of(func, args, kwargs, given)
            types = None if kind is None else self._kernels.types.get(kind, UNKNOWN)
            known = None
            if types is not UNKNOWN and types is not None:
                known = self._of_kernel(func, args, kwargs, given, types)
            if known is None:
                out = make(*args, **kwargs)
                if len(self._known) < MOST:
                    self._known[asked] = known = self._noted(out, asked, args, kwargs)
                    if kind is not None and types is UNKNOWN:
                        self._compare(kind, known, func, args, kwargs, given=given)
                return out
            if len(self._known) < MOST:
                self._known[asked] = known
        elif known is None:
            return make(*args, **kwargs)
        kind, parts = known
        made = [self._made(part, given) for part in parts]
        return made[0] if kind is None else kind(made)

    # inside ----------------------------------------------------------------------------------

    def _asked(
        self, func: Any, args: Any, kwargs: Any, given: list[FakeTensor]
    ) -> tuple[Any, ...] | None:
        """All that an output may depend on; `None` where that cannot be told."""
        key: list[Any] = [func, torch.get_default_dtype(), torch.is_inference_mode_enabled()]
        if not (self._describe(args, key, given) and self._describe_named(kwargs, key, given)):
            return None
        if _is_of_storage(func):
            for each in given:
                key += (each.storage_offset(), each.untyped_storage().nbytes())
        return tuple(key)

    def _describe_named(self, kwargs: Any, key: list[Any], given: list[FakeTensor]) -> bool:
        if kwargs:
            key += kwargs
            return self._describe(kwargs.values(), key, given)
        return True

    def _describe(self, values: Iterable[Any], key: list[Any], given: list[FakeTensor]) -> bool:
        """Adds what an output may depend on; False where that cannot be told."""
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
                    value.fake_device,
                    value.requires_grad,
                    value.is_inference(),
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

    def _noted(self, out: Any, asked: tuple[Any, ...], args: Any, kwargs: Any) -> _Outputs | None:
        """What tells the output; `None` where only a run of the operation does."""
        given: list[FakeTensor] = []
        if self._asked(asked[0], args, kwargs, given) != asked:
            return None  # it changed what it was given
        noted = _outputs(out, given)
        if noted is None:
            return None
        kind, parts = noted
        for each, part in zip(out if kind else (out,), parts, strict=True):
            if isinstance(part, (_Fresh, _View)):
                twin = self._made(part, given)
                if twin is None or not _are_alike(each, twin):
                    return None
        return noted

    def _compare(
        self,
        kind: Any,
        known: _Outputs | None,
        func: Any,
        args: Any,
        kwargs: Any,
        *,
        given: Sequence[FakeTensor],
    ) -> None:
        """Whether the meta kernel says the same of an operation that was made."""
        types: Types | None = None
        if known is not None:
            types = tuple(
                (part.dtype, part.device) if isinstance(part, (_Fresh, _View)) else None
                for part in known[1]
            )
            if self._of_kernel(func, args, kwargs, given, types) != known:
                types = None
        self._kernels.types[kind] = types

    def _of_kernel(
        self, func: Any, args: Any, kwargs: Any, given: Sequence[FakeTensor], types: Types
    ) -> _Outputs | None:
        """What the meta kernel says of the outputs; `None` where it says nothing.

        Args:
            types: of the outputs.
        """
        made = self._kernels.run(func, args, kwargs, given)
        told = None if made is None else _outputs(made.out, made.given)
        if told is None or len(told[1]) != len(types):
            return None
        parts: list[_Part] = []
        for part, own in zip(told[1], types, strict=True):
            if isinstance(part, (_Fresh, _View)) and own is not None:
                parts.append(part._replace(dtype=own[0], device=own[1]))
            else:
                parts.append(part)
        return told[0], tuple(parts)

    def _made(self, part: _Part, given: Sequence[FakeTensor]) -> FakeTensor | None:
        if part is None:
            return None
        if type(part) is int:
            return given[part]
        assert not isinstance(part, int)
        with torch._C._DisableTorchDispatch():
            if isinstance(part, _View):
                inner = torch.empty(0, dtype=part.dtype, device="meta")
                base = given[part.number]
                offset = int(base.storage_offset()) + part.offset
                inner.set_(base.untyped_storage(), offset, part.shape, part.stride)
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


def _outputs(out: Any, given: Sequence[torch.Tensor]) -> _Outputs | None:
    """What tells the outputs of an operation on some tensors; `None` where nothing does."""
    kind = type(out) if type(out) in (list, tuple) else None
    held: dict[int, list[int]] = {}
    for number, each in enumerate(given):
        held.setdefault(each.untyped_storage()._cdata, []).append(number)
    own: set[int] = set()
    parts = []
    for each in out if kind else (out,):
        part = _part(each, given, held, own)
        if part is UNKNOWN:
            return None
        parts.append(part)
    return kind, tuple(parts)


def _part(
    out: Any,
    given: Sequence[torch.Tensor],
    held: dict[int, list[int]],
    own: set[int],
) -> Any:
    """One output.

    Args:
        held: which of the given tensors are in a storage, by its address.
        own: storages of the outputs before it; this one's is added.
    """
    if out is None:
        return None
    if type(out) not in (FakeTensor, torch.Tensor) or out.layout is not torch.strided:
        return UNKNOWN
    storage = out.untyped_storage()._cdata
    holders = held.get(storage, [])
    if len(holders) > 1 or storage in own:
        return UNKNOWN  # one of several, and not by its shape
    if holders and given[holders[0]] is out:
        return holders[0]
    device = out.fake_device if isinstance(out, FakeTensor) else out.device
    if holders:
        offset = int(out.storage_offset() - given[holders[0]].storage_offset())
        return _View(holders[0], offset, out.shape, out.stride(), out.dtype, device)
    own.add(storage)
    return _Fresh(out.shape, out.stride(), out.dtype, device)


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
def _is_of_storage(func: Any) -> bool:
    return name_of(func).startswith(OF_STORAGE)


@cache
def is_told_by_shapes(func: Any) -> bool:
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
