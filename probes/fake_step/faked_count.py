"""Counts storages of operations that are not computed."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._pytree import tree_leaves, tree_map_only
from torch.utils.weak import WeakIdKeyDictionary

from .cuda_convolutions import grouped_workspace, search_of
from .cuda_temporaries import taken_after, taken_before
from .fake_values import FakeValues
from .known_outputs import KnownOutputs, name_of, tensors_of
from .large_parameters import FakeMode, LargeParameters
from .origins import Origin
from .sharded_updates import local_update
from .step_work import LargeTensors, StepWork
from .storage_count import StorageCount, is_shared
from .unknown_shapes import bounded, is_never

DEVICE = torch.ops.prim.device.default
CPU = torch.device("cpu")
UNKNOWN_MEMORY = ("mkldnn_rnn_layer", "_cudnn_rnn", "miopen_rnn")
"""Operations whose fake form leaves out the workspace that the real one returns."""

PRODUCTS = frozenset({"mm", "addmm", "bmm", "baddbmm", "_addmm_activation"})
"""Operations that cuBLAS computes on a GPU."""


class FakedCount(StorageCount):  # type: ignore[no-untyped-call]
    """Counts, with every real tensor faked.

    Attributes:
        large: the largest tensors of the step.
        work: takes the operations, if somebody asks for them.
        first_products: how many requests were made when the first product of matrices had its
            output, outside of the backward pass (False) and in it (True), where a GPU has a thread.
        passing: how many requests were made when an operation took a workspace that is no tensor
            and is not counted, and its bytes.
        emptied: how many requests were made when cuDNN had tried all kernels of a convolution: the
            first of its shapes.

    Args:
        for_gpu: operations take meanwhile what they take on CUDA.
    """

    def __init__(self, origin: Callable[[], Origin], *, for_gpu: bool = False) -> None:
        super().__init__(origin)
        large = LargeParameters.current
        self.fakes = FakeMode() if large is None else large.fakes
        self._outputs = KnownOutputs(self.fakes) if large is None else large.outputs
        self._values = FakeValues()
        self.large = LargeTensors(lambda: origin().line)
        self.work: StepWork | None = None
        self.first_products: dict[bool, int] = {}
        self.passing: list[tuple[int, int]] = []
        self.emptied: list[int] = []
        self._tried: set[Any] = set()
        self._for_gpu = for_gpu
        self._faked_before: Any = WeakIdKeyDictionary()

    def reset_requests(self) -> None:
        """See `StorageCount`."""
        super().reset_requests()
        self.first_products.clear()
        self.passing.clear()
        self.emptied.clear()
        self._tried.clear()
        self.large.clear()

    def _faked(self, tensor: torch.Tensor) -> torch.Tensor:
        # Operations on real parameters would be computed, and change them.
        self._count(tensor)
        if isinstance(tensor, FakeTensor):
            return tensor
        fake = self._faked_before.get(tensor)
        if fake is None or fake.size() != tensor.size() or fake.stride() != tensor.stride():
            fake = self.fakes.from_tensor(tensor)
            self.ignore([fake])
            self._faked_before[tensor] = fake
        return fake  # type: ignore[no-any-return]

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Runs the operation without contents, and counts what it returns."""
        kwargs = kwargs or {}
        if func is DEVICE:  # asked most of all
            return getattr(args[0], "fake_device", CPU)
        if func.namespace == "profiler":  # marks of FSDP's, on no tensors
            with torch._C._DisableTorchDispatch():
                return func(*args, **kwargs)
        if is_shared(types):
            return local_update(func, args, kwargs, partial(self._run, func))
        return self._run(func, args, kwargs)

    def _run(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Runs an operation on tensors of this rank alone."""
        tensors = tensors_of((*args, *kwargs.values()))
        if _are_values(tensors):
            with torch.utils._python_dispatch._disable_current_modes():
                out = func(*args, **kwargs)
            self.hold(leaf for leaf in tree_leaves(out) if isinstance(leaf, torch.Tensor))
            return out
        name = name_of(func)
        if name == "_local_scalar_dense":
            return self._values.read(self._faked_before.get(args[0], args[0]))
        if name in UNKNOWN_MEMORY:
            msg = f"nothing says how much memory {name} takes"
            raise NotImplementedError(msg)
        if is_never(name, args):
            return False
        before = [self.take(size) for size in taken_before(name, args)] if self._for_gpu else []
        make = bounded(name, args)
        if make is not None:
            out = make(*args, **kwargs)
        else:
            if any(not isinstance(tensor, FakeTensor) for tensor in tensors):
                args, kwargs = tree_map_only(torch.Tensor, self._faked, (args, kwargs))
            else:
                self.hold(tensors)  # parameters that were fake before
            out = self._outputs.run(func, args, kwargs)
        self._count_all(out)
        self.large.note(name, tensors, out)
        if name in PRODUCTS:
            in_backward = torch._C._current_graph_task_id() >= 0
            self.first_products.setdefault(in_backward, len(self.requests))
        after = [self.take(size) for size in taken_after(name, args)] if self._for_gpu else []
        for taken in (*reversed(after), *reversed(before)):
            self.give_back(taken)
        if self._for_gpu and (tried := search_of(name, args)):
            if num_bytes := grouped_workspace(name, args):
                self.passing.append((len(self.requests), num_bytes))
            if tried not in self._tried:
                self._tried.add(tried)
                self.emptied.append(len(self.requests))
        self._values.note(out, name, args)
        if self.work is not None:
            self.work.note(func, name, args, kwargs, out)
        return out


def _are_values(tensors: list[torch.Tensor]) -> bool:
    """Whether all are real whole numbers, as lengths and masks of a batch are: what follows from
    them is computed, and shapes that come of it are the real ones."""
    return bool(tensors) and not any(
        isinstance(tensor, FakeTensor) or tensor.is_floating_point() or tensor.is_complex()
        for tensor in tensors
    )
