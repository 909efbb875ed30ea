"""Shapes of what operations on fake tensors return, by torch's meta kernels.

torch makes most operations on fake tensors of decompositions in Python, of which each part is a
fake operation again: a batch norm takes 20 ms. Its meta kernels, those of tensors on the device
`meta`, tell the same in a tenth of the time; where these are decompositions too, a form of our own
tells it (`FORMS`). But they know no device, and where that matters they
may differ. So each kind of operation is made both ways once, and goes by its meta kernel from then
on if both agreed to the last stride. Types and devices are those of the fake operation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cache
from typing import Any, NamedTuple

import torch

SMALL_INT = 6
"""Whole numbers up to it may be axes, or lengths that are none."""
OF_BACKENDS = ("convolution", "scaled_dot_product", "_flash", "_efficient", "_cudnn", "mkldnn")
"""In names of operations whose results go by the kernel that is chosen for their shapes."""


Types = tuple[tuple[torch.dtype, torch.device] | None, ...]
META = torch.device("meta")


class Made(NamedTuple):
    """What a meta kernel returned, and the tensors that it got in place of those given."""

    out: Any
    given: list[torch.Tensor]


class MetaKernels:
    """Knows for which kinds of operations the meta kernels are right.

    Attributes:
        types: of each kind that was made both ways, type and device of each output; `None` where
            both ways differed in more.
    """

    def __init__(self) -> None:
        self.types: dict[tuple[Any, ...], Types | None] = {}

    def kind_of(
        self, func: Any, args: Any, kwargs: Any, given: Sequence[Any]
    ) -> tuple[Any, ...] | None:
        """All of an operation but its lengths; `None` where a meta kernel may not be asked.

        Args:
            given: its tensors, fake ones.
        """
        if not given or not _has_kernel(func):
            return None
        if any(each.fake_device != given[0].fake_device or each.is_complex() for each in given):
            return None
        kind: list[Any] = [func, torch.get_default_dtype(), given[0].fake_device]
        _describe(args, kind)
        kind += kwargs
        _describe(kwargs.values(), kind)
        return tuple(kind)

    def run(self, func: Any, args: Any, kwargs: Any, given: Sequence[Any]) -> Made | None:
        """What the meta kernel returns; `None` where it raises."""
        with torch._C._DisableTorchDispatch():
            twins = {id(each): _twin(each) for each in given}
            try:
                out = FORMS.get(func.name(), func)(
                    *[_swapped(each, twins) for each in args],
                    **{name: _swapped(each, twins) for name, each in kwargs.items()},
                )
            except Exception:  # noqa: BLE001  whatever it is, the operation itself says it better
                return None
        return Made(out, [twins[id(each)] for each in given])


def _batch_norm(given: torch.Tensor, *rest: Any) -> Any:
    """What a batch norm normalised, and the mean and spread of each channel that it kept."""
    channels = (given.size(1),) if rest[4] else (0,)  # in training
    return torch.empty_like(given), given.new_empty(channels), given.new_empty(channels)


def _batch_norm_backward(_gradient: torch.Tensor, given: torch.Tensor, *rest: Any) -> Any:
    """Gradients that are asked of a batch norm's backward pass."""
    wanted = rest[-1]
    channels = given.new_empty(given.size(1))
    likes = (given, channels, channels)
    return tuple(
        torch.empty_like(like) if asked else None for like, asked in zip(likes, wanted, strict=True)
    )


FORMS: dict[str, Callable[..., Any]] = {
    "aten::native_batch_norm": _batch_norm,
    "aten::native_batch_norm_backward": _batch_norm_backward,
}
"""Outputs of operations whose meta kernels are decompositions in Python as well."""


def _twin(tensor: Any) -> torch.Tensor:
    """Returns a tensor of the same shape, in a storage of its own that begins with it."""
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=META)


def _swapped(value: Any, twins: dict[int, torch.Tensor]) -> Any:
    if type(value) in (list, tuple):
        return type(value)(_swapped(each, twins) for each in value)
    return META if type(value) is torch.device else twins.get(id(value), value)


def _describe(values: Iterable[Any], kind: list[Any]) -> None:
    """Adds what an output may depend on beside lengths, and which of these are small."""
    for value in values:
        if isinstance(value, torch.Tensor):
            shape, stride = value.shape, value.stride()
            order = sorted(range(len(shape)), key=lambda at: (stride[at], shape[at]))
            kind += (
                value.dtype,
                value.requires_grad,
                value.is_contiguous(),
                tuple(order),
                tuple(min(2, length) for length in shape),
                tuple(step == 0 for step in stride),
            )
        elif type(value) in (list, tuple):
            kind += (type(value), len(value))
            _describe(value, kind)
        elif type(value) is int:
            kind += (int, value if abs(value) <= SMALL_INT else None)
        elif type(value) is float:
            kind.append(float)
        else:
            kind += (type(value), value)


@cache
def _has_kernel(func: Any) -> bool:
    name = func.name()
    return func.namespace == "aten" and not any(part in name for part in OF_BACKENDS)
