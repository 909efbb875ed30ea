"""The callback for a loop of the user's own, with DistributedDataParallel or without.

with ProfilingCallback(logdir="runs/one") as prof:
    for batch in prof.watch(loader):
        ...
        optimizer.step()
        prof.step()
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

from ...records import LoaderInfo, Pipeline, SourceLine
from ..event_buffer import MAX_MICRO_BATCHES, STEPPED, UNKNOWN_SIZE
from ..loop_info import Facts, loader_info, rank_and_world, unknown_loader
from ..token_count import TokenCount
from .base import AroundLoop

if TYPE_CHECKING:
    from pathlib import Path

    from typing_extensions import Self, Unpack

    from ...probes.loader.batch_size_reader import BatchSizeReader
    from ..event_buffer import EventBuffer
    from ..options import GivenOptions

T = TypeVar("T")
NO_WATCH = (
    "step() was called and no loader was watched, so that neither samples nor steps were timed: "
    "loop over prof.watch(loader)"
)
STEP_NOT_CALLED = (
    "step() was never called, so that no step was timed: call prof.step() after each "
    "optimizer.step()"
)


class ProfilingCallback(AroundLoop):
    """Watches a training loop: time, input, memory, short traces, the end of the epoch.

    A context manager around the loop. What is raised inside passes through untouched; the record
    on disk is valid all the time.

    Args:
        model: tells of normalisation layers and, under `noise_scale`, of gradients.
        optimizer: what trains; found by its first step if not given. Several as a list.
        logdir, options: see `batchadvisor.callback.options.Options`.

    Attributes:
        record, advice: after the loop.

    Raises:
        UsageError: an option is wrong, or the folder cannot be written.
    """

    def __init__(
        self,
        logdir: str | Path | None = None,
        *,
        model: Any = None,
        optimizer: Any = None,
        **options: Unpack[GivenOptions],
    ) -> None:
        super().__init__(logdir, **options)
        self._model = model
        self._given: tuple[Any, ...] = (
            () if optimizer is None else _several(optimizer) if _listed(optimizer) else (optimizer,)
        )
        self._found: list[Any] = []
        self._reader: Any = None
        self._sizes: set[int] = set()
        """Batch sizes of the loaders that were watched."""
        self._marks: list[int] = []

    def __enter__(self) -> Self:
        rank, world_size = rank_and_world()
        facts = Facts(framework="plain", rank=rank, world_size=world_size)
        buffer = self._watch.begin(facts, complete=self._know, parameters=self._parameters)
        self._marks = buffer.marks
        if not self._given:
            self._listen()
        return self

    def watch(self, loader: Iterable[T]) -> Watched[T]:
        """The training loader, or any other iterable of batches, to be looped over in its place.

        Batches pass through as they are. With several epochs, watch it once or in each of them.
        """
        facts = self._watch.facts if self._watch.recorder is not None else None
        if facts is not None and facts.loader is None:
            from ...probes.source.call_site import user_call_site

            self._know_loader(facts, loader, user_call_site())
        elif facts is not None:
            self._know_further(facts, loader)
        declared = self._watch.options.batch_size
        if declared is None and facts is not None and facts.loader is not None:
            declared = facts.loader.batch_size
        if self._reader is None:
            from ...probes.loader.batch_size_reader import BatchSizeReader

            self._reader = BatchSizeReader()
        tokens = TokenCount() if facts is None else facts.tokens
        return Watched(loader, self._watch.buffer, self._reader, declared, tokens)

    def step(self, stepped: bool = True, num_tokens: int | None = None) -> None:
        """The optimizer stepped: once per step, not per micro-batch.

        Args:
            stepped: false where a gradient scaler refused the step.
            num_tokens: in this step, to be counted.
        """
        if num_tokens is not None:
            self._watch.buffer.add_tokens(num_tokens)
        marks = self._marks
        if marks and stepped:
            marks.append(STEPPED)  # as the buffer would, with one call less between cold caches
        else:
            self._watch.buffer.on_step_end(stepped)

    def pause(self) -> None:
        """No training follows: validation in the middle of an epoch, a checkpoint."""
        self._watch.buffer.on_pause()

    # what the loop is made of ------------------------------------------------------------------

    def _know_loader(self, facts: Facts, loader: Any, place: SourceLine | None) -> None:
        facts.loader = loader_info(loader, place) or unknown_loader(
            self._watch.options.batch_size, sampler=type(loader).__name__
        )
        facts.pipeline = _pipeline(facts, facts.loader, loader)
        if facts.loader.batch_size is not None:
            self._sizes.add(facts.loader.batch_size)

    def _know_further(self, facts: Facts, loader: Any) -> None:
        """A loader after the first one: of another size its epochs end in another way."""
        info = loader_info(loader)
        if info is None or info.batch_size is None or info.batch_size in self._sizes:
            return
        self._sizes.add(info.batch_size)
        self._watch.warn_of_tails(_pipeline(facts, info, loader))

    def _end(self, error: BaseException | None) -> None:
        if self._watch.running and error is None:
            assert self._watch.recorder is not None
            self._watch.recorder.doubts += _misuse(self._watch.buffer)
        super()._end(error)
        self._found.clear()

    def _know(self, facts: Facts) -> None:
        """The first step is over: the optimizers have shown themselves."""
        while self._undo:
            self._undo.pop()()
        optimizers = self._given or tuple(self._found)
        for optimizer in optimizers:
            facts.add_optimizer(optimizer)
        if self._model is not None:
            facts.add_model(self._model)
        else:
            from ...probes.loader.norms import count_norms

            facts.norm_layers = count_norms()
        if not optimizers:
            facts.reasons["optimizers"] = "no optimizer of torch made a step"

    def _parameters(self) -> list[Any]:
        if self._model is not None:
            return list(self._model.parameters())
        return [
            parameter
            for optimizer in self._given or self._found
            for group in optimizer.param_groups
            for parameter in group["params"]
        ]

    def _listen(self) -> None:
        """Until the first step is over: which optimizers step."""
        from torch.optim.optimizer import register_optimizer_step_post_hook

        def stepped(optimizer: Any, _args: Any, _kwargs: Any) -> None:
            if all(known is not optimizer for known in self._found):
                self._found.append(optimizer)

        self._undo.append(register_optimizer_step_post_hook(stepped).remove)


class Watched(Iterable[T]):
    """A loader that tells the core of each batch; everything else is the loader's own.

    Args:
        loader: whatever yields batches.
        buffer: to be told.
        reader: reads how many samples a batch holds.
        batch_size: of a full batch, where it is known.
        tokens: counts the batches that it is told of.
    """

    def __init__(
        self,
        loader: Iterable[T],
        buffer: EventBuffer,
        reader: BatchSizeReader,
        batch_size: int | None,
        tokens: TokenCount,
    ) -> None:
        self._tokens = tokens
        self._loader = loader
        self._buffer = buffer
        self._batch_size = batch_size
        self._reader = reader

    def __iter__(self) -> Iterator[T]:
        # Made now, as without us: a DataLoader draws a random number for its iterator.
        return self._fetches(iter(self._loader))

    def _fetches(self, iterator: Iterator[T]) -> Iterator[T]:
        # Names of this frame: what runs once a step finds the caches full of the training.
        buffer, clock, read = self._buffer, self._buffer.now_ns, self._reader.read
        mark, tokens = buffer.marks.append, self._tokens
        learnt = self._batch_size is None or buffer.core.num_micro_batches > 0
        try:
            while True:
                start = buffer.settle(clock())
                for _ in range(MAX_MICRO_BATCHES):
                    try:
                        batch = next(iterator)
                    except BaseException:  # StopIteration is the usual one
                        buffer.settle(start)
                        raise
                    waited = clock() - start
                    try:
                        if not learnt:
                            learnt = True
                            self._reader.learn(batch, self._batch_size or 1)
                        size = read(batch)
                    except Exception:  # noqa: BLE001  a batch of the user's own kind ends no loop
                        size = None
                    if size is None:
                        size = UNKNOWN_SIZE
                    elif size > buffer.largest:
                        buffer.grow(size)
                    if start >= tokens.due_ns:
                        tokens.note(batch, None if size == UNKNOWN_SIZE else size, start)
                    mark(start)
                    mark(waited)
                    mark(size)
                    yield batch
                    start = clock()
                    if start >= buffer.due_ns:
                        start = buffer.settle(start)
        except StopIteration:
            buffer.on_pause(epoch_ended=True)
        finally:
            buffer.on_pause()  # also where the loop is left early

    def __len__(self) -> int:
        return len(self._loader)  # type: ignore[arg-type]

    def __getattr__(self, name: str) -> Any:
        if "_loader" not in vars(self):  # a copy that has nothing yet
            raise AttributeError(name)
        return getattr(self._loader, name)


def _misuse(buffer: EventBuffer) -> list[str]:
    """Says what the loop forgot to tell, so that no step is timed; else empty."""
    buffer.settle(buffer.now_ns())
    num_steps, num_batches = buffer.core.num_ended, buffer.core.num_micro_batches
    if num_steps and not num_batches:
        return [NO_WATCH]
    if num_batches and not num_steps:
        return [f"watch() gave {num_batches} batches and {STEP_NOT_CALLED}"]
    return []


def _pipeline(facts: Facts, info: LoaderInfo | None, loader: Any) -> Pipeline | None:
    """How samples become batches, as the rules on the epoch's end want it."""
    if info is None or info.batch_size is None:
        return None
    distributed = info.sampler == "DistributedSampler"
    sampler = getattr(loader, "sampler", None)
    num_samples = info.num_samples
    if distributed:
        from ...probes.loader.sharing import length_of

        num_samples = length_of(getattr(sampler, "dataset", None))
    if facts.world_size > 1:
        setup = "distributed-sampler" if distributed else "ddp"
    else:
        setup = "dataloader"
    return Pipeline(
        num_samples=num_samples,
        batch_size=info.batch_size,
        setup=setup,  # type: ignore[arg-type]
        num_ranks=facts.world_size,
        drop_last=info.drop_last,
        sampler_drop_last=bool(distributed and getattr(sampler, "drop_last", False)),
        iterable=info.iterable,
        num_workers=info.num_workers,
    )


def _listed(value: Any) -> bool:
    return isinstance(value, (list, tuple))


def _several(value: Any) -> tuple[Any, ...]:
    return tuple(value)
