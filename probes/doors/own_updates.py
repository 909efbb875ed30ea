"""Training without an optimizer of torch's: forward, backward, the script writes its parameters.

Each backward pass is seen on its way into autograd's engine. When the next one begins, or the next
batch is fetched, the parameters that it reached have other values, or they have not yet: then
gradients accumulate. Once the loop is known the passes are counted, and no value is read any more.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from typing import Any

import torch

from ..source.call_site import user_call_site
from .optimizers import ScriptUpdate

SHOWN_VALUES = 256
"""Values of each parameter that are compared, at most."""
MOST_LEAF_NODES = 200_000
"""Nodes of a graph that are looked at, at most; a model of any size has fewer."""
MOST_PASSES = 1000
"""Passes without an update after which those that come are looked at as if they were the first."""
_PLAIN = (torch.Tensor, torch.nn.Parameter)
"""Others may be spread over devices, or have no contents."""


class OwnUpdates:
    """Finds the script's own updates, told of every backward pass and fetch.

    Attributes:
        num_passes: backward passes since somebody set it to 0.
    """

    def __init__(self) -> None:
        self.num_passes = 0
        self._update: ScriptUpdate | None = ScriptUpdate()
        self._num_since = self._num_each = 0
        self._before: dict[int, _Values] = {}
        self._earlier: dict[int, _Values] = {}

    def stop(self) -> None:
        """An optimizer steps, or a framework's loop runs: that tells where a step ends."""
        self._update = None
        self._before, self._earlier = {}, {}

    def made(self, *, known: bool) -> ScriptUpdate | None:
        """The update that was made since the last backward pass.

        Args:
            known: the training loop was found; updates come after as many passes as before.
        """
        update = self._update
        if update is None or not self._num_since:
            return None
        if known:
            if self._num_since < self._num_each:
                return None
            self._num_since = 0
            return update
        changed = [values for values in self._before.values() if values.changed]
        if not changed and self._num_since < MOST_PASSES:
            return None
        trained = [one for one in map(self._trained, self._before.values()) if one is not None]
        is_update = any(self._trained(values) is not None for values in changed)
        update.param_groups[0]["params"], self._num_each = trained, self._num_since
        self._num_since, self._earlier, self._before = 0, self._before, {}
        return update if is_update else None

    def begins(self, outputs: Any, inputs: Any, *, accumulates: bool, known: bool) -> None:
        """A backward pass begins.

        Args:
            outputs: what it starts at.
            inputs: what gradients are asked for; all leaves where none are named.
            accumulates: gradients go into `grad`; else they are returned.
            known: see `made`.
        """
        if not accumulates and not _are_trained(inputs):
            return  # a penalty on a gradient, an attack: the step's own pass is still to come
        self.num_passes += 1
        if self._update is None:
            return
        self._num_since += 1
        if known:
            return
        self._update.place = self._update.place or user_call_site()
        for leaf in inputs or _leaves_of(outputs):
            known_before = self._before.get(id(leaf))
            if type(leaf) not in _PLAIN or not leaf.is_leaf:
                continue
            if known_before is None or known_before.parameter() is not leaf:
                self._before[id(leaf)] = _Values(leaf)

    def _trained(self, values: _Values) -> torch.Tensor | None:
        """The parameter, if it is one: an input that an attack changes is not reached again."""
        one = values.parameter()
        earlier = self._earlier.get(id(one))
        again = earlier is not None and earlier.parameter() is one
        return one if again or isinstance(one, torch.nn.Parameter) else None


class _Values:
    """Some values of a parameter, as they were before a backward pass."""

    def __init__(self, parameter: torch.Tensor) -> None:
        self.parameter = weakref.ref(parameter)
        self._values = _some_of(parameter)

    @property
    def changed(self) -> bool:
        parameter = self.parameter()
        return parameter is not None and not torch.equal(_some_of(parameter), self._values)


def _some_of(parameter: torch.Tensor) -> torch.Tensor:
    values = parameter.detach().reshape(-1)
    return values[:: -(-values.numel() // SHOWN_VALUES) | 1].clone()


def _are_trained(inputs: Any) -> bool:
    """Whether returned gradients are those of what a script trains."""
    named = any(isinstance(one, torch.nn.Parameter) for one in inputs)
    return (named or len(inputs) > 1) and all(getattr(one, "is_leaf", False) for one in inputs)


def _leaves_of(outputs: Iterable[Any]) -> list[torch.Tensor]:
    """Tensors in which the gradients of these outputs accumulate."""
    queue = [getattr(output, "grad_fn", None) for output in outputs]
    seen: set[Any] = set()
    leaves = []
    while queue and len(seen) < MOST_LEAF_NODES:
        node = queue.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        leaf = getattr(node, "variable", None)
        if isinstance(leaf, torch.Tensor):
            leaves.append(leaf)
        queue += [following for following, _ in node.next_functions]
    return leaves
