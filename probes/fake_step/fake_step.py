"""Runs training steps on fake tensors: their memory, without computing."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.utils._pytree import tree_leaves, tree_map_only

from .storage_count import StorageCount

NUM_STEPS = 2
"""The first makes gradients and the optimizer's state; the second is as all that follow."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FakeStep:
    """What a step on fake tensors took; an estimate for the device that the tensors are on.

    Attributes:
        peak_bytes: the most that lived at once.
        floor_bytes: the most that lived at once inside the optimizers' steps.
        parameter_bytes: parameters and buffers.
        gradient_bytes, optimizer_bytes, input_bytes: what the gradients, the optimizers' state and
            the batch hold.
    """

    peak_bytes: int
    floor_bytes: int
    parameter_bytes: int
    gradient_bytes: int
    optimizer_bytes: int
    input_bytes: int


UNKNOWN_MEMORY = ("mkldnn_rnn_layer", "_cudnn_rnn", "miopen_rnn")
"""Operations whose fake form leaves out the workspace that the real one returns."""


class _Answered(StorageCount):  # type: ignore[no-untyped-call]
    """Counts with every real tensor faked, and answers 1 where a step asks for a value."""

    def __init__(self, fakes: FakeTensorMode) -> None:
        super().__init__()
        self._fakes = fakes

    def _faked(self, tensor: torch.Tensor) -> torch.Tensor:
        # Operations on real tensors alone would be computed, and change the parameters.
        if isinstance(tensor, FakeTensor):
            return tensor
        fake = self._fakes.from_tensor(tensor)
        self._count(fake)
        return fake

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.ops.aten._local_scalar_dense.default:
            dtype = args[0].dtype
            return True if dtype is torch.bool else 1.0 if dtype.is_floating_point else 1
        name = func.name().removeprefix("aten::").split(".")[0]
        if name in UNKNOWN_MEMORY:
            msg = f"nothing says how much memory {name} takes"
            raise NotImplementedError(msg)
        args, kwargs = tree_map_only(torch.Tensor, self._faked, (args, kwargs or {}))
        return super().__torch_dispatch__(func, types, args, kwargs)


def fake_step(
    step: Callable[[Any], object],
    batch: Any,
    modules: Iterable[torch.nn.Module],
    optimizers: Iterable[torch.optim.Optimizer],
) -> FakeStep | str:
    """Runs `step(batch)` on fake tensors and counts its memory, or says why it cannot.

    Nothing is computed: parameters, buffers, gradients and the optimizers' state are afterwards
    what they were. A value that the step reads out of a tensor (`.item()`) is 1.

    Args:
        step: a whole training step: forward, backward, the optimizers' steps.
        batch: tensors in any nesting; each is replaced by a fake one of its shape and type.
        modules: what is trained.
        optimizers: all that `step` calls.
    """
    fakes = FakeTensorMode(allow_non_fake_inputs=True)
    count = _Answered(fakes)
    optimizers, held = list(optimizers), _held(modules)
    gradients = {tensor: tensor.grad for tensor in held if tensor.requires_grad}
    states = [{key: dict(value) for key, value in each.state.items()} for each in optimizers]
    random_state = torch.get_rng_state()
    floors: list[int] = []
    outside: list[int] = []

    def before(*_: object) -> None:
        outside.append(count.peak_bytes)
        count.reset_peak()

    def after(*_: object) -> None:
        floors.append(count.peak_bytes)
        count.peak_bytes = max(count.peak_bytes, outside.pop())

    hooks = [each.register_step_pre_hook(before) for each in optimizers]
    hooks += [each.register_step_post_hook(after) for each in optimizers]
    try:
        for tensor in gradients:
            tensor.grad = None
        known = [*held, *_state_tensors(optimizers)]
        count.hold(known)
        count.ignore(fakes.from_tensor(tensor) for tensor in known)
        given = tree_map_only(torch.Tensor, fakes.from_tensor, batch)
        count.hold(_tensors(given))
        with fakes, count:
            for _ in range(NUM_STEPS):
                count.reset_peak()
                floors.clear()
                step(given)
        if not floors:
            return "no optimizer stepped"
        return FakeStep(
            peak_bytes=count.peak_bytes,
            floor_bytes=max(floors),
            parameter_bytes=_bytes_of(held),
            gradient_bytes=_bytes_of(p.grad for p in gradients if p.grad is not None),
            optimizer_bytes=_bytes_of(_state_tensors(optimizers)),
            input_bytes=_bytes_of(_tensors(given)),
        )
    except Exception as error:  # noqa: BLE001
        # Whatever the script's own code raises on fake tensors: there is no number.
        return f"the step does not run on fake tensors: {type(error).__name__}: {error}"
    finally:
        for hook in hooks:
            hook.remove()
        for tensor, gradient in gradients.items():
            tensor.grad = gradient
        for optimizer, state in zip(optimizers, states, strict=True):
            optimizer.state.clear()
            optimizer.state.update(state)
        torch.set_rng_state(random_state)


def _held(modules: Iterable[torch.nn.Module]) -> list[torch.Tensor]:
    tensors = [t for m in modules for t in (*m.parameters(), *m.buffers())]
    return list({id(tensor): tensor for tensor in tensors}.values())


def _tensors(tree: Any) -> list[torch.Tensor]:
    return [leaf for leaf in tree_leaves(tree) if isinstance(leaf, torch.Tensor)]


def _state_tensors(optimizers: Iterable[torch.optim.Optimizer]) -> list[torch.Tensor]:
    return [t for each in optimizers for state in each.state.values() for t in _tensors(state)]


def _bytes_of(tensors: Iterable[torch.Tensor]) -> int:
    storages = (tensor.untyped_storage() for tensor in tensors)
    return sum({id(storage): storage.nbytes() for storage in list(storages)}.values())
