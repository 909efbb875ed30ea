"""Before and after every optimizer's step, for whoever listens; torch has one hook of ours each.

torch walks its hooks while it calls them, and a step may begin or end a trial: who listens here may
come and go meanwhile, which torch's own collections do not allow. A step that goes into a CUDA
graph is no step: it is made whenever the graph is replayed.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import torch
from torch.optim import Optimizer
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)

StepHook = Callable[[Optimizer, Any, Any], Any]
"""A hook as torch calls it, with the step's arguments; one before a step may give others."""


class Listener(NamedTuple):
    """A pair of functions that are called before and after a step."""

    before: StepHook
    after: StepHook

    def remove(self) -> None:
        """Calls them no more, except for the step that is being told of."""
        _listeners[:] = [listener for listener in _listeners if listener is not self]
        while _in_torch and not _listeners:
            _in_torch.pop().remove()


_listeners: list[Listener] = []
_in_torch: list[Any] = []
"""torch's handles of our two hooks. A worker listens from its start to its end (worker/patches):
they come and go in a process of the user's alone, between steps."""


def listen(before: StepHook, after: StepHook) -> Listener:
    """Calls these for each optimizer that steps, until the listener is removed."""
    if not _in_torch:
        _in_torch.extend(
            (register_optimizer_step_pre_hook(_before), register_optimizer_step_post_hook(_after))
        )
    listener = Listener(before, after)
    _listeners.append(listener)
    return listener


def is_captured() -> bool:
    """Tells whether what runs now goes into a CUDA graph. Waits and reads would break it."""
    cuda: Any = torch.cuda
    return bool(cuda.is_initialized() and cuda.is_current_stream_capturing())


def watch_graphs() -> None:
    """Makes each replay of a CUDA graph tell of the optimizers' steps in it.

    For a process that ends with the script.
    """
    graph: Any = torch.cuda.CUDAGraph
    native_end, native_replay = graph.capture_end, graph.replay
    inside: WeakKeyDictionary[Any, tuple[Optimizer, ...]] = WeakKeyDictionary()

    @functools.wraps(native_end)
    def capture_end(self: Any) -> None:
        steps = tuple(_captured)
        _captured.clear()  # also where the capture failed
        native_end(self)
        inside[self] = steps

    @functools.wraps(native_replay)
    def replay(self: Any) -> None:
        steps = inside.get(self, ())
        for optimizer in steps:
            _before(optimizer, (), {})
        native_replay(self)
        for optimizer in steps:
            _after(optimizer, (), {})

    graph.capture_end, graph.replay = capture_end, replay


_captured: list[Optimizer] = []
"""Whose steps the graph holds that is being captured."""


def _before(optimizer: Optimizer, args: Any, kwargs: Any) -> Any:
    if is_captured():
        return args, kwargs
    for listener in tuple(_listeners):
        changed = listener.before(optimizer, args, kwargs)
        args, kwargs = (args, kwargs) if changed is None else changed
    return args, kwargs


def _after(optimizer: Optimizer, args: Any, kwargs: Any) -> None:
    if is_captured():
        _captured.append(optimizer)
        return
    for listener in tuple(_listeners):
        listener.after(optimizer, args, kwargs)
