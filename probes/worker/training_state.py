"""The state of a live training, kept while sizes are tried and put back afterwards.

Kept are all modules, optimizers, schedulers and gradient scalers of the process, its random
generators, and plain values that the step's function can reach. What else the steps wrote is not
put back, and is said as far as it can be seen.
"""

from __future__ import annotations

import random
import sys
import weakref
from collections.abc import Callable, Iterable, Iterator
from copy import deepcopy
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from ...units import format_bytes
from ..devices import host
from ..devices.live_objects import Bound, LookTooLongError, objects_of
from .plain_values import PlainValues, restorer


class StateNotKeptError(Exception):
    """The state of the training cannot be kept; no step was made.

    Attributes:
        reason, remedy: why, and what to do about it.
    """

    def __init__(self, reason: str, remedy: str) -> None:
        super().__init__(reason)
        self.reason = reason
        self.remedy = remedy


class TrainingState:
    """A copy of the state, taken when it is made. Copies of tensors lie in the host's memory.

    Args:
        functions: of the user, whose plain values are kept.
        owners: objects whose plain attributes are kept, such as a data set.
        generators: of random numbers, beside those of the process.
        others: objects with `state_dict` and `load_state_dict`.

    Raises:
        StateNotKeptError: the process has too many objects, or too little memory for the copies.
    """

    def __init__(
        self,
        functions: Iterable[Any] = (),
        *,
        owners: Iterable[Any] = (),
        generators: Iterable[Any] = (),
        others: Iterable[Any] = (),
    ) -> None:
        # It may take its time: sizes are tried for minutes.
        bound = Bound(max_objects=50_000_000, max_blocks=500_000_000, max_s=60.0)
        try:
            modules, optimizers, schedulers, scalers, tensors = objects_of(
                nn.Module, Optimizer, LRScheduler, torch.amp.GradScaler, torch.Tensor, bound=bound
            )
        except LookTooLongError as error:
            raise StateNotKeptError(
                f"the state of the training cannot be kept: {error}",
                "Use batchadvisor.probe in a process of its own, which keeps no state.",
            ) from None
        self.parameters = list(_parameters(modules, optimizers))
        self._copies = Copies()
        self._modules = [ModuleState(module, self._copies) for module in modules]
        self._optimizers = [OptimizerState(optimizer, self._copies) for optimizer in optimizers]
        self._gradients = [
            (parameter, parameter.grad, self._copies.of(parameter.grad))
            for parameter in self.parameters
        ]
        for each in (*schedulers, *scalers):
            self._copies.of(dict(vars(each)))
        for each in others:
            self._copies.claim(each.state_dict())
        self._schedules = [(each, deepcopy(each.state_dict())) for each in schedulers]
        self._scalers = [(each, deepcopy(each.state_dict())) for each in scalers]
        self._others = [(each, deepcopy(each.state_dict())) for each in others]
        self._values = PlainValues(functions, owners)
        self._random = RandomState(generators)
        self._watched = [
            (weakref.ref(tensor), version)
            for tensor in tensors
            if not self._copies.holds(tensor) and (version := _version(tensor)) is not None
        ]

    def rewind_schedules(self) -> None:
        """Puts the counts of schedulers back: one that is over raises, or makes longer steps."""
        for each, state in self._schedules:
            each.load_state_dict(deepcopy(state))

    def rewind_counters(self) -> None:
        """Puts plain values, schedulers and gradient scalers back: whatever has an end."""
        self.rewind_schedules()
        for each, state in self._scalers:
            each.load_state_dict(deepcopy(state))
        self._values.restore()

    def restore(self) -> tuple[str, ...]:
        """Puts everything back; returns what it could not, in words."""
        written = self._written()
        self._copies.restore()
        for module in self._modules:
            module.restore()
        for optimizer in self._optimizers:
            optimizer.restore()
        for parameter, gradient, _ in self._gradients:
            parameter.grad = gradient
        self.rewind_counters()
        for each, state in self._others:
            each.load_state_dict(state)
        self._random.restore()
        return (*self._copies.left_out, *written, *self._values.not_restored())

    def _written(self) -> Iterator[str]:
        tensors = [
            tensor
            for reference, version in self._watched
            if (tensor := reference()) is not None and _version(tensor) != version
        ]
        if tensors:
            shape = list(max(tensors, key=torch.Tensor.numel).shape)
            what = "a tensor" if len(tensors) == 1 else f"{len(tensors)} tensors"
            yield (
                f"the steps wrote to {what} of no model or optimizer (the largest is {shape}); "
                "if the training reads it again, name an object with its state_dict in state="
            )


class Copies:
    """Copies of tensors; each tensor is copied once.

    Attributes:
        left_out: tensors that cannot be copied, in words.
    """

    def __init__(self) -> None:
        self.left_out: list[str] = []
        self._copies: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
        self._storages: set[int] = set()
        self._room = host.available_bytes()
        self._num_bytes = 0

    def of(self, value: Any) -> Any:
        """The value; tensors in it, however deep in lists and mappings, are copied aside.

        Returns:
            The value with fresh lists and mappings around the tensors that it holds now.
        """
        if isinstance(value, torch.Tensor):
            self._copy(value)
            return value
        if isinstance(value, dict):
            return {key: self.of(part) for key, part in value.items()}
        if type(value) in (list, tuple):
            return type(value)(map(self.of, value))
        return value

    def claim(self, value: Any) -> None:
        """Tensors in the value are put back by somebody else."""
        if isinstance(value, torch.Tensor):
            self._storages.add(_storage(value))
        elif isinstance(value, dict):
            self.claim(list(value.values()))
        elif isinstance(value, (list, tuple)):
            for part in value:
                self.claim(part)

    def holds(self, tensor: torch.Tensor) -> bool:
        """Whether the memory of a tensor is that of one that was copied."""
        return _storage(tensor) in self._storages

    def restore(self) -> None:
        """Writes the copies back, past autograd's counts of versions."""
        for tensor, copy in self._copies.values():
            _local(tensor).data.copy_(copy)

    def _copy(self, tensor: torch.Tensor) -> None:
        if id(tensor) in self._copies or tensor.is_meta:
            return
        if nn.parameter.is_lazy(tensor):
            self.left_out.append(
                "lazy parameters got their shapes from the steps, and their values"
            )
            return
        local = _local(tensor).detach()
        self._num_bytes += local.numel() * local.element_size()
        if self._room is not None and self._num_bytes > self._room[0]:
            raise StateNotKeptError(
                f"the copy of the training's state needs more than the "
                f"{format_bytes(self._room[0])} that the host has left",
                "Free memory of the host, or use batchadvisor.probe, which keeps no state.",
            )
        self._copies[id(tensor)] = (tensor, local.to("cpu", copy=True))
        self._storages.add(_storage(tensor))


class ModuleState:
    """The parts of one module that its steps may exchange; tensors in them are copied."""

    def __init__(self, module: nn.Module, copies: Copies) -> None:
        self._module = module
        self._training = module.training
        self._buffers = copies.of(dict(module._buffers))
        copies.of(dict(module._parameters))

    def restore(self) -> None:
        """Puts back the buffers, and the mode."""
        self._module._buffers.update(self._buffers)
        self._module.training = self._training


class OptimizerState:
    """An optimizer's state and the settings of its groups.

    Not by `load_state_dict`, which makes other tensors and changes their type.
    """

    def __init__(self, optimizer: Optimizer, copies: Copies) -> None:
        self._optimizer = optimizer
        self._state = {key: copies.of(value) for key, value in optimizer.state.items()}
        self._groups = [
            copies.of({key: value for key, value in group.items() if key != "params"})
            for group in optimizer.param_groups
        ]
        for group in optimizer.param_groups:
            copies.of(list(group["params"]))

    def restore(self) -> None:
        """Puts back the state, in the tensors that held it."""
        state = self._optimizer.state
        for key in [key for key in state if key not in self._state]:
            del state[key]
        for key, value in self._state.items():
            kept = state.get(key)
            if isinstance(kept, dict):
                kept.clear()
                kept.update(value)
            else:
                state[key] = value
        for group, settings in zip(self._optimizer.param_groups, self._groups, strict=False):
            group.update(settings)


class RandomState:
    """The random generators of the process: torch's on every device, numpy's and Python's."""

    def __init__(self, generators: Iterable[Any] = ()) -> None:
        self._restores: list[Callable[[], Any]] = []
        self._keep(random.getstate(), random.setstate)
        self._keep(torch.get_rng_state(), torch.set_rng_state)
        if torch.cuda.is_available() and torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
            self._keep(torch.cuda.get_rng_state_all(), torch.cuda.set_rng_state_all)
        numpy: Any = sys.modules.get("numpy")
        if numpy is not None:
            self._keep(numpy.random.get_state(), numpy.random.set_state)
        self._restores += filter(None, map(restorer, generators))

    def restore(self) -> None:
        """The next random numbers are those that would have come before."""
        for restore in self._restores:
            restore()

    def _keep(self, state: Any, restore: Callable[[Any], Any]) -> None:
        self._restores.append(lambda: restore(state))


def _parameters(modules: list[nn.Module], optimizers: list[Optimizer]) -> Iterator[torch.Tensor]:
    """All parameters, each once."""
    known: set[int] = set()
    of_modules = (each for module in modules for each in module._parameters.values())
    groups = (group for optimizer in optimizers for group in optimizer.param_groups)
    of_optimizers = (each for group in groups for each in group["params"])
    for parameter in (*of_modules, *of_optimizers):
        if parameter is not None and id(parameter) not in known:
            known.add(id(parameter))
            yield parameter


def _local(tensor: torch.Tensor) -> torch.Tensor:
    """The part of a distributed tensor that is here."""
    local = getattr(tensor, "_local_tensor", tensor)
    assert isinstance(local, torch.Tensor)
    return local


def _version(tensor: torch.Tensor) -> int | None:
    """How often autograd saw a write to it; `None` where nobody counts."""
    try:
        return tensor._version
    except RuntimeError:  # made in inference mode
        return None


def _storage(tensor: torch.Tensor) -> int:
    """An id of a tensor's memory; 0 where it has none of the usual kind."""
    try:
        return _local(tensor).untyped_storage().data_ptr()
    except (RuntimeError, NotImplementedError):
        return 0
