"""Steps of another optimizer in place of the script's own."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Protocol

import torch
from torch.optim import LBFGS, SGD, Adafactor, AdamW, Optimizer

BLOCK_NUMBERS = 256
"""Numbers that share a scale in a state of 8 bits (bitsandbytes: blocksize)."""
LEAST_NUMBERS = 4096
"""Smaller parameters keep a state of 32 bits (bitsandbytes: min_8bit_size)."""


class Steps(Protocol):
    """An object that updates parameters, as optimizers do."""

    state: Any

    def step(self) -> Any:
        """Updates them."""


class AdamW8Bit:
    """The memory of an AdamW whose two moments take a byte each, as in bitsandbytes.

    Its kernel works in place, so there are no temporaries.

    Args:
        parameters: that it updates.
    """

    def __init__(self, parameters: Iterable[torch.Tensor]) -> None:
        self._parameters = list(parameters)
        self.state: dict[torch.Tensor, dict[str, torch.Tensor]] = {}

    @torch.no_grad()
    def step(self) -> None:
        """Makes the state of parameters that have a gradient for the first time."""
        for parameter in self._parameters:
            if parameter.grad is not None and parameter not in self.state:
                self.state[parameter] = dict(self._state_of(parameter))

    @staticmethod
    def _state_of(parameter: torch.Tensor) -> Iterable[tuple[str, torch.Tensor]]:
        small = parameter.numel() < LEAST_NUMBERS
        for moment in ("first", "second"):
            yield (
                moment,
                torch.zeros_like(parameter, dtype=torch.float32 if small else torch.uint8),
            )
            if not small:
                blocks = -(-parameter.numel() // BLOCK_NUMBERS)
                yield f"{moment} scales", torch.zeros(blocks, device=parameter.device)


KINDS: dict[str, Callable[[list[torch.Tensor]], Steps]] = {
    "AdamW": lambda parameters: AdamW(parameters, lr=1e-3),
    "AdamW, fused": lambda parameters: AdamW(parameters, lr=1e-3, fused=True),
    "AdamW, one by one": lambda parameters: AdamW(parameters, lr=1e-3, foreach=False),
    "AdamW, 8-bit state": AdamW8Bit,
    "Adafactor": lambda parameters: Adafactor(parameters, lr=1e-2),
    "SGD with momentum": lambda parameters: SGD(parameters, lr=1e-2, momentum=0.9),
    "SGD": lambda parameters: SGD(parameters, lr=1e-2),
}
"""Optimizers by the names of records.OptimizerKind."""


def fill_history(optimizer: Optimizer) -> None:
    """Gives L-BFGS as much history of earlier steps as it ever keeps.

    It looks at values to decide what it keeps, and grows over as many steps as its history has.
    """
    if not isinstance(optimizer, LBFGS):
        return
    [group] = optimizer.param_groups
    parameters, length = group["params"], group["history_size"]
    state = optimizer.state[parameters[0]]
    if "before" in state:
        return
    like = parameters[0]
    num = sum(parameter.numel() for parameter in parameters)
    state.update(
        n_iter=1,
        d=like.new_zeros(num),
        t=group["lr"],
        old_dirs=[like.new_zeros(num) for _ in range(length)],
        old_stps=[like.new_zeros(num) for _ in range(length)],
        ro=[like.new_ones(()) for _ in range(length)],
        H_diag=like.new_ones(()),
        prev_flat_grad=like.new_zeros(num),
        prev_loss=1.0,
        al=[None] * length,
        before=[like.new_zeros(num) for _ in range(2)],  # the loop's own, of the iteration before
    )
    state.setdefault("func_evals", 0)


class OtherOptimizer:
    """Makes the steps of another kind of optimizer as the script's own are called.

    The script's own then finds no gradients and changes nothing; the gradients come back after it.

    Args:
        kind: one of `KINDS`.
    """

    def __init__(self, kind: str) -> None:
        self._make = KINDS[kind]
        self._others: dict[int, Steps] = {}
        self._away: list[tuple[torch.Tensor, torch.Tensor]] = []

    @property
    def states(self) -> list[Any]:
        """States of the stand-in optimizers after the steps so far."""
        return [other.state for other in self._others.values()]

    def before(
        self, optimizer: Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
        """Steps in place of the script's optimizer; returns what a hook before its step has to."""
        closure = kwargs.get("closure") if len(args) < 2 else args[1]
        if closure is None:
            self._step(optimizer)
            return None

        def then() -> Any:
            loss = closure()
            with torch.no_grad():
                self._step(optimizer)
            return loss

        if len(args) > 1:
            return (args[0], then, *args[2:]), kwargs
        return args, {**kwargs, "closure": then}

    def make_state(self, optimizer: Optimizer) -> None:
        """A step for its state alone, with the gradients that are there."""
        with torch.no_grad():
            self._step(optimizer)
        self.after()

    def after(self) -> None:
        """The script's step is over."""
        for parameter, gradient in self._away:
            parameter.grad = gradient
        self._away.clear()

    def _step(self, optimizer: Optimizer) -> None:
        parameters = [p for group in optimizer.param_groups for p in group["params"]]
        other = self._others.get(id(optimizer))
        if other is None:
            other = self._others[id(optimizer)] = self._make(parameters)
        # Without the hooks of optimizers: nobody shall hear of a second one.
        step: Any = type(other).step
        getattr(step, "__wrapped__", step)(other)
        for parameter in parameters:
            if parameter.grad is not None:
                self._away.append((parameter, parameter.grad))
                parameter.grad = None
