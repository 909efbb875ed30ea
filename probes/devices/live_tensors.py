"""Which of Python's tensors live, and what holds those that are new.

A look takes about a tenth of a second: the collector's list of all objects is walked, as far as
`live_objects.Bound` allows. Never inside timed steps.
"""

from __future__ import annotations

import gc
import itertools
import sys
import weakref
from collections import Counter, deque
from collections.abc import Mapping
from inspect import CO_OPTIMIZED
from types import FrameType
from typing import Any, NamedTuple

import msgspec
import torch

from ...records import KeptTensors
from .live_objects import Bound, objects_of

MOST_NODES = 20_000
"""Nodes of graphs that are counted at most."""
SEARCHED_TENSORS = 5
"""New tensors whose holder is searched for: each search walks all objects once more."""
LONG_CONTAINER = 8
"""A container with fewer entries is not what keeps a tensor a step."""


class Look(NamedTuple):
    """What lives now: tensors by their ids, bytes of their storages, nodes of their graphs."""

    tensors: dict[int, weakref.ref[torch.Tensor]]
    num_bytes: int
    num_nodes: int

    def has(self, tensor: torch.Tensor) -> bool:
        """Whether it lived then: another may have had the id of one that lives now."""
        then = self.tensors.get(id(tensor))
        return then is not None and then() is tensor


class LiveTensors:
    """Compares what lives now with what lived at the look before.

    Raises:
        LookTooLongError: here and at each look, the process has too many objects for that.
    """

    def __init__(self) -> None:
        self._before = _look(_live(Bound()))

    def since(self, num_steps: int) -> KeptTensors:
        """Compares with the look before: what lives more after `num_steps` steps."""
        bound = Bound()
        tensors = _live(bound)
        before, now = self._before, _look(tensors)
        self._before = now
        new = [tensor for tensor in tensors if not before.has(tensor)]
        more, nodes = len(now.tensors) - len(before.tensors), now.num_nodes - before.num_nodes
        kept = KeptTensors(
            num_steps=num_steps,
            more_tensors=more,
            more_bytes=now.num_bytes - before.num_bytes,
            more_nodes=nodes,
        )
        if max(2 * more, nodes) < num_steps:
            return kept
        if 2 * more < num_steps:
            name = _name_of(_deepest(tensors, bound))
            return msgspec.structs.replace(kept, with_graph=True, holder=name, holder_kind="tensor")
        # Beside what is kept, new ones take the place of others: gradients, a batch.
        graphs = sum(tensor.grad_fn is not None for tensor in new)
        holder = _holder(new, {id(tensors), id(new)}, bound)
        return msgspec.structs.replace(
            kept,
            with_graph=2 * graphs > more,
            holder="" if holder is None else _name_of(holder),
            holder_kind="" if holder is None else type(holder).__name__,
            is_bounded=_is_bounded(holder),
        )


def _live(bound: Bound) -> list[torch.Tensor]:
    """Real ones: torch.compile keeps fake tensors, whose sizes may be symbols."""
    bound.listed()  # a collection takes five times as long
    gc.collect()
    fake = getattr(sys.modules.get("torch._subclasses.fake_tensor"), "FakeTensor", ())
    (tensors,) = objects_of(torch.Tensor, bound=bound)
    return [tensor for tensor in tensors if not issubclass(type(tensor), fake)]


def _look(tensors: list[torch.Tensor]) -> Look:
    storages: dict[int, int] = {}
    for tensor in tensors:
        try:
            storage = tensor.untyped_storage()
            num_bytes = storage.nbytes()
            if type(num_bytes) is int:
                storages[storage._cdata] = num_bytes
        except (RuntimeError, NotImplementedError):
            continue  # sparse, or without a storage of its own
    return Look(
        {id(each): weakref.ref(each) for each in tensors},
        sum(storages.values()),
        _num_nodes(tensors),
    )


def _num_nodes(tensors: list[torch.Tensor]) -> int:
    """Nodes of the graphs behind these, each once."""
    seen: set[Any] = set()
    rest = [tensor.grad_fn for tensor in tensors if tensor.grad_fn is not None]
    while rest and len(seen) < MOST_NODES:
        node = rest.pop()
        if node in seen:
            continue
        seen.add(node)
        rest += [other for other, _ in node.next_functions if other is not None]
    return len(seen)


def _deepest(tensors: list[torch.Tensor], bound: Bound) -> torch.Tensor | None:
    """The tensor with most of the graphs behind it, of those that there is time for."""
    deepest, most = None, 0
    for tensor in tensors:
        if tensor.grad_fn is None:
            continue
        nodes = _num_nodes([tensor])
        if nodes > most:
            deepest, most = tensor, nodes
        if bound.is_over:
            break
    return deepest


def _holder(new: list[torch.Tensor], ours: set[int], bound: Bound) -> Any:
    """The container that holds most of the new tensors, itself or in its entries.

    Args:
        ours: lists that we made.
        bound: each search for a holder walks all objects once more; when it is over, what was found
            by then counts.
    """
    found: Counter[int] = Counter()
    holders: dict[int, Any] = {}
    some = new[:: max(1, len(new) // SEARCHED_TENSORS)][:SEARCHED_TENSORS]
    for tensor in some:
        for holder in _containers(tensor, {*ours, id(some)}, bound):
            found[id(holder)] += 1
            holders[id(holder)] = holder
    return holders[found.most_common(1)[0][0]] if found else None


def _containers(entry: Any, ours: set[int], bound: Bound, depth: int = 2) -> list[Any]:
    """Long lists, dicts, sets and deques that hold it, through short ones as well."""
    answer: list[Any] = []
    if bound.is_over:
        return answer
    for holder in gc.get_referrers(entry):
        if id(holder) in ours or not isinstance(holder, list | dict | set | tuple | deque):
            continue
        if len(holder) >= LONG_CONTAINER and not _is_namespace(holder):
            answer.append(holder)
        elif depth > 1 and len(holder) < LONG_CONTAINER and not _is_namespace(holder):
            answer += _containers(holder, ours, bound, depth - 1)
    return answer


def _is_bounded(holder: Any) -> bool:
    """Whether a container takes only so much: a deque with a length, or what `itertools.cycle`
    keeps of its first pass. Our passes never end, the script's do.
    """
    if isinstance(holder, deque):
        return holder.maxlen is not None
    return any(type(each) is itertools.cycle for each in gc.get_referrers(holder))


def _is_namespace(holder: Any) -> bool:
    return isinstance(holder, dict) and "__name__" in holder and "__builtins__" in holder


def _name_of(wanted: Any) -> str:
    """The script's name for an object: a variable of one of its frames, or an attribute."""
    if wanted is None:
        return ""
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        if not str(frame.f_globals.get("__name__", "")).startswith("batchadvisor"):
            name = _name_among(frame.f_locals, wanted)
            _forget_locals(frame)
            if name:
                return name
        frame = frame.f_back
    main = sys.modules.get("__main__")
    return "" if main is None else _name_among(vars(main), wanted)


def _name_among(variables: Mapping[str, Any], wanted: Any) -> str:
    for name, value in list(variables.items()):
        if value is wanted:
            return str(name)
        for attribute, inner in _attributes(value):
            if inner is wanted:
                return f"{name}.{attribute}"
    return ""


def _forget_locals(frame: FrameType) -> None:
    """Up to Python 3.12 a frame keeps the dict that it was asked for, and all tensors in it alive.

    A dict that the script has by `locals()` is the same one, and stays as it is.
    """
    held = frame.f_locals
    ours = 3  # the frame, this variable and the argument below
    is_copy = frame.f_code.co_flags & CO_OPTIMIZED and isinstance(held, dict)
    if is_copy and sys.getrefcount(held) <= ours:
        held.clear()


def _attributes(value: Any) -> list[tuple[str, Any]]:
    """Names and values of an object's own attributes."""
    space = getattr(value, "__dict__", None) if not isinstance(value, type) else None
    return list(space.items()) if isinstance(space, dict) else []
