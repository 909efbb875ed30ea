"""Norms of small and large gradients, taken from a training as it goes: the noise scale's input.

A hook on each parameter sees the gradient of one backward pass on one rank before it is added to
`.grad`; a callback at the end of the pass sees `.grad` itself: the sum over the micro-batches so
far and, where DistributedDataParallel has reduced it, the mean over the ranks. Both come before
clipping and unscaling, and a common factor (a loss scale, a division by the micro-batches) cancels
in the ratio that is wanted. Other ranks are not asked: the mean square of this rank's gradients
has the same expectation as theirs.
"""

from __future__ import annotations

import contextlib
import functools
import gc
from collections import Counter, deque
from collections.abc import Iterable
from math import isfinite
from typing import Any

import torch

from ...records import Record

MAX_NORM_PAIRS = 400
"""Measured steps that are kept; older ones tell of an older scale."""
MAX_SIZE_PAIRS = 8
"""Pairs of sizes that are kept apart: the short batches of epochs' ends, a growing schedule."""
MAX_PENDING_NORMS = 32
"""Measured steps whose values may wait on the device before they are read."""


class Pairs(Record, frozen=True, kw_only=True):
    """Norms of small and large gradients, a pair a step.

    Attributes:
        small_batch: samples behind a small gradient.
        multiple: small gradients in a large one, over micro-batches and ranks.
        first_step, last_step: the steps between which the pairs lie.
        squares: mean square of the small gradients, square of the large one.
    """

    small_batch: int
    multiple: int
    first_step: int
    last_step: int
    squares: tuple[tuple[float, float], ...]


class NoiseMeter:
    """Measures one step in `every`.

    Args:
        parameters: those that train.
        every: steps from one that is measured to the next.

    Attributes:
        next_step: number of steps after which `boundary` wants to be called.
        ranks: processes whose mean `.grad` holds.
        unavailable: why nothing can be measured; empty if something can.
    """

    def __init__(self, parameters: Iterable[torch.nn.Parameter], every: int) -> None:
        self._parameters = [parameter for parameter in parameters if parameter.requires_grad]
        self._every = every
        self._armed = False
        self._small: list[torch.Tensor] = []
        self._large: torch.Tensor | None = None
        self._arrivals = [0] * len(self._parameters)
        self._queued = False
        self._pending: list[tuple[torch.Tensor, torch.Tensor, int, tuple[int, int]]] = []
        self._pairs: dict[tuple[int, int], deque[tuple[int, float, float]]] = {}
        self.next_step = 0
        self.ranks = _ranks(self._parameters)
        self.unavailable = _refused(self._parameters)
        self._handles: list[Any] = []
        if not self.unavailable:
            self._handles = [
                _hooked(parameter, functools.partial(self._arrived, place))
                for place, parameter in enumerate(self._parameters)
            ]

    def boundary(self, num_steps: int, batch_size: int | None, *, even: bool) -> None:
        """Between two steps: books the one that was measured, and arms the next if it is its turn.

        Args:
            num_steps: made so far.
            batch_size: samples of each micro-batch of the step that is over.
            even: whether all of them had that size.
        """
        if self._armed:
            self._armed = False
            self._book(num_steps, batch_size if even else None)
            self.next_step = num_steps - 1 + self._every
        if not self.unavailable and num_steps >= self.next_step:
            self._small, self._large = [], None
            self._arrivals = [0] * len(self._parameters)
            self._queued = False  # a pass that raised never called what it was given
            self._armed = True
            self.next_step = num_steps + 1

    def found(self) -> Pairs | None:
        """The pairs of the sizes that were measured most often. Waits for the device."""
        self._read()
        key = max(self._pairs, key=lambda sizes: len(self._pairs[sizes]), default=None)
        if key is None:
            return None
        small, multiple = key
        rows = self._pairs[key]
        return Pairs(
            small_batch=small,
            multiple=multiple,
            first_step=rows[0][0],
            last_step=rows[-1][0],
            squares=tuple((small_square, large_square) for _, small_square, large_square in rows),
        )

    def close(self) -> None:
        """Takes the hooks away."""
        for handle in self._handles:
            handle.remove()
        self._handles = []
        self._parameters, self._small, self._large = [], [], None
        self._armed = False

    def _arrived(self, place: int, gradient: torch.Tensor) -> None:
        if not self._armed:
            return
        self._arrivals[place] += 1
        if not self._queued:
            self._queued = True
            # Runs when the pass is over; queued again from there it runs after the reducer's own.
            _queue(lambda: _queue(self._passed))
        with torch.no_grad():
            self._small.append(_square(gradient))

    def _passed(self) -> None:
        self._queued = False
        if not self._armed:
            return
        with torch.no_grad():
            squares = [
                _square(parameter.grad)
                for parameter in self._parameters
                if parameter.grad is not None
            ]
            self._large = torch.stack(squares).sum() if squares else None

    def _passes(self) -> int:
        """Backward passes of the step: as many as most parameters got gradients.

        A checkpoint that is re-entrant makes passes of its own inside of one.
        """
        counts = Counter(count for count in self._arrivals if count)
        return counts.most_common(1)[0][0] if counts else 0

    def _book(self, step: int, batch_size: int | None) -> None:
        small, large, passes = self._small, self._large, self._passes()
        self._small, self._large = [], None
        multiple = passes * self.ranks
        if batch_size is None or large is None or not small or multiple < 2:
            return
        local = torch.stack(small).sum() / passes
        self._pending.append((local, large / passes**2, step, (batch_size, multiple)))
        if len(self._pending) >= MAX_PENDING_NORMS:
            self._read()

    def _read(self) -> None:
        for local, large, step, key in self._pending:
            small_square, large_square = float(local), float(large)
            # An overflow under a gradient scaler is skipped by it, and here.
            if not (isfinite(small_square) and isfinite(large_square)):
                continue
            if key not in self._pairs and len(self._pairs) < MAX_SIZE_PAIRS:
                self._pairs[key] = deque(maxlen=MAX_NORM_PAIRS)
            if key in self._pairs:
                self._pairs[key].append((step, small_square, large_square))
        self._pending.clear()


def _hooked(parameter: Any, function: Any) -> Any:
    return parameter.register_hook(function)


def _square(tensor: torch.Tensor) -> torch.Tensor:
    if tensor.is_sparse:
        tensor = tensor.coalesce().values()
    norm: torch.Tensor = torch.linalg.vector_norm(tensor.detach(), dtype=torch.float32)
    return norm.double().square()


def _queue(function: Any) -> None:
    torch.autograd.Variable._execution_engine.queue_callback(function)


def _ranks(parameters: list[torch.nn.Parameter]) -> int:
    """Processes whose gradients are averaged, by the wrapper that holds these parameters."""
    from torch.nn.parallel import DistributedDataParallel

    if not (torch.distributed.is_available() and torch.distributed.is_initialized()):
        return 1
    wanted = {id(parameter) for parameter in parameters}
    for thing in gc.get_objects():
        if issubclass(type(thing), DistributedDataParallel):
            with contextlib.suppress(RuntimeError):
                if any(id(parameter) in wanted for parameter in thing.parameters()):
                    return torch.distributed.get_world_size(thing.process_group)
    return 1


def _refused(parameters: list[torch.nn.Parameter]) -> str:
    if not parameters:
        return "no parameter that trains was found"
    for parameter in parameters:
        name = type(parameter).__name__
        if name in ("DTensor", "FlatParameter") or type(parameter.data).__name__ == "DTensor":
            return "the parameters are sharded; no rank holds a whole gradient"
    return ""
