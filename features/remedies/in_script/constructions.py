"""Loaders and optimizers as the script makes them: with other arguments where that is tried."""

from __future__ import annotations

import functools
import inspect
import os
import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch.optim import Optimizer
from torch.utils.data import DataLoader

from ....probes.source.call_site import user_call_site
from ....records import SourceLine
from ..settings import LOADER_FIELDS, Joining, Settings
from .ordered import Grouped


class Constructions:
    """What the script made, and the arguments that it is made with.

    Args:
        joining: names the loader that is steered.

    Attributes:
        optimizers: in the order in which they were made, held weakly.
        optimizer_places: where they were made, each line once.
    """

    def __init__(self, joining: Joining) -> None:
        self._settings = joining.settings
        self._place, self._ordinal = joining.place, joining.ordinal
        self._num_loaders = 0
        self._loaders: dict[int, weakref.ref[DataLoader[Any]]] = {}
        self.optimizers: list[weakref.ref[Optimizer]] = []
        self.optimizer_places: list[SourceLine] = []
        self.loader_place: SourceLine | None = None

    @property
    def loader(self) -> DataLoader[Any] | None:
        """The loader that is steered; where it is gone, the last that its line made.

        One line may make several: a function that the loaders of training and of validation
        come from.
        """
        made = {
            number: there for number, ref in self._loaders.items() if (there := ref()) is not None
        }
        return made.get(self._ordinal, next(reversed(made.values()), None))

    def install(self) -> None:
        """Puts the hooks around those of the core, which then see what was really made."""
        self._on_loaders()
        self._on_optimizers()

    # inside ----------------------------------------------------------------------------------

    def _on_loaders(self) -> None:
        kind: Any = DataLoader
        pid, native = os.getpid(), kind.__init__
        signature = inspect.signature(native)

        @functools.wraps(native)
        def loader_init(loader: Any, *args: Any, **kwargs: Any) -> None:
            if os.getpid() != pid:
                native(loader, *args, **kwargs)
                return
            place, ordinal = user_call_site(), self._num_loaders
            self._num_loaders += 1
            wanted = place == self._place if self._place is not None else ordinal == self._ordinal
            if wanted:
                kwargs = with_loader_options(signature, loader, args, kwargs, self._settings)
                args = ()
            native(loader, *args, **kwargs)
            if wanted:
                self._loaders[ordinal], self.loader_place = weakref.ref(loader), place

        kind.__init__ = loader_init

    def _on_optimizers(self) -> None:
        kind: Any = Optimizer
        pid, native = os.getpid(), kind.__init__

        @functools.wraps(native)
        def optimizer_init(optimizer: Any, *args: Any, **kwargs: Any) -> None:
            native(optimizer, *args, **kwargs)
            if os.getpid() == pid:
                self.optimizers.append(weakref.ref(optimizer))
                place = user_call_site()
                if place is not None and place not in self.optimizer_places:
                    self.optimizer_places.append(place)

        kind.__init__ = optimizer_init
        if self._settings.optimizer:
            for each in implemented():
                take_implementation(each, self._settings.optimizer)


def with_loader_options(
    signature: inspect.Signature, loader: Any, args: Any, kwargs: Any, settings: Settings
) -> dict[str, Any]:
    """The arguments of a loader by name, those that are tried among them.

    Without workers there is nothing to prefetch or to keep.
    """
    given = dict(signature.bind(loader, *args, **kwargs).arguments)
    given.pop(next(iter(signature.parameters)))
    given |= given.pop("kwargs", {})
    for name in LOADER_FIELDS:
        value = getattr(settings, name)
        if value is not None:
            given[name] = value
    if not given.get("num_workers"):
        given.pop("prefetch_factor", None)
        given.pop("persistent_workers", None)
    if settings.order:
        given["sampler"] = Grouped(given["dataset"], settings.order)
        given.pop("shuffle", None)
    if settings.widen:
        given["worker_init_fn"] = Widened(given.get("worker_init_fn"), all_cores())
    return given


def all_cores() -> frozenset[int]:
    """Cores that this process may use."""
    return frozenset(os.sched_getaffinity(0))


class Widened:
    """What a data worker does first: it takes all cores back, and then what the script wants.

    Args:
        native: the script's own function.
    """

    def __init__(self, native: Callable[[int], None] | None, cores: frozenset[int]) -> None:
        self._native, self._cores = native, cores

    def __call__(self, number: int) -> None:
        """Runs in the data worker."""
        if self._native is not None:
            self._native(number)
        os.sched_setaffinity(0, self._cores)


def implemented() -> list[type[Optimizer]]:
    """The optimizers of torch that can be told which implementation to take."""
    kinds = (getattr(torch.optim, name) for name in dir(torch.optim))
    return [
        kind
        for kind in kinds
        if isinstance(kind, type)
        and issubclass(kind, Optimizer)
        and "foreach" in inspect.signature(kind).parameters
    ]


def take_implementation(kind: Any, implementation: str) -> None:
    """From now on optimizers of this class of torch take this implementation, if they have it."""
    native: Any = kind.__init__
    signature = inspect.signature(native)
    if implementation not in signature.parameters:
        return

    @functools.wraps(native)
    def init(optimizer: Any, *args: Any, **kwargs: Any) -> None:
        given = dict(signature.bind(optimizer, *args, **kwargs).arguments)
        given.pop(next(iter(signature.parameters)))
        given |= given.pop("kwargs", {})
        for name in ("fused", "foreach"):
            if name in signature.parameters:
                given[name] = None if name != implementation else True
        native(optimizer, **given)

    kind.__init__ = init
