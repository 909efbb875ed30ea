"""The data that the script gave `Model.fit`, cut so that every batch has the size asked for."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any

from torch.utils.data import DataLoader

from ...records import BatchSizeSource
from ..loader.loader_handle import LoaderHandle
from .script_watch import ScriptWatch


class NotSizedError(Exception):
    """The size of these batches is not `fit`'s to choose."""


class FitData:
    """The data of one call of `fit`.

    Attributes:
        batch_size: of a loader; `None` where `fit` takes it.
        num_samples: of an epoch.
    """

    def __init__(self, arguments: Mapping[str, Any], handle: LoaderHandle | None) -> None:
        self._handle = handle
        self._data = {name: arguments[name] for name in ("x", "y", "sample_weight")}
        self.batch_size: int | None = None
        self.num_samples: int | None
        self.drop_last = False
        self.iterable = False
        self.num_workers = 0
        self.source: BatchSizeSource | None = None
        if handle is None:
            length = min(_leaves_lengths(self._data["x"]))
            # Keras cuts the validation part off the end of the arrays.
            self.num_samples = length - int(length * (arguments["validation_split"] or 0.0))
        else:
            info = handle.info()
            self.batch_size, self.num_samples = info.batch_size, info.num_samples
            self.drop_last, self.num_workers = info.drop_last, info.num_workers
            self.iterable = info.iterable
            self.source = info.source

    def arguments(self, size: int) -> dict[str, Any]:
        """Keyword arguments of `fit` that make batches of `size` and no other."""
        if self._handle is not None:
            self._handle.ask(size)
            return dict(self._data)
        assert self.num_samples is not None
        count = self.num_samples // size * size
        if count:
            # The first `count` samples: a view of arrays, no copy.
            cut = {
                name: _map(lambda array: array[:count], value) for name, value in self._data.items()
            }
        else:
            cut = {name: _map(_repeated(size), value) for name, value in self._data.items()}
        return {**cut, "batch_size": size}


def fit_data(arguments: Mapping[str, Any], watch: ScriptWatch) -> FitData:
    """The data of a call.

    Args:
        arguments: of `fit`, by name.
        watch: knows the DataLoaders.

    Raises:
        NotSizedError: they come from something that makes batches itself.
    """
    x = arguments["x"]
    if isinstance(x, DataLoader):
        handle = watch.handle_of(x)
        if handle is None or handle.cannot_steer:
            reason = handle.cannot_steer if handle is not None else "it is not known"
            raise NotSizedError(f"gets a DataLoader that cannot be steered: {reason}")
        return FitData(arguments, handle)
    try:
        lengths = _leaves_lengths(x)
    except TypeError:
        lengths = []
    if not lengths or min(lengths) < 1:
        kind = type(x).__name__
        raise NotSizedError(f"gets its batches from {kind}, which makes them itself")
    return FitData(arguments, None)


def _leaves_lengths(value: Any) -> list[int]:
    """First lengths of the arrays in a nest of lists and dictionaries.

    Raises:
        TypeError: something in it is no array.
    """
    if isinstance(value, Mapping):
        return [length for part in value.values() for length in _leaves_lengths(part)]
    if isinstance(value, (list, tuple)):
        return [length for part in value for length in _leaves_lengths(part)]
    if not hasattr(value, "shape") or not hasattr(value, "__getitem__") or not len(value.shape):
        raise TypeError(type(value).__name__)
    return [int(value.shape[0])]


def _map(function: Callable[[Any], Any], value: Any) -> Any:
    if value is None:
        return None
    if isinstance(value, Mapping):
        return {name: _map(function, part) for name, part in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_map(function, part) for part in value)
    return function(value)


def _repeated(size: int) -> Callable[[Any], Any]:
    """Makes `size` samples of fewer."""

    def repeat(array: Any) -> Any:
        np = sys.modules["numpy"]  # Keras has loaded it
        plain = np.asarray(array)
        return plain[np.arange(size) % len(plain)]

    return repeat
