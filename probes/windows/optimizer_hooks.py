"""Before and after every optimizer's step, for whoever listens; torch has one hook of ours each.

torch walks its hooks while it calls them, and a step may begin or end a trial: who listens here may
come and go meanwhile, which torch's own collections do not allow.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

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


def _before(optimizer: Optimizer, args: Any, kwargs: Any) -> Any:
    for listener in tuple(_listeners):
        changed = listener.before(optimizer, args, kwargs)
        args, kwargs = (args, kwargs) if changed is None else changed
    return args, kwargs


def _after(optimizer: Optimizer, args: Any, kwargs: Any) -> None:
    for listener in tuple(_listeners):
        listener.after(optimizer, args, kwargs)
