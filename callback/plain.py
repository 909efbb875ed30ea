"""The callback for a loop of the user's own, with DistributedDataParallel or without.

with ProfilingCallback(logdir="runs/one") as prof:
    for batch in prof.watch(loader):
        ...
        optimizer.step()
        prof.step()
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from ..records import Advice, Pipeline, RunRecord, SourceLine
from .facts import Facts, loader_info, rank_and_world, unknown_loader
from .options import options_of
from .watch import Watch

if TYPE_CHECKING:
    from pathlib import Path

    from typing_extensions import Self

    from ..probes.gauge import BatchGauge
    from .core import Core

T = TypeVar("T")


class ProfilingCallback:
    """Watches a training loop: time, input, memory, short traces, the end of the epoch.

    A context manager around the loop. What is raised inside passes through untouched; the record
    on disk is valid all the time.

    Args:
        logdir: folder for record, traces and TensorBoard scalars; one is made if not given.
        model: tells of normalisation layers and, under `noise_scale`, of gradients.
        optimizer: what trains; found by its first step if not given. Several as a list.
        options: see `batchadvisor.callback.options.Options`.

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
        **options: Any,
    ) -> None:
        self._watch = Watch(options_of(logdir, options))
        self._model = model
        self._given: tuple[Any, ...] = (
            () if optimizer is None else _several(optimizer) if _listed(optimizer) else (optimizer,)
        )
        self._found: list[Any] = []
        self._hook: Any = None
        self._gauge: Any = None

    def __enter__(self) -> Self:
        rank, world_size = rank_and_world()
        facts = Facts(framework="plain", rank=rank, world_size=world_size)
        self._watch.begin(facts, complete=self._know, parameters=self._parameters)
        if not self._given:
            self._listen()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._deafen()
        self._watch.end(error)

    @property
    def record(self) -> RunRecord | None:
        """What was measured; `None` before the end."""
        return self._watch.record

    @property
    def advice(self) -> Advice | None:
        """What follows from it; `None` before the end."""
        return self._watch.advice

    def watch(self, loader: Iterable[T]) -> Watched[T]:
        """The training loader, or any other iterable of batches, to be looped over in its place.

        Batches pass through as they are. With several epochs, watch it once or in each of them.
        """
        facts = self._watch.facts if self._watch.keeper is not None else None
        if facts is not None and facts.loader is None:
            from ..probes.call_site import user_call_site

            self._know_loader(facts, loader, user_call_site())
        declared = self._watch.options.batch_size
        if declared is None and facts is not None and facts.loader is not None:
            declared = facts.loader.batch_size
        if self._gauge is None:
            from ..probes.gauge import BatchGauge

            self._gauge = BatchGauge()
        return Watched(loader, self._watch.core, self._gauge, declared)

    def step(self, stepped: bool = True, num_tokens: int | None = None) -> None:
        """The optimizer stepped: once per step, not per micro-batch.

        Args:
            stepped: false where a gradient scaler refused the step.
            num_tokens: in this step, to be counted.
        """
        core = self._watch.core
        if num_tokens is not None:
            core.num_tokens += num_tokens
        core.on_step_end(stepped)

    def pause(self) -> None:
        """No training follows: validation in the middle of an epoch, a checkpoint."""
        self._watch.core.on_pause()

    def __str__(self) -> str:
        return self._watch.text()

    def _repr_html_(self) -> str:
        return self._watch.html()

    # what the loop is made of ------------------------------------------------------------------

    def _know_loader(self, facts: Facts, loader: Any, place: SourceLine | None) -> None:
        facts.loader = loader_info(loader, place) or unknown_loader(
            self._watch.options.batch_size, _length(loader), type(loader).__name__
        )
        facts.pipeline = _pipeline(facts, loader)

    def _know(self, facts: Facts) -> None:
        """The first step is over: the optimizers have shown themselves."""
        self._deafen()
        optimizers = self._given or tuple(self._found)
        for one in optimizers:
            facts.add_optimizer(one)
        if self._model is not None:
            facts.add_model(self._model)
        else:
            from ..probes.norms import count_norms

            facts.norm_layers = count_norms()
        if not optimizers:
            facts.reasons["optimizers"] = "no optimizer of torch made a step"

    def _parameters(self) -> list[Any]:
        if self._model is not None:
            return list(self._model.parameters())
        return [
            parameter
            for one in self._given or self._found
            for group in one.param_groups
            for parameter in group["params"]
        ]

    def _listen(self) -> None:
        """Until the first step is over: which optimizers step."""
        from torch.optim.optimizer import register_optimizer_step_post_hook

        def stepped(optimizer: Any, _args: Any, _kwargs: Any) -> None:
            if all(one is not optimizer for one in self._found):
                self._found.append(optimizer)

        self._hook = register_optimizer_step_post_hook(stepped)

    def _deafen(self) -> None:
        if self._hook is not None:
            self._hook.remove()
            self._hook = None


class Watched(Iterable[T]):
    """A loader that tells the core of each batch; everything else is the loader's own.

    Args:
        loader: whatever yields batches.
        core: to be told.
        gauge: reads how many samples a batch holds.
        batch_size: of a full batch, where it is known.
    """

    def __init__(
        self, loader: Iterable[T], core: Core, gauge: BatchGauge, batch_size: int | None
    ) -> None:
        self._loader = loader
        self._core = core
        self._batch_size = batch_size
        self._gauge = gauge

    def __iter__(self) -> Iterator[T]:
        # Made now, as without us: a DataLoader draws a random number for its iterator.
        return self._fetches(iter(self._loader))

    def _fetches(self, iterator: Iterator[T]) -> Iterator[T]:
        core, clock, read = self._core, time.perf_counter_ns, self._gauge.read
        learnt = self._batch_size is None or core.num_micro_batches > 0
        try:
            while True:
                core.on_step_begin()
                start = clock()
                try:
                    batch = next(iterator)
                except StopIteration:
                    core.on_pause(epoch_ended=True)
                    return
                waited = clock() - start
                if not learnt:
                    learnt = True
                    self._gauge.learn(batch, self._batch_size or 1)
                core.on_microbatch(read(batch), waited)
                yield batch
        finally:
            core.on_pause()  # also where the loop is left early

    def __len__(self) -> int:
        return len(self._loader)  # type: ignore[arg-type]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)


def _pipeline(facts: Facts, loader: Any) -> Pipeline | None:
    """How samples become batches, as the rules on the epoch's end want it."""
    info = facts.loader
    if info is None or info.batch_size is None:
        return None
    distributed = info.sampler == "DistributedSampler"
    sampler = getattr(loader, "sampler", None)
    num_samples = info.num_samples
    if distributed:
        num_samples = _length(getattr(sampler, "dataset", None))
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


def _length(thing: Any) -> int | None:
    try:
        return len(thing)
    except (TypeError, NotImplementedError):
        return None


def _listed(value: Any) -> bool:
    return isinstance(value, (list, tuple))


def _several(value: Any) -> tuple[Any, ...]:
    return tuple(value)
