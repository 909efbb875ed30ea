"""The callback for Keras 3 on torch, TensorFlow and JAX: `fit(callbacks=[KerasCallback(...)])`.

Keras tells its callbacks neither the batch size nor the data; both are read where `fit` keeps them.
Kernel profiles exist on the torch backend alone; the others give step time and memory. On JAX a
callback at the end of batches makes Keras wait for each step, as its progress bar does; the step
times are true for that reason.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import keras

from ...records import LoaderInfo, OptimizerInfo, Pipeline
from ..devices import AllocatorProbe, HostProbe, MemoryProbe
from ..loop_info import Facts, rank_and_world, unknown_loader, version_of
from ..token_count import TokenCount
from .base import AroundLoop, local_above
from .watched_loaders import BatchReader

if TYPE_CHECKING:
    from pathlib import Path

    from typing_extensions import Self, Unpack

    from ..options import GivenOptions


class KerasCallback(AroundLoop, keras.callbacks.Callback):
    """Watches `Model.fit`.

    In a `with` statement around `fit` it also sees exceptions that no step raised.

    Args:
        logdir, options: see `batchadvisor.callback.options.Options`.

    Attributes:
        record, advice: after the fit.

    Raises:
        UsageError: an option is wrong, or the folder cannot be written.
    """

    def __init__(
        self,
        logdir: str | Path | None = None,
        **options: Unpack[GivenOptions],
    ) -> None:
        super().__init__(logdir, **options)
        self._data: _Data | None = None
        self._micro_batches = 1
        self._begin_step = 0
        self._num_batches = 0

    def __enter__(self) -> Self:
        return self

    # hooks of Keras ----------------------------------------------------------------------------

    def on_train_begin(self, logs: Any = None) -> None:
        backend = keras.backend.backend()
        rank, world_size = _rank_and_world(backend)
        facts = Facts(
            framework=f"keras ({backend})",
            version=version_of("keras"),
            device=_device(backend),
            rank=rank,
            world_size=world_size,
        )
        optimizer = getattr(self.model, "optimizer", None)
        # With mixed_float16 Keras wraps it in one that scales the loss and accumulates nothing.
        optimizer = getattr(optimizer, "inner_optimizer", None) or optimizer
        self._micro_batches = int(getattr(optimizer, "gradient_accumulation_steps", None) or 1)
        facts.micro_batches = self._micro_batches
        _add_model(facts, self.model, optimizer)
        # `fit` keeps it in a variable and tells nobody.
        batches = local_above("epoch_iterator", lambda iterator: hasattr(iterator, "data_adapter"))
        data = _Data(batches, self._watch.options.batch_size, backend)
        facts.loader = data.loader()
        facts.tokens = data.tokens
        facts.pipeline = _pipeline(facts, backend)
        if not data.sees_batches:
            facts.reasons["input_wait_s"] = f"Keras on {backend} fetches inside its step"
        self._data = data
        self._num_batches = 0
        torch_model = backend == "torch"
        buffer = self._watch.begin(
            facts,
            parameters=self._parameters if torch_model else None,
            probe=None if torch_model else _probe(backend),
            profile=torch_model,
        )
        data.listen(buffer.now_ns)
        self._undo.append(data.close)
        self._see_exceptions()

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        self._begin_step = batch
        self._watch.buffer.on_step_begin()

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        buffer, data = self._watch.buffer, self._data
        assert data is not None
        sizes, wait_ns = data.take(self._begin_step, batch)
        if len(sizes) > 1:
            buffer.on_execution(sizes, self._micro_batches)
            return
        for size in sizes:
            buffer.on_microbatch(size, wait_ns)
            self._num_batches += 1
            if self._num_batches % self._micro_batches == 0:
                buffer.on_step_end()

    def on_test_begin(self, logs: Any = None) -> None:
        if self._watch.running:
            self._watch.buffer.on_pause()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self._watch.buffer.on_pause(epoch_ended=True)

    def on_train_end(self, logs: Any = None) -> None:
        self._end(None)

    def _see_exceptions(self) -> None:
        """Keras tells of no exception; those of a step pass through the function that it calls."""
        model = self.model
        train = getattr(model, "train_function", None)
        if train is None:
            return

        def watched(*arguments: Any) -> Any:
            try:
                return train(*arguments)
            except StopIteration:
                raise
            except BaseException as error:
                # TensorFlow ends an epoch of unknown length this way.
                if type(error).__name__ != "OutOfRangeError":
                    self._end(error)
                raise

        def restore() -> None:
            if getattr(model, "train_function", None) is watched:
                model.train_function = train

        model.train_function = watched
        self._undo.append(restore)

    def _parameters(self) -> list[Any]:
        return [variable.value for variable in self.model.trainable_variables]


class _Data:
    """The data of one `fit`: sizes of batches and, where Python fetches them, the wait for them.

    Args:
        iterator: Keras' own over epochs; `None` where it was not found.
        batch_size: as the user told.
        backend: of Keras.
    """

    def __init__(self, iterator: Any, batch_size: int | None, backend: str) -> None:
        self._iterator = iterator
        self._adapter = getattr(iterator, "data_adapter", None)
        self.batch_size = batch_size or _number(self._adapter, "batch_size")
        self.num_batches = _number(self._adapter, "num_batches")
        self.partial = _number(self._adapter, "partial_batch_size")
        # TensorFlow iterates inside its compiled step, where no Python of ours may stand.
        self.sees_batches = iterator is not None and backend in ("torch", "jax")
        self.tokens = TokenCount()
        self._reader = BatchReader(self.batch_size, self.tokens)
        self._fetched: deque[tuple[int | None, int]] = deque()
        self._num_taken = 0

    def loader(self) -> LoaderInfo:
        """The record of the data."""
        return unknown_loader(self.batch_size, self.num_samples, type(self._adapter).__name__)

    @property
    def num_samples(self) -> int | None:
        """Samples of an epoch."""
        if self.num_batches is None or self.batch_size is None:
            return None
        if self.partial is None:
            return self.num_batches * self.batch_size
        return (self.num_batches - 1) * self.batch_size + self.partial

    def listen(self, clock: Callable[[], int]) -> None:
        """From now on each fetch is seen."""
        if not self.sees_batches:
            return
        native = self._iterator._get_iterator

        def fetches(source: Iterator[Any]) -> Iterator[Any]:
            while True:
                start = clock()
                try:
                    batch = next(source)
                except StopIteration:
                    return
                self._fetched.append((self._reader.read(batch), clock() - start))
                yield batch

        # A DataLoader draws a random number as its iterator is made: made when Keras makes it.
        self._iterator._get_iterator = lambda: _Iterable(lambda: fetches(iter(native())))

    def take(self, first: int, last: int) -> tuple[list[int | None], int]:
        """Sizes of the batches from `first` to `last` of the epoch, and the wait for them, ns."""
        if self.num_batches is not None:
            last = min(last, max(first, self.num_batches - 1))
        num = last - first + 1
        if self.sees_batches:
            taken = [self._fetched.popleft() for _ in range(min(num, len(self._fetched)))]
            return [size for size, _ in taken], sum(wait for _, wait in taken)
        places = range(self._num_taken, self._num_taken + num)
        self._num_taken += num
        return [self._size_at(place) for place in places], 0

    def close(self) -> None:
        """The iterator is Keras' own again."""
        if self._iterator is not None:
            vars(self._iterator).pop("_get_iterator", None)

    def _size_at(self, place: int) -> int | None:
        if self.num_batches is None or self.batch_size is None:
            return self.batch_size if self.num_batches is None else None
        at_end = place % self.num_batches == self.num_batches - 1
        return self.partial if at_end and self.partial is not None else self.batch_size


class _Iterable:
    """Makes its iterator when it is asked for one, neither earlier nor later."""

    def __init__(self, make: Callable[[], Iterator[Any]]) -> None:
        self._make = make

    def __iter__(self) -> Iterator[Any]:
        return self._make()


def _number(thing: Any, name: str) -> int | None:
    try:
        value = getattr(thing, name, None)
        return None if value is None or int(value) < 0 else int(value)
    except (TypeError, ValueError, NotImplementedError):
        return None


def _add_model(facts: Facts, model: Any, optimizer: Any) -> None:
    """Weights, optimizer and normalisation layers, as Keras counts them on every backend."""
    from ...records import NormLayers

    facts.num_parameters = int(model.count_params()) if model.built else None
    layers = [type(layer).__name__ for layer in model._flatten_layers()]
    facts.norm_layers = NormLayers(
        batch_norm=layers.count("BatchNormalization"),
        group_norm=layers.count("GroupNormalization"),
        layer_norm=layers.count("LayerNormalization"),
    )
    if optimizer is not None:
        rate = getattr(optimizer, "_learning_rate", None)
        facts.optimizers = (
            OptimizerInfo(
                ordinal=0,
                place=None,
                name=type(optimizer).__name__,
                # A schedule has no single rate; asking for its present one runs it.
                learning_rate=None if callable(rate) else float(optimizer.learning_rate),
                num_parameters=facts.num_parameters,
                trains=True,
            ),
        )


def _rank_and_world(backend: str) -> tuple[int, int]:
    """This process among those of its job: each leaves its record in a folder of its own."""
    if backend == "jax":
        import jax

        if jax.process_count() > 1:
            return int(jax.process_index()), int(jax.process_count())
    return rank_and_world()


def _device(backend: str) -> str | None:
    if backend != "torch":
        return None
    from keras.src.backend.torch.core import get_device

    return str(get_device())


def _probe(backend: str) -> MemoryProbe:
    """Memory where there is no torch: the framework's allocator, else the process."""
    if backend == "tensorflow":
        import tensorflow as tf

        devices = tf.config.list_logical_devices("GPU")
        if devices:
            name = devices[0].name.replace("/device:", "")

            def read() -> tuple[int, int, int | None]:
                info = tf.config.experimental.get_memory_info(name)
                return int(info["current"]), int(info["peak"]), None

            return AllocatorProbe("cuda", devices[0].name, read)
    if backend == "jax":
        import jax

        device = jax.local_devices()[0]
        if device.platform != "cpu":
            if not device.memory_stats():
                return HostProbe(trains=False)

            def read_jax() -> tuple[int, int, int | None]:
                stats = device.memory_stats()
                limit = stats.get("bytes_limit")
                return int(stats["bytes_in_use"]), int(stats["peak_bytes_in_use"]), limit

            return AllocatorProbe(device.platform, device.device_kind, read_jax)
    return HostProbe()


def _pipeline(facts: Facts, backend: str) -> Pipeline | None:
    info = facts.loader
    if info is None or info.batch_size is None or backend not in ("torch", "tensorflow", "jax"):
        return None
    return Pipeline(
        num_samples=info.num_samples,
        batch_size=info.batch_size,
        setup=f"keras-{backend}",  # type: ignore[arg-type]
        micro_batches=facts.micro_batches or 1,
    )
