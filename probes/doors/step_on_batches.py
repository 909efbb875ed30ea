"""A training step of the user's on batches of any size, made by a function or taken from a loader.

As the object of a declared workload: `make(batch_size)` returns the step.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, Protocol

import msgspec
from torch.utils.data import DataLoader
from torch.utils.data.dataloader import _BaseDataLoaderIter

from ...records import LoaderInfo
from ..loader.batch_size_reader import BatchSizeReader, leaves
from ..loader.loader_handle import LoaderHandle
from ..loader.model_inputs import AS_ASKED
from .declared import DEFAULT_SIZE, WorkloadError, accepts, signature_of

SHAPES_SHOWN = 4
"""Shapes of a batch that an error shows."""


class Arrival(NamedTuple):
    """The batch of one step.

    Attributes:
        num_samples: in it; `None` where nothing in it tells.
        proof: how that is known; see records.Trial.
        wait_s: seconds that its step waited for it.
    """

    num_samples: int | None
    proof: str
    wait_s: float


class Batches(Protocol):
    """Makes batches of a size.

    Attributes:
        own_size: in use now, where it says it.
        why_no_wait: why waiting for a batch is no measurement; empty where it is.
    """

    @property
    def own_size(self) -> int | None: ...
    @property
    def why_no_wait(self) -> str: ...

    def ask(self, size: int) -> None:
        """The next batches have this size."""

    def ready(self) -> None:
        """A step comes next; what is no part of a training's step is done now."""

    def take(self) -> tuple[Any, Arrival]:
        """The batch of the step that runs now."""

    def info(self, own_size: int) -> LoaderInfo:
        """Describes where the batches come from."""

    def close(self) -> None:
        """Lets go of what it holds."""


class StepOnBatches:
    """Makes steps of a size.

    Args:
        train_step: makes one step of the batch that it is given.
        own_size: in use now; `None` where nobody says it.

    Attributes:
        before_size, before_step: called before the first step of each size, and before each step.
        batch_size: the size to begin with.
        why_own_unknown: empty where it is the one in use.
        arrival: of the last step.

    Raises:
        WorkloadError: the step takes something else than one batch.
    """

    def __init__(
        self,
        train_step: Callable[[Any], Any],
        batches: Batches,
        *,
        own_size: int | None,
    ) -> None:
        if not accepts(train_step, object()):
            raise WorkloadError(
                f"train_step takes {signature_of(train_step)}, and is called with a batch.",
                "Write def train_step(batch): forward, backward and optimizer step.",
            )
        self.train_step = train_step
        self.batches = batches
        own = own_size or batches.own_size
        self.batch_size = own or DEFAULT_SIZE
        self.why_own_unknown = "" if own else "own= was not given"
        self.arrival = Arrival(None, AS_ASKED, 0.0)
        self.before_size: Callable[[], None] = lambda: None
        self.before_step: Callable[[], None] = lambda: None

    def make(self, batch_size: int) -> Callable[[], None]:
        """A function that makes one step of this size."""
        self.before_size()
        self.batches.ask(batch_size)
        return self._step

    def ready(self) -> None:
        """A step comes next; what is no part of a training's step is done now."""
        self.before_step()
        self.batches.ready()

    def info(self) -> LoaderInfo:
        """Describes where the batches come from."""
        return self.batches.info(self.batch_size)

    def _step(self) -> None:
        batch, self.arrival = self.batches.take()
        self.train_step(batch)


class MadeBatches:
    """Batches of a function; a fresh one for each step, made before the step begins.

    Args:
        make: takes a size, returns a batch.
        largest: it is asked for no larger one.

    Raises:
        WorkloadError: it takes something else.
    """

    own_size: int | None = None
    why_no_wait = "make_batch makes the batches, between two steps"

    def __init__(self, make: Callable[[int], Any], largest: int | None = None) -> None:
        if not accepts(make, DEFAULT_SIZE):
            raise WorkloadError(
                f"make_batch takes {signature_of(make)}, and is called with a batch size.",
                "Write def make_batch(size): and return a batch of so many samples.",
            )
        self._make = make
        self._largest = largest
        self._reader = BatchSizeReader()
        self._size = 0
        self._batch: Any = None

    def ask(self, size: int) -> None:
        """See `Batches`.

        Raises:
            WorkloadError: the first time, where sizes that are asked for are not those that come.
        """
        if not self._size:
            self._check(size)
        self._size, self._batch = size, None

    def _check(self, size: int) -> None:
        """Makes a batch of this size and one of another, which tells an axis of features."""
        fits = self._largest is None or 2 * size <= self._largest
        other = 2 * size if fits else -(-size // 2)
        for asked in (size, other):
            batch = self._make(asked)
            self._reader.learn(batch, asked)
            shapes = [tuple(getattr(leaf, "shape", (len(leaf),))) for leaf in leaves(batch)]
            if shapes and self._reader.read(batch) != asked:
                shown = ", ".join(str(list(shape)) for shape in shapes[:SHAPES_SHOWN])
                raise WorkloadError(
                    f"make_batch({asked}) returned another size than asked for: its tensors and "
                    f"lists have the shapes {shown}.",
                    f"Return {asked} samples, along the first or second axis of a tensor or as the "
                    "items of a list.",
                )

    def ready(self) -> None:
        """Makes the batch of the next step."""
        self._batch = None  # else two would be held at once
        self._batch = self._make(self._size)

    def take(self) -> tuple[Any, Arrival]:
        """The batch that was made; the step may be the only one to hold it."""
        batch, self._batch = self._batch, None
        num = self._reader.read(batch)
        return batch, Arrival(num, AS_ASKED if num is None else "shape", 0.0)

    def info(self, own_size: int) -> LoaderInfo:
        """See `Batches`."""
        return LoaderInfo(
            ordinal=0,
            place=None,
            batch_size=own_size,
            num_samples=None,
            drop_last=False,
            num_workers=0,
            sampler="none",
            iterable=False,
            steered="by the argument of make_batch",
            trains=True,
        )

    def close(self) -> None:
        """Lets the last batch go."""
        self._batch = None


class LoadedBatches:
    """Batches of a loader of the user's, whose own iterators are not touched: a twin is steered.

    Args:
        loader: a DataLoader.

    Raises:
        WorkloadError: its sizes cannot be changed.
    """

    why_no_wait = ""

    def __init__(self, loader: Any) -> None:
        if not isinstance(loader, DataLoader):
            raise WorkloadError(
                f"loader is a {type(loader).__name__}, and no DataLoader of torch.",
                "Give make_batch, a function that makes a batch of a size.",
            )
        self._twin = twin = copy.copy(loader)
        twin.__dict__["_iterator"] = None  # processes that live on are those of the other
        self._handle = LoaderHandle(twin, 0, None, None, None)
        self._handle.note_training(trains=True)
        self._handle.try_size()
        if self._handle.cannot_steer:
            raise WorkloadError(
                f"the loader's sizes cannot be changed: {self._handle.cannot_steer}.",
                "Give make_batch, a function that makes a batch of a size.",
            )
        self.own_size = self._handle.batch_size
        self._iterator: Iterator[Any] | None = None

    def ask(self, size: int) -> None:
        """See `Batches`."""
        self._handle.ask(size)
        self._handle.begin_trial()

    def ready(self) -> None:
        """Starts the loader, whose first batch takes longer than the others."""
        if self._iterator is not None:
            return
        self._iterator = iterator = iter(self._twin)
        if not isinstance(iterator, _BaseDataLoaderIter):
            raise WorkloadError(
                f"the loader is a {type(self._twin).__name__}, whose batches are not torch's own.",
                "Give make_batch, a function that makes a batch of a size.",
            )

    def take(self) -> tuple[Any, Arrival]:
        """Fetches the batch, as the training's loop would."""
        started_s = time.perf_counter()
        batch = self._handle.fetch(self._iterator, next)
        wait_s = time.perf_counter() - started_s
        return batch, Arrival(self._handle.arrived, self._handle.proof or AS_ASKED, wait_s)

    def info(self, own_size: int) -> LoaderInfo:
        """See `Batches`."""
        info = self._handle.info()
        return msgspec.structs.replace(
            info, batch_size=own_size, steered="by batches of the loader"
        )

    def close(self) -> None:
        """Ends the loader's processes."""
        inner = getattr(self._iterator, "__dict__", {}).get("_batchadvisor_inner", self._iterator)
        for each in (inner, self._iterator):
            shut: Callable[[], None] = getattr(each, "_shutdown_workers", lambda: None)
            shut()
        self._iterator = self._twin.__dict__["_iterator"] = None
