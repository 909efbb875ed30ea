"""The callback for the Hugging Face Trainer: `Trainer(callbacks=[HuggingFaceCallback(...)])`.

The Trainer passes no batches to its callbacks and tells them of no exception. The batches are seen
where its loader yields them; exceptions where `Trainer.train` lets them pass, if the callback was
given to the constructor of the Trainer.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from transformers import TrainerCallback

from ...probes.loader.sharing import length_of
from ...records import Pipeline
from ..loop_info import Facts, loader_info, rank_and_world, version_of
from .base import Adapter, local_above
from .watched_loaders import BatchReader, observe

if TYPE_CHECKING:
    from pathlib import Path

    from typing_extensions import Unpack

    from ..options import GivenOptions


class HuggingFaceCallback(Adapter, TrainerCallback):
    """Watches `Trainer.train`.

    Args:
        logdir, options: see `batchadvisor.callback.options.Options`.

    Attributes:
        record, advice: after the training.

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
        self._batch_size: int | None = None

    # hooks of the Trainer ----------------------------------------------------------------------

    def on_init_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        from transformers import Trainer

        # Whose constructor calls; it gives its callbacks no other way to find it.
        trainer = local_above("self", lambda owner: isinstance(owner, Trainer))
        if trainer is None or "train" in vars(trainer):
            return
        native: Any = type(trainer)

        @functools.wraps(native.train)
        def watched(owner: Any, *arguments: Any, **options: Any) -> Any:
            try:
                return native.train(owner, *arguments, **options)
            except BaseException as error:
                self._end(error)
                raise

        def reduced(owner: Any, protocol: Any) -> Any:
            own, owner.__class__ = owner.__class__, native
            try:
                made, *rest = owner.__reduce_ex__(protocol)
            finally:
                owner.__class__ = own
            # pickle compares the class that copyreg's `__newobj__` is given with the object's.
            return (native.__new__ if made.__name__ == "__newobj__" else made, *rest)

        # In its class: a Trainer that holds a function around its own is freed by the garbage
        # collector alone, in which each persistent data worker takes seconds to end. Copies and
        # pickles are of the class that was there, which can be imported.
        methods = {"train": watched, "__reduce_ex__": reduced, "__module__": native.__module__}
        trainer.__class__ = type(native.__name__, (native,), methods)

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if self._watch.running:
            self._began_again(args, state)
        loader = kwargs.get("train_dataloader")
        rank, world_size = rank_and_world()
        facts = Facts(
            framework="transformers",
            version=version_of("transformers"),
            rank=rank,
            world_size=world_size,
            micro_batches=int(args.gradient_accumulation_steps),
            loader=loader_info(loader),
        )
        self._batch_size = _size_of(args, state)
        facts.loader = _for_this_rank(facts, loader, self._batch_size)
        model = kwargs.get("model")
        optimizer = kwargs.get("optimizer")
        if optimizer is not None:
            facts.add_optimizer(optimizer)
        facts.pipeline = _pipeline(facts, loader, args)
        self._reader = BatchReader(self._watch.options.batch_size or self._batch_size, facts.tokens)
        self._watch.begin(
            facts,
            complete=lambda known: None if model is None else known.add_model(model),
            parameters=lambda: [] if model is None else list(model.parameters()),
        )
        if loader is not None and facts.loader is not None:
            self._undo.append(observe(loader, self))
            self._watch_the_rest_of(loader)
        else:
            facts.reasons["input_wait_s"] = "the Trainer's loader is none of torch's"

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        buffer = self._watch.buffer
        buffer.on_step_end()
        if control.should_evaluate or control.should_save:
            buffer.on_pause()  # what follows is no part of the step

    def on_epoch_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._watch.buffer.on_pause(epoch_ended=True)

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._end(None)

    # the loader --------------------------------------------------------------------------------

    def fetching(self) -> None:
        if self._watch.running:
            self._watch.buffer.on_step_begin()

    def fetched(self, batch: Any, wait_ns: int) -> None:
        if self._watch.running and self._reader is not None:
            self._watch.buffer.on_microbatch(self._reader.read(batch), wait_ns)

    def ran_out(self) -> None:
        return  # the Trainer tells of the epoch's end itself, after its last step

    def _watch_the_rest_of(self, loader: Any) -> None:
        """A resumed Trainer goes on in the middle of an epoch, with another loader."""
        from transformers import trainer

        skip = getattr(trainer, "skip_first_batches", None)
        if skip is None:
            return

        @functools.wraps(skip)
        def skipped(dataloader: Any, *arguments: Any, **options: Any) -> Any:
            rest = skip(dataloader, *arguments, **options)
            if dataloader is loader:
                self._undo.append(observe(rest, self))
            return rest

        def restore() -> None:
            if vars(trainer).get("skip_first_batches") is skipped:
                trainer.skip_first_batches = skip

        trainer.skip_first_batches = skipped
        self._undo.append(restore)

    def _began_again(self, args: Any, state: Any) -> None:
        """`auto_find_batch_size` begins anew with a smaller batch after an out-of-memory error."""
        size = _size_of(args, state)
        if self._batch_size is not None and size < self._batch_size:
            error = MemoryError(f"the Trainer went on with {size} instead of {self._batch_size}")
            self._end(error)
        else:
            self._end(None)


def _size_of(args: Any, state: Any) -> int:
    """The size of a batch; without `auto_find_batch_size` a resumed state has that of its past."""
    return int((args.auto_find_batch_size and state.train_batch_size) or args.train_batch_size)


def _for_this_rank(facts: Facts, loader: Any, batch_size: int) -> Any:
    """The loader as this rank sees it: Accelerate's shards count the samples of all ranks."""
    import msgspec

    info = facts.loader
    if info is None:
        return None
    changes: dict[str, Any] = {"batch_size": batch_size}
    if facts.world_size > 1 and not info.iterable:
        # Even batches: every rank gets equally many, the last ones filled up from the start.
        length = length_of(loader)
        changes["num_samples"] = None if length is None else length * batch_size
    return msgspec.structs.replace(info, **changes)


def _pipeline(facts: Facts, loader: Any, args: Any) -> Pipeline | None:
    info = facts.loader
    if info is None or info.batch_size is None:
        return None
    accelerator = getattr(args, "accelerator_config", None)
    return Pipeline(
        num_samples=info.num_samples if info.iterable else length_of(loader.dataset),
        batch_size=info.batch_size,
        setup="trainer",
        num_ranks=facts.world_size,
        drop_last=bool(args.dataloader_drop_last),
        iterable=info.iterable,
        num_workers=info.num_workers,
        even_batches=bool(getattr(accelerator, "even_batches", True)),
        split_batches=bool(getattr(accelerator, "split_batches", False)),
        micro_batches=facts.micro_batches or 1,
    )
