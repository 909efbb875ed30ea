"""Losses and gradients of a few steps, by which two processes are compared.

Nothing is read in timed steps: of the last loss only the tensor is kept, and looked at between two
trials.
"""

from __future__ import annotations

import functools
import os
import time
import zlib
from collections.abc import Iterator, Sequence
from statistics import median
from typing import TYPE_CHECKING, Any

import torch
from torch.utils.data.dataloader import _BaseDataLoaderIter

from ....probes.loader.loader_handle import is_training_fetch
from ....probes.source.call_site import user_call_site
from ....probes.windows.optimizer_hooks import listen
from ....records import SourceLine
from ..settings import Kept, Step

if TYPE_CHECKING:
    from .in_force import InForce

MOST_STEPS = 6
"""Batches whose numbers are kept, before what needs a model is in force, and again after."""
SAMPLED_ELEMENTS = 65_536
"""Elements of all gradients together that are kept of a step."""
MOST_DIGESTED = 1 << 22
"""Bytes of a batch that are looked at."""


class Numbers:
    """Keeps the numbers of the first steps, and times the optimizer in them.

    Attributes:
        backward_place: the line of the first backward pass.
    """

    def __init__(self) -> None:
        self.backward_place: SourceLine | None = None
        self._steps: list[Step] = []
        self._now: Step | None = None
        self._losses: list[torch.Tensor] = []
        self._left = MOST_STEPS
        self._begun = False
        self._parameters: Sequence[torch.Tensor] = ()
        self._device = torch.device("cpu")
        self._fetched_s = self._stepping_s = 0.0
        self._optimizing_s = 0.0
        self._shares: list[float] = []
        self._last: torch.Tensor | None = None

    @property
    def optimizer_share(self) -> float | None:
        """Share of a step that the optimizer took, 0..1; the first step makes its state."""
        return median(self._shares[1:]) if len(self._shares) > 1 else None

    def install(self) -> None:
        """Puts the hooks in place."""
        pid = os.getpid()
        iterators: Any = _BaseDataLoaderIter
        native_next = iterators.__next__
        autograd: Any = torch.autograd
        native_backward = autograd._engine_run_backward

        @functools.wraps(native_next)
        def iterator_next(iterator: Any) -> Any:
            batch = native_next(iterator)
            watches = self._left or self._now is not None
            if watches and os.getpid() == pid and is_training_fetch():
                self._fetched(batch)
            return batch

        @functools.wraps(native_backward)
        def run_backward(outputs: Any, *args: Any, **kwargs: Any) -> Any:
            outermost = torch._C._current_graph_task_id() == -1
            if outermost and os.getpid() == pid and kwargs.get("accumulate_grad", False):
                self._losing(outputs)
            return native_backward(outputs, *args, **kwargs)

        iterators.__next__ = iterator_next
        autograd._engine_run_backward = run_backward
        listen(self._before_step, self._after_step)

    def begin(self, parameters: Sequence[torch.Tensor], device: torch.device) -> None:
        """What needs a model is in force: its steps are kept as well."""
        self._close()
        self._parameters, self._device = parameters, device
        self._left, self._begun = MOST_STEPS, True

    def kept(self, in_force: InForce) -> Kept:
        """All that was kept so far."""
        self._close()
        self._left = 0
        last = None if self._last is None else _read([self._last])
        return in_force.with_facts(Kept(steps=tuple(self._steps), last_loss=last))

    # inside ----------------------------------------------------------------------------------

    def _fetched(self, batch: Any) -> None:
        self._synchronize()
        self._close()
        if not self._left:
            return
        self._left -= 1
        self._fetched_s, self._optimizing_s = time.perf_counter(), 0.0
        self._now = Step(digest=digest_of(batch), loss=None, begun=self._begun)

    def _close(self) -> None:
        """The step that went on is over."""
        if self._now is None:
            return
        took_s = time.perf_counter() - self._fetched_s
        if self._begun and self._optimizing_s and took_s > 0:
            self._shares.append(min(1.0, self._optimizing_s / took_s))
        loss = _read(self._losses)
        now, self._now, self._losses = self._now, None, []
        self._steps.append(
            Step(digest=now.digest, loss=loss, gradients=now.gradients, begun=now.begun)
        )

    def _losing(self, outputs: Any) -> None:
        losses = [
            output.detach()
            for output in (outputs if isinstance(outputs, (tuple, list)) else (outputs,))
            if isinstance(output, torch.Tensor) and output.numel() == 1
        ]
        if losses:
            self._last = losses[0]
        if self._now is not None:
            self.backward_place = self.backward_place or user_call_site()
            self._losses += [loss.clone() for loss in losses]

    def _before_step(self, *_: Any) -> None:
        if self._now is None:
            return
        self._synchronize()
        if self._parameters:
            gradients = sampled(self._parameters)
            self._now = Step(
                digest=self._now.digest, loss=None, gradients=gradients, begun=self._begun
            )
        self._stepping_s = time.perf_counter()

    def _after_step(self, *_: Any) -> None:
        if self._now is None:
            return
        self._synchronize()
        self._optimizing_s += time.perf_counter() - self._stepping_s

    def _synchronize(self) -> None:
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)


def _read(losses: Sequence[torch.Tensor]) -> float | None:
    return sum(float(loss.float()) for loss in losses) if losses else None


def tensors_in(thing: Any) -> Iterator[torch.Tensor]:
    """The tensors of a batch, however it holds them."""
    if isinstance(thing, torch.Tensor):
        yield thing
    elif isinstance(thing, dict) or hasattr(thing, "values"):
        for value in thing.values():
            yield from tensors_in(value)
    elif isinstance(thing, (list, tuple)):
        for value in thing:
            yield from tensors_in(value)


def digest_of(batch: Any) -> int:
    """The number by which the same batch is known again."""
    digest = 0
    for tensor in tensors_in(batch):
        whole = tensor.detach().cpu().contiguous().flatten().view(torch.uint8)
        digest = zlib.crc32(whole[:MOST_DIGESTED].numpy().tobytes(), digest)
    return digest


def sampled(parameters: Sequence[torch.Tensor]) -> bytes:
    """Elements of the gradients, evenly over all, as float32."""
    total = sum(parameter.numel() for parameter in parameters)
    stride = max(1, -(-total // SAMPLED_ELEMENTS))
    parts = [
        (
            parameter.grad.detach().flatten()[::stride].float().cpu()
            if parameter.grad is not None and not parameter.grad.is_sparse
            else torch.zeros(-(-parameter.numel() // stride))
        )
        for parameter in parameters
    ]
    return torch.cat(parts).numpy().tobytes() if parts else b""
