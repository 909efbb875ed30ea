"""Steps that show how the loss reduces a batch: on one batch, on its halves, and on it again.

They are made in the script's own loop, after everything else was measured. Nothing is learnt in
them: learning rates are 0 while an optimizer steps. Gradients are read in the backward pass, before
they are accumulated, unscaled or clipped; a common factor cancels.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch.optim import Optimizer

from ...records import LossCheck
from ..loader.batch_parts import CannotCutError, part_of
from ..loader.batch_size_reader import BatchSizeReader
from .loss_kind import AGAIN, FIRST, NO_TIME, PLAN, REPEATS, SECOND, WHOLE, loss_of
from .loss_outputs import Output, OutputWatch
from .optimizer_hooks import listen

MAX_STRAYS = 16
"""Batches of another size that are let through before it is given up."""
MAX_VALUES = 1 << 22
"""Of a gradient, about so many numbers are kept."""


class LossSteps:
    """The steps, from the first batch of the size to the last gradient.

    Args:
        parameters: that train.
        num_samples: of the whole batch; an even number.
        time_limit_s: no further step after this long.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        parameters: Iterable[torch.Tensor],
        num_samples: int,
        *,
        time_limit_s: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        trained = {
            id(parameter): parameter
            for parameter in parameters
            if parameter.requires_grad and parameter.is_leaf
        }
        self._parameters = list(trained.values())
        self._num_samples = num_samples
        self._clock = clock
        self._until_s = clock() + time_limit_s
        self._batch: Any = None
        self._strays = self._cycle = self._num_batches = 0
        self._cut: dict[int, Callable[[], Any]] = {}
        self._gradients: dict[int, torch.Tensor] = {}
        self._outputs: dict[int, list[Output]] = {}
        self._sums: dict[int, torch.Tensor] = {}
        self._passes: dict[int, int] = {}
        self._held: dict[int, tuple[int, list[tuple[dict[str, Any], Any]]]] = {}
        self._reason = _refused(self._parameters)
        most = max(64, MAX_VALUES // max(1, len(self._parameters)))
        self._strides = [-(-parameter.numel() // most) | 1 for parameter in self._parameters]
        self._watch = OutputWatch(self._parameters)
        self._hooks: list[Any] = [listen(self._hold, self._let_go)]
        if not self._reason:
            self._hooks += [
                parameter.register_hook(self._arrival(number))  # type: ignore[no-untyped-call]
                for number, parameter in enumerate(self._parameters)
            ]

    @property
    def num_steps(self) -> int:
        """Steps made so far."""
        return self._cycle

    def substitute(self, batch: Any, num_samples: int | None, reader: BatchSizeReader) -> Any:
        """What the script gets in place of a batch that was fetched for it."""
        if self._reason:
            return batch
        if not self._cut:
            if num_samples != self._num_samples:
                self._strays += 1
                if self._strays > MAX_STRAYS:
                    self._reason = f"no batch of {self._num_samples} samples came"
                return batch
            try:
                self._keep(batch, reader)
            except CannotCutError as error:
                self._reason = str(error)
                return batch
            except Exception as error:  # noqa: BLE001  a batch of whatever kind; no fault of the script
                self._reason = f"a batch cannot be cut: {type(error).__name__}: {error}"
                return batch
        self._num_batches += 1
        part = self._part
        half = self._num_samples // 2
        self._watch.expect(self._num_samples if part in (WHOLE, AGAIN) else half)
        return self._cut[part]()

    @property
    def over(self) -> bool:
        """Whether all steps are made, or no more will be: `result` can be asked for."""
        return bool(self._reason) or self._cycle == REPEATS * len(PLAN)

    def boundary(self) -> None:
        """A step ended, by the script's next fetch."""
        if self._reason or not self._cut:
            return
        if self._cycle % REPEATS == REPEATS - 1:
            self._read()
        self._sums, self._passes, self._num_batches = {}, {}, 0
        self._watch.take()
        self._cycle += 1
        if not self.over and self._clock() >= self._until_s:
            self._reason = NO_TIME

    def close(self) -> None:
        """Takes the hooks away."""
        self._watch.stop()
        for hook in self._hooks:
            hook.remove()
        self._hooks.clear()

    def result(self) -> LossCheck:
        """What the gradients say, or why they say nothing."""
        if self._reason:
            return LossCheck(reason=self._reason)
        vectors = torch.stack([self._gradients[part] for part in range(len(PLAN))])
        return loss_of((vectors @ vectors.T).tolist(), self._num_samples, self._differences())

    # inside ----------------------------------------------------------------------------------

    @property
    def _part(self) -> int:
        """What the present step is on."""
        return PLAN[min(self._cycle // REPEATS, len(PLAN) - 1)]

    def _keep(self, batch: Any, reader: BatchSizeReader) -> None:
        """Copies the batch: the script may change what it gets.

        Raises:
            CannotCutError: it has no halves.
        """
        carriers = reader.carriers(batch, self._num_samples)
        whole, half = self._num_samples, self._num_samples // 2
        kept = part_of(batch, carriers, 0, whole)
        bounds = {WHOLE: (0, whole), FIRST: (0, half), SECOND: (half, whole), AGAIN: (0, whole)}
        cut = functools.partial(part_of, kept, carriers)
        self._cut = {part: functools.partial(cut, *ends) for part, ends in bounds.items()}

    def _read(self) -> None:
        """Keeps the gradient of the step that ended. Waits for the device."""
        passes = max(self._passes.values(), default=0)
        if not passes:
            self._reason = "no gradient was seen on its way to the parameters"
        elif passes != self._num_batches:
            self._reason = f"a step makes {passes} backward passes for {self._num_batches} batches"
        if self._reason:
            return
        parts = []
        for number, parameter in enumerate(self._parameters):
            seen = self._sums.get(number)
            if seen is None:
                num = -(-parameter.numel() // self._strides[number])
                parts.append(torch.zeros(num, dtype=torch.float64))
            else:
                parts.append(seen.cpu().double() / passes)
        self._gradients[self._part] = torch.cat(parts)
        self._outputs[self._part] = self._watch.take()

    def _differences(self) -> list[float] | None:
        """See `loss_of`."""
        if self._watch.compiled:
            return None
        whole, half = self._outputs[WHOLE], self._num_samples // 2
        shares = [
            self._watch.differ(whole, self._outputs[part], start)
            for part, start in ((AGAIN, 0), (FIRST, 0), (SECOND, half))
        ]
        known = [share for share in shares if share is not None]
        return known if len(known) == len(shares) else None

    def _arrival(self, number: int) -> Callable[[torch.Tensor], None]:
        def arrived(gradient: torch.Tensor) -> None:
            if gradient.is_sparse:
                self._reason = "gradients are sparse"
                return
            with torch.no_grad():
                seen = gradient.detach().reshape(-1)[:: self._strides[number]].float().clone()
                before = self._sums.get(number)
                self._sums[number] = seen if before is None else before + seen
            self._passes[number] = self._passes.get(number, 0) + 1

        return arrived

    def _hold(self, optimizer: Optimizer, _args: Any, _kwargs: Any) -> None:
        """Nothing is learnt. A step() that calls that of the class above it comes here twice."""
        depth, rates = self._held.get(id(optimizer), (0, []))
        if not depth:
            rates = [(group, group.get("lr")) for group in optimizer.param_groups]
            for group, rate in rates:
                if rate is None:  # it finds its rate itself
                    for parameter in group["params"]:
                        parameter.grad = None
                else:
                    is_tensor = isinstance(rate, torch.Tensor)
                    group["lr"] = torch.zeros_like(rate) if is_tensor else 0.0
        self._held[id(optimizer)] = (depth + 1, rates)

    def _let_go(self, optimizer: Optimizer, _args: Any, _kwargs: Any) -> None:
        depth, rates = self._held.pop(id(optimizer), (0, []))
        if depth > 1:
            self._held[id(optimizer)] = (depth - 1, rates)
            return
        for group, rate in rates:
            if rate is not None:
                group["lr"] = rate


def _refused(parameters: list[torch.Tensor]) -> str:
    """Why their gradients would not say anything; empty where they would."""
    if not parameters:
        return "no parameter that trains was found"
    if any(parameter._backward_hooks for parameter in parameters):
        return "hooks of the script change its gradients"
    if any(parameter.is_complex() for parameter in parameters):
        return "parameters are complex numbers"
    if any(type(parameter.data).__name__ == "DTensor" for parameter in parameters):
        return "the parameters are sharded; no process holds a whole gradient"
    return ""
