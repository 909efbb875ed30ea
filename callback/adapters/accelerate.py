"""The callback for Accelerate, which has no callbacks: what `prepare` returns is watched.

accelerator = Accelerator()
with AccelerateCallback(accelerator, logdir="runs/one"):
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    for batch in loader:
        with accelerator.accumulate(model):
            ...
            optimizer.step()
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from accelerate.data_loader import DataLoaderDispatcher
from accelerate.optimizer import AcceleratedOptimizer

from ...probes.loader.sharing import length_of
from ...records import Pipeline
from ..loop_info import Facts, innermost, loader_info, version_of
from .base import AroundLoop
from .watched_loaders import BatchReader, observe

if TYPE_CHECKING:
    from pathlib import Path

    from typing_extensions import Self, Unpack

    from ..options import GivenOptions


class AccelerateCallback(AroundLoop):
    """Watches a loop that Accelerate prepared; a context manager around `prepare` and the loop.

    The first loader that is prepared is the training loader. Steps that a gradient scaler refuses
    make no call of the optimizer and are not counted.

    Args:
        accelerator: the `Accelerator`.
        logdir, options: see `batchadvisor.callback.options.Options`.

    Attributes:
        record, advice: after the loop.

    Raises:
        UsageError: an option is wrong, or the folder cannot be written.
    """

    def __init__(
        self,
        accelerator: Any,
        logdir: str | Path | None = None,
        **options: Unpack[GivenOptions],
    ) -> None:
        super().__init__(logdir, **options)
        self._accelerator = accelerator
        self._reader: BatchReader | None = None
        self._loader: Any = None
        self._models: list[Any] = []
        self._optimizers: list[Any] = []

    def __enter__(self) -> Self:
        accelerator = self._accelerator
        facts = Facts(
            framework="accelerate",
            version=version_of("accelerate"),
            rank=int(accelerator.process_index),
            world_size=int(accelerator.num_processes),
            micro_batches=int(accelerator.gradient_accumulation_steps),
        )
        self._watch.begin(facts, complete=self._know, parameters=self._parameters)
        prepare = accelerator.prepare

        @functools.wraps(prepare)
        def prepared(*arguments: Any, **options: Any) -> Any:
            results = prepare(*arguments, **options)
            for part in results if isinstance(results, tuple) else (results,):
                self._meet(part)
            return results

        accelerator.prepare = prepared
        self._undo.append(lambda: accelerator.__dict__.pop("prepare", None))
        self._watch_the_rest()
        return self

    def _watch_the_rest(self) -> None:
        """A resumed loop goes on in the middle of an epoch, with another loader."""
        accelerator = self._accelerator
        skip = accelerator.skip_first_batches

        @functools.wraps(skip)
        def skipped(dataloader: Any, *arguments: Any, **options: Any) -> Any:
            rest = skip(dataloader, *arguments, **options)
            if self._loader is not None and dataloader is self._loader:
                self._undo.append(observe(rest, self))
            return rest

        accelerator.skip_first_batches = skipped
        self._undo.append(lambda: accelerator.__dict__.pop("skip_first_batches", None))

    def _meet(self, thing: Any) -> None:
        """One of the things that `prepare` returned."""
        from torch.nn import Module
        from torch.utils.data import DataLoader

        if isinstance(thing, Module):
            self._models.append(thing)
        elif isinstance(thing, AcceleratedOptimizer):
            self._optimizers.append(innermost(thing))
            # Silent in the micro-batches that only accumulate, and in steps that are skipped.
            handle = self._optimizers[-1].register_step_post_hook(self._stepped)
            self._undo.append(handle.remove)
        elif isinstance(thing, DataLoader) and self._reader is None:
            self._meet_loader(thing)

    def _meet_loader(self, loader: Any) -> None:
        facts = self._watch.facts
        facts.loader = _loader_of_rank(facts, loader, self._accelerator)
        size = facts.loader.batch_size if facts.loader is not None else None
        facts.pipeline = _pipeline(facts, loader, self._accelerator)
        self._reader = BatchReader(self._watch.options.batch_size or size, facts.tokens)
        self._loader = loader
        self._undo.append(observe(loader, self))

    def _stepped(self, optimizer: Any, _args: Any, _kwargs: Any) -> None:
        # Of several optimizers the first one tells the steps.
        if optimizer is self._optimizers[0]:
            self._watch.buffer.on_step_end()

    def _know(self, facts: Facts) -> None:
        for optimizer in self._optimizers:
            facts.add_optimizer(optimizer)
        for model in self._models[:1]:
            facts.add_model(model)

    def _parameters(self) -> list[Any]:
        return [parameter for model in self._models for parameter in model.parameters()]

    def _end(self, error: BaseException | None) -> None:
        super()._end(error)
        self._loader, self._models, self._optimizers = None, [], []

    # the loader --------------------------------------------------------------------------------

    def fetching(self) -> None:
        self._watch.buffer.on_step_begin()

    def fetched(self, batch: Any, wait_ns: int) -> None:
        assert self._reader is not None
        self._watch.buffer.on_microbatch(self._reader.read(batch), wait_ns)

    def ran_out(self) -> None:
        self._watch.buffer.on_pause(epoch_ended=True)


def _loader_of_rank(facts: Facts, loader: Any, accelerator: Any) -> Any:
    """The loader as this rank sees it; Accelerate's own counts are those of all ranks."""
    import msgspec

    info = loader_info(loader)
    if info is None:
        return None
    world = facts.world_size
    total = getattr(loader, "total_batch_size", None)
    size = total // world if total else info.batch_size
    changes: dict[str, Any] = {"batch_size": size}
    if world > 1 and not info.iterable and size is not None:
        length = length_of(loader)
        even = accelerator.even_batches and not isinstance(loader, DataLoaderDispatcher)
        changes["num_samples"] = length * size if even and length is not None else None
    return msgspec.structs.replace(info, **changes)


def _pipeline(facts: Facts, loader: Any, accelerator: Any) -> Pipeline | None:
    info = facts.loader
    if info is None or info.batch_size is None:
        return None
    split = bool(accelerator.split_batches)
    return Pipeline(
        num_samples=info.num_samples if info.iterable else length_of(loader.dataset),
        batch_size=info.batch_size * facts.world_size if split else info.batch_size,
        setup="accelerate",
        num_ranks=facts.world_size,
        drop_last=info.drop_last,
        iterable=info.iterable,
        num_workers=info.num_workers,
        even_batches=bool(accelerator.even_batches),
        split_batches=split,
        dispatch_batches=accelerator.dispatch_batches,
        micro_batches=facts.micro_batches or 1,
    )
