"""Stands in for a batch sampler: batches of indices of any size, for ever."""

from __future__ import annotations

import contextlib
import functools
from collections import deque
from collections.abc import Iterator
from copy import deepcopy
from itertools import islice
from typing import Any, Protocol

from torch.utils.data import BatchSampler

from .budgets import Budget
from .chosen_batches import ChosenBatches
from .one_pass import next_of_own
from .remade_samplers import follows, remade
from .sample_lengths import SampleLengths

_MAX_SKIPPED = 1000
"""Batches of another size that a resized batch sampler may yield in a row."""


class Demand(Protocol):
    """The size that a loader is asked for at the moment.

    Attributes:
        iterable: its samples come as a stream, whatever indices are drawn.
    """

    iterable: bool

    @property
    def asked(self) -> int | None:
        """The batch size; `None` while the script gets what it asked for itself."""

    @property
    def cap(self) -> int | None:
        """A bound on the script's own batches."""

    @property
    def approximate(self) -> bool:
        """Whether batches of the script's own batch sampler are flattened and cut again."""

    @property
    def remakes(self) -> bool:
        """Whether the script's own batch sampler is made anew for each size."""

    @property
    def budget(self) -> Budget | None:
        """How the script's own batch sampler takes a budget, where sizes are budgets."""

    @property
    def sample_lengths(self) -> SampleLengths:
        """How long the samples are."""

    def note_flattened(self) -> None:
        """From now on they are: the batch sampler does not follow its own size."""

    @property
    def chosen(self) -> ChosenBatches:
        """The batches of chosen lengths that a trial begins with."""


class SteeredBatchSampler(BatchSampler):
    """Stands in for a loader's batch sampler; its length stays the script's own.

    Made by `steered`. Its class is called by frameworks that make a batch sampler anew, around
    another sampler: it takes what the class of the script's own takes.
    """

    _native: Any
    _handle: Demand

    @property
    def native(self) -> Any:
        """The script's own batch sampler."""
        return self._native

    @property
    def handle(self) -> Demand:
        """The handle whose sizes it takes."""
        return self._handle

    def __len__(self) -> int:
        return len(self._native)

    def __iter__(self) -> Iterator[list[Any]]:
        return Issues(self._native, self._handle)

    def __getattr__(self, name: str) -> Any:
        if name in ("_native", "_handle"):
            raise AttributeError(name)
        return getattr(self._native, name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._native, name, value)

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        """The script's own class, for its `isinstance`; `type` tells what this is."""
        return type(self._native)

    def __reduce__(self) -> tuple[Any, ...]:
        """Another process gets the script's own: it has no handle, or makes its own."""
        return _itself, (self._native,)

    def __deepcopy__(self, memo: dict[int, Any]) -> SteeredBatchSampler:
        return steered(deepcopy(self._native, memo), self._handle)


def steered(native: Any, handle: Demand) -> SteeredBatchSampler:
    """A stand-in for a batch sampler of the script's."""

    def make(cls: Any, *args: Any, **named: Any) -> SteeredBatchSampler:
        return _filled(cls, type(native)(*args, **named), handle)

    @functools.wraps(type(native).__init__)
    def init(_self: Any, *_args: Any, **_named: Any) -> None:
        """All is done; it is here for its signature, which Lightning reads."""

    members = {"__new__": make, "__init__": init, "__doc__": SteeredBatchSampler.__doc__}
    return _filled(type("SteeredBatchSampler", (SteeredBatchSampler,), members), native, handle)


def _filled(kind: Any, native: Any, handle: Demand) -> SteeredBatchSampler:
    # Past __init__: a framework may have wrapped it to remember its arguments.
    sampler: SteeredBatchSampler = object.__new__(kind)
    sampler.__dict__.update(_native=native, _handle=handle)
    return sampler


def _itself(native: Any) -> Any:
    return native


class Issues(Iterator[list[Any]]):
    """One pass over the index batches; remembers what it issued and under which size."""

    def __init__(self, native: Any, handle: Demand) -> None:
        self._native = native
        self._handle = handle
        # Started here, as the loader would: it may draw from the random generator.
        self._native_pass = iter(native)
        self._stream: Iterator[Any] | None = None
        # A pass for each size, which goes on when its turn comes again: begun anew with every
        # change of size, it would show the first batches of an epoch and no others.
        self._passes: dict[int, tuple[Any, Iterator[Any]]] = {}
        self._current: int | None = None
        self._remade: dict[int, Any] = {}
        self.issued: deque[tuple[int | None, int]] = deque()

    def __next__(self) -> list[Any]:
        asked = self._handle.asked
        if asked is None:
            batch: list[Any] = next_of_own(self._native, self._native_pass)
            if self._handle.cap is not None:
                with contextlib.suppress(TypeError, LookupError):  # a single index, or of a kind
                    batch = batch[: self._handle.cap]
        else:
            batch = self._chosen(asked) or self._usual(asked)
        self.issued.append((asked, num_in(batch)))
        return batch

    def _chosen(self, size: int) -> Any:
        """A batch that a trial begins with; empty where it begins as the script would."""
        chosen, budget = self._handle.chosen, self._handle.budget
        if not chosen.wanted or self._handle.iterable:
            return []
        own: Any = None
        if budget is not None:
            own = budget.batches(self._native, size, self._handle.sample_lengths)
        elif type(self._native) is not BatchSampler and not self._handle.approximate:
            own = (batch for batch in self._of_size(size) if len(batch) == size)
            self._current = None  # its size may be another one now
        return chosen.batch(
            size,
            self._handle.sample_lengths,
            self._indices(),
            own,
            is_budget=budget is not None,
        )

    def _usual(self, size: int) -> Any:
        """A batch as the script's own sampler would make it of this size."""
        if self._handle.budget is not None:
            return self._by_budget(self._handle.budget, size)
        if type(self._native) is BatchSampler or self._handle.approximate:
            return self._chunk(size)
        return self._resize(size)

    def _by_budget(self, budget: Budget, size: int) -> Any:
        """The next batch of the script's own batch sampler under another budget, for ever."""
        if self._current != size:
            source: Any = budget.batches(self._native, size, self._handle.sample_lengths)
            self._take_up(size, source)
        for _ in range(2):
            source, batches = self._passes[size]
            for batch in batches:
                if num_in(batch):
                    return batch
            self._passes[size] = (source, iter(source))
        raise StopIteration

    def _take_up(self, size: int, source: Any) -> None:
        """Goes on with the pass of this size, or begins one."""
        if size not in self._passes:
            self._passes[size] = (source, iter(source))
        self._current = size

    def _chunk(self, size: int) -> list[Any]:
        """The next `size` indices of the script's sampler, which is started again for ever."""
        batch: list[Any] = []
        while len(batch) < size:
            fresh = self._stream is None
            if self._stream is None:
                self._stream = self._indices()
            taken = list(islice(self._stream, size - len(batch)))
            batch += taken
            if len(batch) < size:
                self._stream = None
                if fresh and not taken:
                    raise StopIteration
        return batch

    def _indices(self) -> Iterator[Any]:
        if type(self._native) is BatchSampler:
            return iter(self._native.sampler)
        return (index for batch in self._native for index in batch)

    def _resize(self, size: int) -> list[Any]:
        """A batch from the script's own batch sampler with its size set to ours.

        This keeps whatever it does beside counting (grouping by length, balancing classes). One
        that follows neither its own attribute nor its own argument is flattened and cut again.
        """
        if self._current != size:
            try:
                self._take_up(size, self._of_size(size))
            except (AttributeError, TypeError, ValueError):
                return self._flatten(size)
        source = self._passes[size][0]
        skipped = 0
        restarted = False
        while skipped < _MAX_SKIPPED:
            try:
                batch = list(next(self._passes[size][1]))
            except StopIteration:
                if restarted:
                    break
                restarted = True
                self._passes[size] = (source, iter(source))
                continue
            if len(batch) == size:
                return batch
            skipped += 1
        return self._flatten(size)

    def _of_size(self, size: int) -> Any:
        """The script's own batch sampler with its size set, or made anew with it.

        Raises:
            AttributeError, TypeError, ValueError: it takes no size.
        """
        if not self._handle.remakes:
            _set_size(self._native, size)
            return self._native
        if size not in self._remade:  # sizes that take turns come again
            self._remade[size] = remade(self._native, size)
        return self._remade[size]

    def _flatten(self, size: int) -> list[Any]:
        self._handle.note_flattened()
        return self._chunk(size)


def num_in(batch: Any) -> int:
    """Samples of a batch of indices; 1 of a batch of the script's own kind that does not say."""
    try:
        return len(batch)
    except TypeError:
        return 1


def follows_own_size(batch_sampler: Any, size: int) -> bool:
    """Whether a batch sampler yields batches of `size` once its `batch_size` says so.

    Draws a pass of it; its size is the script's own again afterwards.
    """
    before = [(sampler, sampler.batch_size) for sampler in _sized(batch_sampler)]
    try:
        _set_size(batch_sampler, size)
        return follows(batch_sampler, size)
    except (AttributeError, TypeError, ValueError):
        return False
    finally:
        with contextlib.suppress(AttributeError, TypeError, ValueError):
            for sampler, native in before:
                sampler.batch_size = native


def follows_own_argument(batch_sampler: Any, size: int) -> bool:
    """Whether a batch sampler made anew with `size` as its argument yields such batches."""
    fresh = remade(batch_sampler, size)
    return fresh is not None and follows(fresh, size)


def _sized(batch_sampler: Any) -> Iterator[Any]:
    """A batch sampler and those that it wraps, where they name a size."""
    while batch_sampler is not None:
        native = getattr(batch_sampler, "_native", batch_sampler)
        if hasattr(native, "batch_size"):
            yield native
        batch_sampler = getattr(native, "batch_sampler", None)


def _set_size(batch_sampler: Any, size: int) -> None:
    """Sets the size of a batch sampler and of those that it wraps, as a rank's shard does.

    Raises:
        AttributeError, TypeError, ValueError: it does not let itself be set.
    """
    while batch_sampler is not None:
        native = getattr(batch_sampler, "_native", batch_sampler)
        native.batch_size = size
        if getattr(native, "split_batches", False):  # each process takes its part of a batch
            size *= getattr(native, "num_processes", 1)
            native.batch_size = size
        inner = getattr(native, "batch_sampler", None)
        batch_sampler = inner if hasattr(inner, "batch_size") else None


def names_size(batch_sampler: Any) -> bool:
    """Whether a batch sampler, or one that it wraps, has a size that can be set at all."""
    while batch_sampler is not None:
        if hasattr(batch_sampler, "batch_size"):
            return True
        batch_sampler = getattr(batch_sampler, "batch_sampler", None)
    return False


def pop_issue(iterator: Any) -> tuple[int | None, int] | None:
    """The size asked of the batch that an iterator yielded last, and its samples."""
    issues = getattr(iterator, "_sampler_iter", None)
    return issues.issued.popleft() if isinstance(issues, Issues) and issues.issued else None
