"""Numbers for a script that reads a fake tensor, which has no values.

Logging and stopping rules read a loss, a norm, a count of right answers. They get a number that
keeps them going. A whole number that may decide a shape gets none: the step is refused.
Arrays for NumPy are full of such a number.
"""

from __future__ import annotations

from math import isinf
from operator import ge, gt, le, lt
from typing import Any

import torch
from torch._subclasses.fake_tensor import DataDependentOutputException, FakeTensor
from torch.utils.weak import WeakIdKeyDictionary

COUNTS = {"sum", "argmax", "argmin", "count_nonzero", "add", "add_", "sub", "sub_"}
"""Operations whose whole numbers are read to be shown."""
WITH_INDICES = {"max", "min", "sort", "topk"}
"""Operations that return the places of what they return; at one axis each is as of `argmax`."""
UNWANTED = {"isnan", "isinf", "any", "ne"}
"""Questions that a healthy step answers with no."""
COMPARED: dict[str, Any] = {"lt": lt, "le": le, "gt": gt, "ge": ge}
SAME_NUMBER = {
    *("_to_copy", "clone", "detach", "lift_fresh", "alias", "view", "expand", "squeeze"),
    *("_unsafe_view", "permute", "select", "slice", "t", "transpose", "unbind", "unsqueeze"),
}
"""Operations that return numbers that they got."""


class FakeValues:
    """Remembers where single numbers come from, to answer for them."""

    def __init__(self) -> None:
        self._sources: WeakIdKeyDictionary = WeakIdKeyDictionary()

    def note(self, out: Any, name: str, args: Any) -> None:
        """The operation `name` returned `out`."""
        if name == "_foreach_mul_" and isinstance(args[1], (list, tuple)):
            for each, number in zip(args[0], args[1], strict=True):
                self.note(each, "mul_", (each, number))
        elif name in SAME_NUMBER and args[0] in self._sources:
            for each in out if isinstance(out, (tuple, list)) else (out,):
                self._sources[each] = self._sources[args[0]]
        elif name in WITH_INDICES and isinstance(out, (tuple, list)):
            self._sources[out[1]] = ("argmax", None)
        elif isinstance(out, torch.Tensor) and (out.numel() == 1 or _is_read_whole(out, name)):
            filled = self._compared(name, args) if name in COMPARED else _filled(name, args)
            against_infinity = name == "eq" and isinstance(args[1], float) and isinf(args[1])
            self._sources[out] = ("isinf" if against_infinity else name, filled)

    def _compared(self, name: str, args: Any) -> bool | None:
        """Whether the number that stands for the first is so against the second, if that is one."""
        if type(args[1]) not in (int, float) or not args[0].is_floating_point():
            return None
        return COMPARED[name](self.read(args[0]), args[1])  # type: ignore[no-any-return]

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


def _filled(name: str, args: Any) -> float | None:
    """The number that an operation puts there; a product by a number is that of 1.0."""
    if len(args) < 2 or name not in {"full", "mul", "mul_"}:
        return None
    number = args[1]
    return number if name == "full" or type(number) is float else None


def _is_read_whole(out: torch.Tensor, name: str) -> bool:
    """Whether arrays of what the operation returns are shown, or asked for broken numbers."""
    return (name in COUNTS or name in UNWANTED) and not out.is_floating_point()


def make_readable() -> None:
    """Lets such numbers be read from fake tensors where torch refuses, until the process ends."""
    FakeTensor.__format__ = _formatted  # type: ignore[assignment, method-assign]
    FakeTensor.numpy = _array  # type: ignore[assignment, method-assign]
    for name in ("item", "__float__"):
        setattr(FakeTensor, name, _read_anyway(getattr(FakeTensor, name)))


_reading: set[Any] = set()
"""Methods that were put in torch's place already."""


def _read_anyway(native: Any) -> Any:
    """A number also where no step is counted: after an epoch a script prints what it summed."""

    if native in _reading:
        return native

    def read(tensor: FakeTensor) -> Any:
        try:
            return native(tensor)
        except DataDependentOutputException:
            if not tensor.is_floating_point():
                raise
            return 1.0

    _reading.add(read)
    return read


def _formatted(tensor: FakeTensor, spec: str) -> str:
    """Formats a fake tensor as torch formats its own."""
    return object.__format__(tensor, spec) if tensor.dim() else format(tensor.item(), spec)


def _array(tensor: FakeTensor, *, force: bool = False) -> Any:
    """A NumPy array of the tensor's shape and type, full of one number.

    Raises:
        RuntimeError: torch would refuse a real tensor as well.
    """
    if tensor.requires_grad and not force:
        msg = (
            "Can't call numpy() on Tensor that requires grad. Use tensor.detach().numpy() instead."
        )
        raise RuntimeError(msg)
    with torch.utils._python_dispatch._disable_current_modes():
        array = torch.ones(tensor.shape, dtype=tensor.dtype).numpy()
    if array.size:
        array.fill(tensor[(0,) * tensor.dim()].item())
    return array
