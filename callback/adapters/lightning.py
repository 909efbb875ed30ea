"""The callback for Lightning: `Trainer(callbacks=[LightningCallback(logdir=...)])`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import msgspec

from ...probes.loader.sharing import length_of
from ...records import LoaderInfo, Pipeline
from ..loop_info import Facts, loader_info, version_of
from .base import Adapter
from .watched_loaders import BatchReader

if TYPE_CHECKING:
    from pathlib import Path

    from typing_extensions import Unpack

    from ..options import GivenOptions

# Two distributions hold the same Lightning under two names, and their classes are not the same.
if "pytorch_lightning" in sys.modules and "lightning.pytorch" not in sys.modules:
    from pytorch_lightning import Callback

    _DISTRIBUTION = "pytorch-lightning"
else:
    from lightning.pytorch import Callback

    _DISTRIBUTION = "lightning"


class LightningCallback(Adapter, Callback):
    """Watches `Trainer.fit`.

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
        self._reader: BatchReader | None = None
        self._global_step = 0
        self._wait_ns = 0

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        loader = _loader(trainer)
        facts = Facts(
            framework="lightning",
            version=version_of(_DISTRIBUTION),
            rank=int(trainer.global_rank),
            world_size=int(trainer.world_size),
            micro_batches=int(trainer.accumulate_grad_batches),
            loader=_cut_short(loader_info(loader), trainer.num_training_batches),
        )
        facts.device = str(pl_module.device)
        facts.add_model(pl_module)
        for optimizer in trainer.optimizers:
            facts.add_optimizer(optimizer)
        facts.pipeline = _pipeline(facts, loader)
        size = facts.loader.batch_size if facts.loader is not None else None
        self._reader = BatchReader(self._watch.options.batch_size or size, facts.tokens)
        self._global_step = trainer.global_step
        self._watch.begin(facts, parameters=lambda: list(pl_module.parameters()))
        self._hear_fetches(trainer)

    def on_train_batch_start(
        self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int
    ) -> None:
        buffer = self._watch.buffer
        buffer.on_step_begin()
        assert self._reader is not None
        buffer.on_microbatch(self._reader.read(batch), self._wait_ns)
        self._wait_ns = 0

    def on_train_batch_end(
        self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        if trainer.global_step != self._global_step:
            self._global_step = trainer.global_step
            self._watch.buffer.on_step_end()

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        self._watch.buffer.on_pause(epoch_ended=True)

    def on_validation_start(self, trainer: Any, pl_module: Any) -> None:
        if self._watch.running and not trainer.sanity_checking:
            self._watch.buffer.on_pause()

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        self._end(None)

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        self._end(exception)

    def _hear_fetches(self, trainer: Any) -> None:
        """Between its hooks Lightning does more than fetch; its epoch loop tells of that alone."""
        loop: Any = trainer.fit_loop.epoch_loop
        before = getattr(loop, "_on_before_fetch", None)
        after = getattr(loop, "_on_after_fetch", None)
        if before is None or after is None:
            self._watch.facts.reasons["input_wait_s"] = "this Lightning tells of no fetches"
            return
        buffer = self._watch.buffer
        began_ns = 0

        def fetching() -> None:
            nonlocal began_ns
            if self._watch.running:
                buffer.on_step_begin()
                began_ns = buffer.now_ns()
            before()

        def fetched() -> None:
            after()
            self._wait_ns += buffer.now_ns() - began_ns

        def restore() -> None:
            for name in ("_on_before_fetch", "_on_after_fetch"):
                vars(loop).pop(name, None)

        loop._on_before_fetch, loop._on_after_fetch = fetching, fetched
        self._undo.append(restore)


def _cut_short(loader: LoaderInfo | None, num_batches: float) -> LoaderInfo | None:
    """A loader of which an epoch takes no more than that: `limit_train_batches`."""
    if loader is None or loader.num_samples is None or loader.batch_size is None:
        return loader
    num_samples = min(loader.num_samples, num_batches * loader.batch_size)
    return msgspec.structs.replace(loader, num_samples=int(num_samples))


def _loader(trainer: Any) -> Any:
    """The one training loader; Lightning may hold it in a collection."""
    loader = trainer.train_dataloader
    if isinstance(loader, (list, tuple)) and len(loader) == 1:
        return loader[0]
    return loader


def _pipeline(facts: Facts, loader: Any) -> Pipeline | None:
    info = facts.loader
    if info is None or info.batch_size is None:
        return None
    num_samples = info.num_samples
    if facts.world_size > 1 and not info.iterable:
        num_samples = length_of(loader.dataset)
    return Pipeline(
        num_samples=num_samples,
        batch_size=info.batch_size,
        setup="lightning",
        num_ranks=facts.world_size,
        drop_last=info.drop_last,
        iterable=info.iterable,
        num_workers=info.num_workers,
        micro_batches=facts.micro_batches or 1,
    )
