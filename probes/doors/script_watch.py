"""Watches a script's use of torch: its loaders, its optimizers, its training cycles."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import torch

from ...records import BatchSizeSource, Following, LoaderInfo, NormLayers, OptimizerInfo, SourceLine
from ..loader.batch_sampler import SteeredBatchSampler
from ..loader.loader_facts import attribute_size, cut_by
from ..loader.loader_handle import LoaderHandle
from ..loader.norm_inputs import NormInputs
from ..loader.remade_samplers import BUDGET_NAME
from ..loader.sharing import own_dataset
from ..source.batch_size_source import find_accumulation_source, find_batch_size_source
from ..source.call_site import user_call_sites, user_files
from ..source.following import Told, find_dataset_size, find_whole
from ..source.left_out import find_left_out
from ..source.setting_source import find_setting_source
from .optimizers import Optimizers
from .own_updates import OwnUpdates
from .training_cycle import CycleFinder

PATIENCE_CYCLES = 12
"""An optimizer that was made and has not stepped is waited for: some step every n-th batch."""


class ScriptWatch:
    """Is told of whatever the script makes; every door has one.

    Args:
        arguments: the script's command line.
        batch_cap: the script's own batches are cut to this size.
        worst_case: trials begin with the longest samples.
        ends_epochs: loaders end their epochs where the script expects it.

    Attributes:
        handles: of the loaders, in the order in which they were made.
        cycles: of fetches and steps.
        native_step_s: seconds of the last cycle of the script's own size.
        own_updates: the backward passes, and the updates that the script makes itself.
        empty: a loader whose first fetch for training gave no batch.
        settings: gives the settings files that the script has read so far.
        aside: the loader that the last batch came from, if it does not train; else `None`.
        apart: makes the context in which loaders begin an epoch, apart from steps without contents.
    """

    def __init__(
        self,
        arguments: tuple[str, ...],
        *,
        batch_cap: int | None = None,
        worst_case: bool = False,
        ends_epochs: bool = False,
    ) -> None:
        self._ends_epochs = ends_epochs
        self._arguments = arguments
        self._batch_cap = batch_cap
        self._worst_case = worst_case
        self._by_loader: dict[int, LoaderHandle] = {}
        self._making: WeakKeyDictionary[Any, tuple[SourceLine, ...]] = WeakKeyDictionary()
        self._datasets: dict[int, Told] = {}
        self._made_at: dict[int, tuple[SourceLine, ...]] = {}
        self._sources: dict[object, BatchSizeSource | None] = {}
        self._optimizers = Optimizers()
        self._norm_inputs = NormInputs()
        self._stepping_thread: int | None = None
        self._always_evaluates = True
        self._begin_cycle()
        self.handles: list[LoaderHandle] = []
        self.cycles = CycleFinder()
        self.own_updates = OwnUpdates()
        self.native_step_s = 0.0
        self.empty: LoaderInfo | None = None
        self.aside: LoaderHandle | None = None
        self.apart: Callable[[], AbstractContextManager[None]] = nullcontext
        self.settings: Callable[[], tuple[tuple[Path, str], ...]] = tuple

    @property
    def num_steps(self) -> int:
        """Optimizer steps so far."""
        return self.cycles.num_steps

    @property
    def num_fetches(self) -> int:
        """Batches fetched so far with gradients enabled."""
        return self.cycles.num_fetches

    @property
    def gave_batches(self) -> bool:
        """Whether the script fetched from any loader, for training or not."""
        return any(handle.was_asked for handle in self.handles)

    @property
    def num_loaders(self) -> int:
        """Loaders made so far."""
        return len(self.handles)

    @property
    def steps_in_other_thread(self) -> bool:
        """Whether the last step was made in another thread than this one."""
        return self._stepping_thread not in (None, threading.get_ident())

    # what the script makes -------------------------------------------------------------------

    def makes_loader(self, loader: Any) -> None:
        """A DataLoader is about to be constructed."""
        # No hash, or one of what is not there yet.
        with contextlib.suppress(TypeError, AttributeError):
            self._making[loader] = user_call_sites()

    def made_loader(self, loader: Any, sites: Sequence[SourceLine] = ()) -> None:
        """A DataLoader was constructed.

        Args:
            sites: lines of the script that made it; those that run now if not given.
        """
        place, *callers = sites or user_call_sites() or (None,)
        size = loader.batch_size or attribute_size(cut_by(loader))
        source = self.source_of(place, size, callers)
        original = self._wrapped(loader)
        if original is not None:
            # A framework wraps a loader of the script's: its line is the one to change.
            place, source = original.place, original.source
        handle = LoaderHandle(
            loader,
            len(self.handles),
            place,
            source,
            self._batch_cap,
            worst_case=self._worst_case,
            ends_epochs=self._ends_epochs,
        )
        self._datasets[handle.ordinal] = Told.of(own_dataset(loader))
        self._made_at[handle.ordinal] = (*([place] if place is not None else []), *callers)
        self.handles.append(handle)
        # By identity, not by call site: one line may make several loaders. The handle keeps no
        # reference, so a dead loader's number may come again and is overwritten here.
        self._by_loader[id(loader)] = handle

    def _wrapped(self, loader: Any) -> LoaderHandle | None:
        """The loader of the script's that a framework makes another one of; `None` without."""
        sampler = loader.batch_sampler
        while sampler is not None:
            if isinstance(sampler, SteeredBatchSampler):
                assert isinstance(sampler.handle, LoaderHandle)
                return sampler.handle
            sampler = getattr(sampler, "batch_sampler", None)
        dataset = own_dataset(loader)
        if dataset is loader.dataset:
            return None
        return next((each for each in reversed(self.handles) if each.reads(dataset)), None)

    def stop_cutting(self) -> None:
        """Loaders that are made from now on yield batches of their own size."""
        self._batch_cap = None

    def try_size(self, handle: LoaderHandle) -> None:
        """Finds out how a loader takes a size, and where a budget is written."""
        handle.try_size()
        budget = handle.budget
        if budget is None:
            return
        names = (budget.parameter, BUDGET_NAME) if budget.parameter else (BUDGET_NAME,)
        written = None
        for name in names:
            written = written or find_setting_source(
                name,
                (budget.own, budget.at_most),
                self._made_at.get(handle.ordinal, ()),
                self._arguments,
                handle.sampler_name,
                settings=self.settings(),
                files=user_files(),
            )
        if written is None:
            handle.source = None  # a line that sets a number of samples is not the one to change
        else:
            handle.source, parameter, own = written
            handle.name_budget(parameter, own)

    def source_of(
        self, place: SourceLine | None, size: int | None, callers: Sequence[SourceLine] = ()
    ) -> BatchSizeSource | None:
        """Where the size of what was made at a place is written.

        It is looked for once: a script may make a loader in every step, also in those timed.
        """
        settings = self.settings()
        asked = place, size, tuple(callers), settings
        if asked not in self._sources:
            self._sources[asked] = find_batch_size_source(
                place, size, self._arguments, callers, settings=settings, files=user_files()
            )
        return self._sources[asked]

    def accumulation_source(self, micro_batches: int) -> BatchSizeSource | None:
        """Where the micro-batches of an optimizer step are written."""
        return find_accumulation_source(
            micro_batches, self._arguments, self.settings(), user_files()
        )

    def following(self, primary: LoaderHandle, micro_batches: int) -> tuple[Following, ...]:
        """Numbers that have to change with the size of a loader."""
        size = primary.batch_size
        if size is None or primary.budget is not None:
            return ()
        files = user_files()
        whole = find_whole(size, micro_batches, self.settings(), files)
        of_data = find_dataset_size(self._datasets.get(primary.ordinal), size, files)
        return tuple(filter(None, (primary.shared, whole, of_data)))

    def leaves_out(self) -> str:
        """How the training loop itself leaves out a short batch, in words; or empty."""
        return find_left_out(user_files())

    def made_optimizer(self, optimizer: Any) -> None:
        """An optimizer was constructed."""
        self._optimizers.add(optimizer)

    def handle_of(self, loader: Any) -> LoaderHandle | None:
        """The handle of a loader; one that was not seen when it was made gets it: a copy, or one
        whose class does not call torch's."""
        known = self._by_loader.get(id(loader))
        if known is None or not known.is_of(loader):
            sites: tuple[SourceLine, ...] = ()
            with contextlib.suppress(TypeError, AttributeError):
                sites = self._making.get(loader, ())
            self.made_loader(loader, sites)
        return self._by_loader.get(id(loader))

    # what the script does --------------------------------------------------------------------

    def fetched(self, handle: LoaderHandle, *, trains: bool) -> None:
        """A loader gave a batch; before the first step none is known to train."""
        self.aside = handle if self.num_steps and not trains else None
        if trains:
            self._last_s = time.monotonic()
        else:
            self.evaluated()

    def evaluated(self) -> None:
        """What the script did since its last step, or its last batch, was no part of a step."""
        now = time.monotonic()
        if self.num_steps:  # what comes before the first step is no part of one anyway
            self._aside_s += now - self._last_s
        self._last_s = now

    def stepped(self, optimizer: Any, *, replaces: bool = False) -> None:
        """An optimizer made a step.

        Args:
            replaces: those that trained the same before are not waited for any more.
        """
        cycles, optimizers = self.cycles, self._optimizers
        ordinal = optimizers.ordinal_of(optimizer)
        cycles.forget(optimizers.gone(cycles.optimizers))
        if ordinal not in cycles.optimizers:
            optimizers.look(ordinal)
            if replaces:
                cycles.forget(optimizers.replaced_by(optimizer, cycles.optimizers))
        cycles.stepped(ordinal)
        self._last_s = time.monotonic()
        self._stepping_thread = threading.get_ident()

    def cycle_ended(self, evaluated_s: float = 0.0) -> None:
        """A cycle of the script's own size ended; its time is that of a step, without an evaluation
        unless each has one.

        Args:
            evaluated_s: when an evaluation ended, which may have come before it.
        """
        now = time.monotonic()
        self._always_evaluates = self._always_evaluates and self._aside_s > 0
        if evaluated_s > self._cycle_started_s:
            self.native_step_s = now - evaluated_s
        else:
            aside_s = 0.0 if self._always_evaluates else self._aside_s
            self.native_step_s = now - self._cycle_started_s - aside_s
        self._begin_cycle()

    def _begin_cycle(self) -> None:
        self._cycle_started_s = self._last_s = time.monotonic()
        self._aside_s = 0.0

    def forget_cycles(self) -> None:
        """Looks for cycles anew: the counts so far say nothing."""
        self.cycles = CycleFinder()

    @property
    def just_past_epoch(self) -> bool:
        """Whether a loader that trains went on beyond the end of its epoch just now."""
        return any(handle.trains and handle.epochs.just_past for handle in self.handles)

    @property
    def is_new_size(self) -> bool:
        """Whether no step was made yet at a size that is asked of a loader that trains."""
        asked = [
            each for each in self.handles if each.trains and each.asked not in (None, each.native)
        ]
        return bool(asked) and not any(each.epochs.has_stepped(each.asked) for each in asked)

    def note_empty(self, handle: LoaderHandle) -> None:
        """A loader gave no batch at all."""
        self.empty = handle.info()

    def awaits_optimizers(self) -> bool:
        """Whether parameters may get an optimizer's step that none has stepped so far.

        The generator of a GAN may step every fifth batch; a cycle without it would be another.
        """
        patient = self.cycles.num_cycles < PATIENCE_CYCLES
        return patient and self._optimizers.would_train_more(self.cycles.optimizers)

    # what is known of them -------------------------------------------------------------------

    def parameters(self) -> list[torch.Tensor]:
        """The parameters of the optimizers that step."""
        return self._optimizers.parameters(self.cycles.optimizers)

    def optimizer_infos(self) -> tuple[OptimizerInfo, ...]:
        """The record of each optimizer."""
        return self._optimizers.infos(self.cycles.optimizers)

    def look_at_norms(self) -> None:
        """From now on the inputs of normalisation layers are seen; only the first call counts.

        A cycle has just ended: going through all objects takes longer than most steps.
        """
        if not self._norm_inputs.watched:
            self._norm_inputs.watch()
            self._begin_cycle()

    def norm_layers(self, batch_size: int) -> tuple[NormLayers, str]:
        """The normalisation layers, and why their inputs are not known; ends the look.

        Args:
            batch_size: samples of the batches meanwhile.
        """
        return self._norm_inputs.layers(self.parameters(), batch_size)
