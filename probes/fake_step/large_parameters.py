"""Parameters of large models without contents, from the moment that the script makes them.

A model that no machine at hand can hold is estimated all the same: once the modules of the script
have asked for some memory, what they ask for beyond it are fake tensors. The script fills them,
trains on them and reads its loss, and nothing is computed.
"""

from __future__ import annotations

import sys
import warnings
from functools import partial
from math import prod
from types import FrameType
from typing import Any, ClassVar

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode, _get_current_dispatch_mode
from torch.utils._pytree import tree_map_only
from torch.utils.weak import WeakIdKeyDictionary

from .fake_values import FakeValues, make_readable
from .known_outputs import KnownOutputs, is_told_by_shapes, name_of, tensors_of
from .storage_count import is_shared

REAL_BYTES = 64 << 20
"""Bytes of parameters and buffers that stay real, so that small models are left alone."""
LEAST_NUMBERS = 1 << 16
"""Smaller tensors are always real."""
MOST_FRAMES = 12
"""Frames between a module's constructor and torch's function that makes a tensor, at most."""
DEVICE = torch.ops.prim.device.default
ITEM, CONVERSIONS = "_local_scalar_dense", ("_to_copy", "detach")


class FakeMode(FakeTensorMode):  # type: ignore[no-untyped-call]
    """Takes real tensors too, and stays the same one in a copy of a fake tensor."""

    def __init__(self) -> None:
        super().__init__(allow_non_fake_inputs=True)
        self.cache_enabled = False  # `KnownOutputs` is asked first

    def __deepcopy__(self, _memo: Any) -> FakeMode:
        return self


def _copied(tensor: FakeTensor, memo: dict[int, Any]) -> Any:
    if id(tensor) not in memo:
        twin: torch.Tensor = tensor.detach().clone()
        is_parameter = isinstance(tensor, nn.Parameter)
        twin = nn.Parameter(twin, tensor.requires_grad) if is_parameter else twin
        memo[id(tensor)] = twin
    return memo[id(tensor)]


class LargeParameters(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """While it is on, large models have fake parameters, and operations on them are fake.

    Args:
        real_bytes: that modules may ask for before theirs are fake.

    Attributes:
        current: the one of this process.
        fakes: to which all fake tensors of the process belong.
        outputs: of operations on them.
    """

    current: ClassVar[LargeParameters | None] = None

    def __init__(self, real_bytes: int = REAL_BYTES) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.fakes = FakeMode()
        self.outputs = KnownOutputs(self.fakes)
        self._values = FakeValues()
        self._twins: Any = WeakIdKeyDictionary()
        self._left_bytes = real_bytes
        self._made_any = False

    @classmethod
    def was_used(cls) -> bool:
        """Whether this process has parameters without contents."""
        return cls.current is not None and cls.current._made_any

    def start(self) -> None:
        """Starts it for the rest of the process, in this thread, but for pauses."""
        LargeParameters.current = self
        # Fake tensors are made of tensors inside a step, whose gradients nobody wants.
        warnings.filterwarnings("ignore", message=r"The \.grad attribute of a Tensor that is not")
        # torch's own asks for the address of its contents.
        FakeTensor.__deepcopy__ = _copied  # type: ignore[assignment, method-assign]
        make_readable()
        self.__enter__()  # type: ignore[no-untyped-call]

    def pause(self) -> bool:
        """Off until `go_on`; False where another mode came after it."""
        if _get_current_dispatch_mode() is not self:
            return False
        self.__exit__(None, None, None)  # type: ignore[no-untyped-call]
        return True

    def go_on(self) -> None:
        """Ends a pause."""
        self.__enter__()  # type: ignore[no-untyped-call]

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Fakes what works on a fake tensor, and what a large module asks for."""
        kwargs = kwargs or {}
        if func is DEVICE and isinstance(args[0], FakeTensor):
            return args[0].fake_device
        if is_shared(types):
            return NotImplemented
        tensors = tensors_of((*args, *kwargs.values()))
        num_fake = sum(isinstance(tensor, FakeTensor) for tensor in tensors)
        if num_fake:
            name = name_of(func)
            if name == ITEM:
                return self._values.read(args[0])
            if num_fake < len(tensors) and is_told_by_shapes(func):
                args, kwargs = tree_map_only(torch.Tensor, self._twin, (args, kwargs))
            out = self.outputs.run(func, args, kwargs, partial(self._faked, func))
            self._values.note(out, name, args)
            if name in CONVERSIONS and _asked_by("_apply"):
                self._forget(out)
                self._forget(args[0])
            return out
        if not tensors and _is_large(args) and self._beyond(args, kwargs):
            self._made_any = True
            with self.fakes:
                return func(*args, **kwargs)
        return func(*args, **kwargs)

    def _faked(self, func: Any, /, *args: Any, **kwargs: Any) -> Any:
        with self.fakes:
            return func(*args, **kwargs)

    def _twin(self, tensor: torch.Tensor) -> torch.Tensor:
        """A fake one for a real one: what is returned of fake ones alone may be known."""
        if isinstance(tensor, FakeTensor):
            return tensor
        twin = self._twins.get(tensor)
        if twin is None or twin.size() != tensor.size() or twin.stride() != tensor.stride():
            # `from_tensor` would follow a view to its parameter, and compare their gradients.
            with self.fakes:
                twin = torch.empty_strided(
                    tensor.size(), tensor.stride(), dtype=tensor.dtype, device=tensor.device
                )
            self._twins[tensor] = twin
        return twin  # type: ignore[no-any-return]

    def _forget(self, tensor: torch.Tensor) -> None:
        """A module that is converted takes only a tensor that nothing else refers to."""
        memo = self.fakes.fake_tensor_converter.tensor_memo
        for key in [key for key, known in memo.items() if known is tensor]:
            del memo[key]

    def _beyond(self, args: Any, kwargs: Any) -> bool:
        """Whether a module asks, and for more than is left."""
        if not _asked_by("__init__"):
            return False
        dtype = kwargs.get("dtype") or torch.get_default_dtype()
        size = prod(args[0]) * dtype.itemsize
        if size > self._left_bytes:
            return True
        self._left_bytes -= size
        return False


def _is_large(args: Any) -> bool:
    return (
        bool(args)
        and isinstance(args[0], (list, tuple))
        and all(isinstance(length, int) for length in args[0])
        and prod(args[0]) >= LEAST_NUMBERS
    )


def _asked_by(function: str) -> bool:
    """Whether a method of a module of this name is what asks."""
    frame: FrameType | None = sys._getframe(2)
    for _ in range(MOST_FRAMES):
        if frame is None:
            return False
        if frame.f_code.co_name == function and isinstance(frame.f_locals.get("self"), nn.Module):
            return True
        frame = frame.f_back
    return False
