"""Plain values that a function of the user's can reach: counters, settings, lists of losses."""

from __future__ import annotations

import functools
import inspect
import random
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from copy import deepcopy
from types import FunctionType, ModuleType
from typing import Any, NamedTuple

import torch

PLAIN_TYPES = (bool, int, float, complex, str, bytes, type(None))
MAX_PLAIN_ITEMS = 1_000_000
"""Items of a list that are looked at, at most."""


class Place(NamedTuple):
    """Where a value has its name.

    Attributes:
        called: as the user wrote it.
        get, put: read it and write it; `get` raises where there is no value.
    """

    called: str
    get: Callable[[], Any]
    put: Callable[[Any], None]


class PlainValues:
    """What the places held that functions and objects can reach, as far as it is plain.

    Numbers, text, lists, mappings and queues of them, and random generators. Anything else may be
    shared with something that is not seen.

    Args:
        functions: of the user: the names that they read, and what a method belongs to.
        owners: whose attributes count.
    """

    def __init__(self, functions: Iterable[Any], owners: Iterable[Any] = ()) -> None:
        self._plain: list[tuple[Place, Any]] = []
        self._lists: list[tuple[Any, Any]] = []
        self._lengths: list[tuple[str, Any, int]] = []
        self._iterators: list[str] = []
        self._restores: list[Callable[[], Any]] = []
        self._seen: set[int] = set()
        for function in functions:
            self._look_at_function(function)
        for owner in owners:
            self._look_at_attributes(owner)

    def restore(self) -> None:
        """Puts them back where a plain value stands now."""
        for place, value in self._plain:
            try:
                now = place.get()
            except (ValueError, KeyError):
                continue
            if isinstance(now, PLAIN_TYPES) and now is not value:
                place.put(value)
        for items, before in self._lists:
            items.clear()
            (items.update if isinstance(items, dict) else items.extend)(before)
        for restore in self._restores:
            restore()

    def not_restored(self) -> Iterator[str]:
        """What cannot be put back, in words."""
        for called, items, length in self._lengths:
            if len(items) != length:
                yield f"{called} had {length} items before the steps and has {len(items)} now"
        for called in dict.fromkeys(self._iterators):
            yield f"{called} is an iterator: what the steps took from it is gone"

    def _keep(self, place: Place) -> None:
        try:
            value = place.get()
        except (ValueError, KeyError):  # a name without a value
            return
        if isinstance(value, PLAIN_TYPES):
            self._plain.append((place, value))
        elif id(value) in self._seen:
            return
        elif type(value) in (list, dict, deque):
            self._seen.add(id(value))
            parts = value.values() if isinstance(value, dict) else value
            if len(value) <= MAX_PLAIN_ITEMS and all(
                isinstance(part, PLAIN_TYPES) for part in parts
            ):
                self._lists.append((value, value.copy()))
            else:
                self._lengths.append((place.called, value, len(value)))
        elif isinstance(value, FunctionType):
            self._look_at_function(value)
        elif (restore := restorer(value)) is not None:
            self._restores.append(restore)
        elif hasattr(type(value), "__next__"):
            self._iterators.append(place.called)
        elif _is_of_the_user(value):
            self._look_at_attributes(value)

    def _look_at_function(self, function: Any) -> None:
        while isinstance(function, functools.partial):
            function = function.func
        owner = getattr(function, "__self__", None)
        plain = getattr(function, "__func__", function)
        if not hasattr(plain, "__code__"):  # an object that is called
            owner = function
            plain = inspect.getattr_static(type(function), "__call__", None)
        if owner is not None:
            self._look_at_attributes(owner)
        code = getattr(plain, "__code__", None)
        if code is None or id(plain) in self._seen:
            return
        self._seen.add(id(plain))
        cells = getattr(plain, "__closure__", None) or ()
        for name, cell in zip(code.co_freevars, cells, strict=False):
            self._keep(_in_cell(name, cell))
        names = getattr(plain, "__globals__", {})
        for name in filter(names.__contains__, code.co_names):
            self._keep(_in_mapping(name, names, name))

    def _look_at_attributes(self, owner: Any) -> None:
        names = getattr(owner, "__dict__", None)
        if not isinstance(names, dict) or id(owner) in self._seen:
            return
        self._seen.add(id(owner))
        for name in list(names):
            self._keep(_in_mapping(f"{type(owner).__name__}.{name}", names, name))


def restorer(generator: Any) -> Callable[[], Any] | None:
    """Puts a random generator back to its present state; `None` for any other object."""
    if isinstance(generator, torch.Generator):
        return functools.partial(generator.set_state, generator.get_state())
    if isinstance(generator, random.Random):
        return functools.partial(generator.setstate, generator.getstate())
    numpy: Any = sys.modules.get("numpy")
    if numpy is not None and isinstance(generator, numpy.random.Generator):
        bits = generator.bit_generator
        return functools.partial(setattr, bits, "state", deepcopy(bits.state))
    return None


def _is_of_the_user(value: Any) -> bool:
    """Whether its attributes may count steps: no class, no module, nothing of torch or Python."""
    if isinstance(value, (type, ModuleType)):
        return False
    where = type(value).__module__.partition(".")[0]
    return where not in ("torch", "builtins", "numpy") and where not in sys.stdlib_module_names


def _in_cell(name: str, cell: Any) -> Place:
    return Place(
        name,
        lambda: cell.cell_contents,
        lambda value: setattr(cell, "cell_contents", value),
    )


def _in_mapping(called: str, names: dict[str, Any], name: str) -> Place:
    return Place(called, lambda: names[name], lambda value: names.__setitem__(name, value))
