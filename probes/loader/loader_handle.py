"""The handle of one DataLoader: its batch sampler and its iterator yield sizes that are asked for.

Before discovery every loader yields exactly what the script asked for. From then on a training
loader yields batches of any size, for ever: its sampler is started again when it runs out.
"""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable
from typing import Any

import msgspec
import torch
from torch.utils.data import BatchSampler, DataLoader, IterableDataset

from ...records import BatchSizeSource, Following, InputSize, LengthChoice, LoaderInfo, SourceLine
from .batch_sampler import SteeredBatchSampler, names_size, pop_issue, steered
from .batch_size_reader import BY_BUDGET, DRAWN, BatchSizeReader, falls_short
from .budgets import Budget
from .chosen_batches import ChosenBatches, census_of, why_unknown
from .cycled_dataset import CycledDataset, own_of
from .epochs import Epochs, began_anew
from .lengths import Lengths
from .loader_facts import attribute_size, budget_facts, cut_by, facts_of, samples_of
from .one_pass import pass_samples_again, passed_again
from .sample_lengths import SampleLengths
from .sharing import whole_of, why_dispatched
from .taken_sizes import batches_of_a_sampler, how_taken, part_of


class LoaderHandle:
    """Our facts about one DataLoader, and the size that we ask of it.

    Attributes:
        asked: samples per batch, `None` for the script's own.
        cap: upper bound on the script's own batches.
        native: samples per batch as the script is written, once seen.
        num_seen: samples of the script's own batches, the most of one.
        budget: how its batch sampler takes a budget, where sizes are budgets.
        shared: the size that its batch sampler names, where that is of a batch of several ranks.
        epochs: how far the present one is, and whether they end.
        taken_ahead: batches of the present iterator, and the training cycles before its first.
        was_asked: whether the script fetched from it, whatever came.
        steps_at_fetch: optimizer steps of the script before the last batch for training.
        steps_between: the most of them between two such batches.
    """

    def __init__(
        self,
        loader: DataLoader[Any],
        ordinal: int,
        place: SourceLine | None,
        source: BatchSizeSource | None,
        cap: int | None,
        *,
        worst_case: bool = False,
        ends_epochs: bool = False,
    ) -> None:
        self._loader = weakref.ref(loader)
        self.ordinal = ordinal
        self.place = place
        self.source = source
        self.cap = cap
        self.asked: int | None = None
        self.trains = False
        self.reader = BatchSizeReader()
        self.native: int | None = None
        self.arrived: int | None = None
        self.proof: str = ""
        self._looked_at: int | None = None
        self.lengths = Lengths()
        self._worst_case = worst_case
        self.chosen = ChosenBatches()
        self.iterable = isinstance(loader.dataset, IterableDataset)
        self.taken_ahead = (0, 0)
        self.epochs = Epochs(end=ends_epochs)
        self.was_asked = False
        self.steps_at_fetch = self.steps_between = 0
        self._iterator: weakref.ref[Any] | None = None
        self._fetched_from: weakref.ref[Any] | None = None
        self.cannot_steer = "" if loader.batch_sampler is not None else "the dataset batches itself"
        self._in_order = bool(getattr(loader, "in_order", True)) or loader.num_workers == 0
        self._max_stale = 8 + 4 * loader.num_workers * (loader.prefetch_factor or 1)
        native = loader.batch_sampler
        if isinstance(native, SteeredBatchSampler):
            native = native.native  # a framework made this loader from another one
        self.batch_size = loader.batch_size or attribute_size(native)
        self.remakes = False
        self.budget: Budget | None = None
        self.shared: Following | None = None
        whole = whole_of(loader)
        if whole is not None:
            number, ranks = whole
            self._note_shared("batch_size", number, number // ranks)
        self.num_seen: int | None = None
        self._sample_lengths: SampleLengths | None = None
        self.approximate = native is not None and not names_size(native)
        if native is not None:
            pass_samples_again(loader, native)
            # The attribute is guarded by DataLoader.__setattr__, so that nobody changes it by
            # accident; we do it on purpose.
            loader.__dict__["batch_sampler"] = steered(passed_again(native), self)
        elif not self.iterable and batches_of_a_sampler(loader):
            if cut_by(loader) is not None:
                self.cannot_steer, self.batch_size = "", attribute_size(loader.sampler)
                pass_samples_again(loader, loader.sampler)
            loader.__dict__["sampler"] = steered(passed_again(loader.sampler), self)

    def ask(self, batch_size: int) -> None:
        """From the next fetch on, batches have this size."""
        self.asked = batch_size

    def note_training(self, *, trains: bool) -> None:
        """Whether its batches are trained on, as is known once the loop is found."""
        self.trains = trains

    def try_size(self) -> None:
        """Finds out how a batch sampler of the script's own takes a size; the loop waits.

        By its attribute, by being made anew, by a budget of tokens, or not at all: then its batches
        are flattened.
        """
        loader, native = self._loader(), self._native
        # torch's own takes any: nothing is asked of a data set that has no need of it.
        if loader is None or type(native) in (type(None), BatchSampler) or self.iterable:
            return
        taken = how_taken(
            native,
            self.batch_size or self.native or 1,
            samples_of(loader) or 0,
            self.sample_lengths if self._in_order else None,
            is_list=loader.batch_sampler is not None,
        )
        self.remakes, self.budget, self.approximate = taken
        if self.budget is not None:
            self.cannot_steer = ""
            self.native = self.batch_size = self.budget.own
        elif self.approximate and self.batch_size is not None:
            part = part_of(native, self.batch_size, samples_of(loader) or 0)
            if part < self.batch_size:
                self._note_shared(f"{self.sampler_name}'s batch_size", self.batch_size, part)
                self.native = part

    def _note_shared(self, name: str, number: int, part: int) -> None:
        """The script names a size of which this rank gets a part."""
        self.shared = Following(name=name, number=number, source=self.source, is_shared=True)
        self.source, self.batch_size = None, part

    def name_budget(self, parameter: str, own: int) -> None:
        """Notes the name of the script's budget, and its own value."""
        assert self.budget is not None
        own_name = self.budget.parameter or parameter
        self.budget = msgspec.structs.replace(self.budget, parameter=own_name, own=own)
        self.native = self.batch_size = own

    @property
    def sampler_name(self) -> str:
        """The class of the script's own batch sampler."""
        return type(self._native).__name__

    @property
    def _native(self) -> Any:
        """The sampler that our stand-in replaced; `None` without one."""
        loader = self._loader()
        if loader is None:
            return None
        stand_in = loader.sampler if loader.batch_sampler is None else loader.batch_sampler
        return getattr(stand_in, "native", None)

    @property
    def sample_lengths(self) -> SampleLengths:
        """How long the samples are, as far as that was looked at."""
        if self._sample_lengths is None:
            loader, native = self._loader(), self._native
            dataset = () if loader is None else loader.dataset
            self._sample_lengths = SampleLengths(dataset, (native, getattr(native, "sampler", 0)))
        return self._sample_lengths

    def is_of(self, loader: Any) -> bool:
        """Whether this is the loader's, and not that of a dead one with the same number."""
        return self._loader() is loader

    def reads(self, dataset: Any) -> bool:
        """Whether its loader is there, and reads this data set."""
        loader = self._loader()
        return loader is not None and loader.dataset is dataset

    def taken(self, iterator: Any, num_cycles: int) -> None:
        """A batch of this iterator went to the script, after so many training cycles."""
        if self._iterator is None or self._iterator() is not iterator:
            self._iterator = weakref.ref(iterator)
            self.taken_ahead = (0, num_cycles)
        num_batches, since = self.taken_ahead
        self.taken_ahead = (num_batches + 1, since)

    def holds_all(self) -> bool:
        """Whether the loader's workers have made every batch that it may hold ready.

        Not where nothing tells: it has no workers, or keeps its batches as torch does not.
        """
        iterator = None if self._fetched_from is None else self._fetched_from()
        if iterator is None:
            return False
        inner = iterator.__dict__.get("_batchadvisor_inner", iterator)
        ready, wanted = (
            getattr(inner, name, None) for name in ("_data_queue", "_tasks_outstanding")
        )
        if ready is None or wanted is None:
            return False
        try:
            return bool(ready.qsize() >= wanted)
        except NotImplementedError:  # on macOS, of a queue between processes
            return False

    def note_steps(self, num_steps: int) -> None:
        """A batch for training goes to the script after so many optimizer steps."""
        if self.taken_ahead[0] or self.trains:  # the first comes after those of whatever else
            self.steps_between = max(self.steps_between, num_steps - self.steps_at_fetch)
        self.steps_at_fetch = num_steps

    def succeeds(self, other: LoaderHandle, *, kept: bool = False) -> bool:
        """Whether its loader was made where another was that is gone: one is made for each epoch.

        Then it goes on as the other did.

        Args:
            kept: the other need not be gone.
        """
        if self.place is None or self.place != other.place:
            return False
        if other._loader() is not None and not kept:
            return False
        if self.cannot_steer:
            return False
        self.trains, self.asked = other.trains, other.asked
        self.native, self.reader = other.native, other.reader
        self.approximate, self.lengths = other.approximate, other.lengths
        self.remakes, self.steps_between = other.remakes, other.steps_between
        self.steps_at_fetch = max(self.steps_at_fetch, other.steps_at_fetch)
        self.epochs.go_on_as(other.epochs)
        self.budget, self._sample_lengths = other.budget, other._sample_lengths
        if other.budget is not None or other.shared is not None:
            self.batch_size = other.batch_size
        if other.shared is not None:
            self.shared, self.source = other.shared, None
        self.chosen = other.chosen
        other.note_training(trains=False)
        return True

    def called(self) -> str:
        """Its last batch, in words."""
        where = "" if self.place is None else f" made at {self.place.file}:{self.place.line}"
        return f"a batch of {self.arrived or self.batch_size} of the loader{where}"

    def info(self) -> LoaderInfo:
        """The record of this loader."""
        loader = self._loader()
        steered = f"no: {self.cannot_steer}" if self.cannot_steer else "exact"
        if self.approximate:
            steered = "approximate"
        facts = facts_of(loader, self.native)
        # The length of a stream is this rank's part already.
        whole = None if self.iterable else self.shared
        if whole is not None and facts["num_samples"] and self.batch_size:
            facts["num_samples"] = facts["num_samples"] * self.batch_size // whole.number
        return LoaderInfo(
            ordinal=self.ordinal,
            place=self.place,
            batch_size=self.batch_size or self.native,
            iterable=self.iterable,
            steered=steered,
            trains=self.trains,
            source=self.source,
            start_s=self.epochs.start_s,
            **budget_facts(self.budget, self.sample_lengths if self.budget else None),
            **facts,
        )

    def why_dispatched(self) -> tuple[str, str]:
        """Why no size can be asked of it once a framework wrapped it, and what to do; or empty."""
        loader = self._loader()
        return ("", "") if loader is None else why_dispatched(loader)

    @property
    def why_unordered(self) -> str:
        """Why a trial cannot begin with samples of a chosen length; empty if it can."""
        return why_unknown(self._loader(), self.sample_lengths)

    def begin_trial(self, length: LengthChoice = "", batches_a_step: int = 1) -> None:
        """With the next batch a trial begins.

        Args:
            length: the samples to begin with, where `--worst-case` does not say it.
            batches_a_step: of the script.
        """
        self.lengths.begin()
        self.chosen.begin(length or ("longest" if self._worst_case else ""), batches_a_step)

    def inputs(self) -> InputSize | None:
        """Sizes of the batches of the trial that ends now."""
        used, loader = self.chosen.used, self._loader()
        inputs = self.lengths.take(always=used is not None or self.proof == "indices")
        if used is None or inputs is None or loader is None:
            return inputs
        census = census_of(self.sample_lengths, samples_of(loader))
        return msgspec.structs.replace(inputs, chosen=used, census=census)

    def note_flattened(self) -> None:
        """The script's batch sampler does not follow its size: its batches are cut again."""
        self.approximate = True

    def fetch(
        self, iterator: Any, native_next: Callable[[Any], Any], *, training: bool = True
    ) -> Any:
        """The next batch for the script; under steering, one of the asked size.

        Batches that were prefetched with an older size are dropped, an iterator that ran out is
        replaced.

        Args:
            training: whether it may be trained on.

        Raises:
            StopIteration: the script's own epoch is over, or the dataset yields nothing.
        """
        self.was_asked = True
        self._fetched_from = weakref.ref(iterator)
        inner = iterator.__dict__.get("_batchadvisor_inner", iterator)
        times = (self.asked or 1) / (self.native or 1)
        is_seen = self.epochs.is_seen(iterator, times, training=training)
        if self.asked is None:
            self.epochs.look(self._loader())
            begun_s = time.perf_counter()
            batch = native_next(inner)
            self.epochs.waited(time.perf_counter() - begun_s)
            self.epochs.gave(iterator)
            self._note(batch, pop_issue(inner))
            return batch
        if is_seen:
            began_anew(iterator)
            raise StopIteration
        if self.epochs.is_over(iterator):
            raise StopIteration
        if self.iterable and not self.epochs.trains_on(iterator):
            return self._of_own_stream(iterator, inner, native_next)
        restarts = 0
        batch = None
        if self.iterable:
            if self.chosen.wanted or not isinstance(inner._dataset, CycledDataset):
                inner = self._begin_stream(iterator, inner)
            # The length that an iterable dataset promised does not hold for an endless one.
            inner._IterableDataset_len_called = None
        for _ in range(self._max_stale):
            try:
                batch = native_next(inner)
            except StopIteration:
                restarts += 1
                if restarts > 2:
                    raise
                inner = renewed(self._loader(), iterator, inner)
                continue
            issue = pop_issue(inner)
            if self._is_current(batch, issue):
                break
        self.epochs.gave(iterator)
        self._note(batch, issue)
        return batch

    def _begin_stream(self, iterator: Any, inner: Any) -> Any:
        """A stream from its beginning, behind the longest of its samples if a trial wants these."""
        loader = self._loader()
        if loader is None:
            raise StopIteration
        stream = self.chosen.stream(loader, self.asked or 1, self.sample_lengths)
        return renewed_over(stream, loader, iterator, inner)

    def _of_own_stream(self, iterator: Any, inner: Any, native_next: Callable[[Any], Any]) -> Any:
        """A batch of a pass that nothing is trained on: it ends where the script's stream does."""
        loader, stream = self._loader(), inner._dataset
        if loader is not None and isinstance(stream, CycledDataset):
            loader.__dict__["dataset"] = own_of(stream)
            inner = renewed(loader, iterator, inner)
            loader.__dict__["dataset"] = stream
        inner._IterableDataset_len_called = None  # of batches of the script's own size
        batch = native_next(inner)
        self.epochs.gave(iterator)
        return batch

    def _is_current(self, batch: Any, issue: tuple[int | None, int] | None) -> bool:
        if issue is not None and self._in_order and not self.iterable:
            return issue[0] == self.asked  # the only way where sizes are budgets
        size = self.reader.read(batch)
        if size is None and issue is not None and self._in_order:
            return issue[0] == self.asked
        if size is None or size == self.asked:
            return True
        return issue == (self.asked, self.asked) and self._in_order and self._falls_short(size)

    def _note(self, batch: Any, issue: tuple[int | None, int] | None) -> None:
        """Remembers the size of a batch on its way to the script."""
        # A stream may end before its batch is full, unless it goes round.
        sure = not self.iterable or self.asked is not None
        by_index = issue[1] if issue is not None and sure else None
        if self.asked is None:
            expected = by_index or self.batch_size
            if expected is not None and self.cap is not None:
                expected = min(expected, self.cap)
            if expected is not None:
                self.reader.learn(batch, expected)
        size = self.reader.read(batch)
        differs = self.reader.undecided if size is None else size != by_index
        if size is not None and self._falls_short(size):  # looked at once, as it takes its time
            differs, self._looked_at = self._looked_at != self.asked, self.asked
        if by_index is not None and self.asked is not None and differs:
            # An axis that happened to be as long as the script's own size does not follow ours.
            self.reader.learn(batch, by_index)
            size = self.reader.read(batch)
        self.proof = "shape" if size is not None else "indices" if by_index is not None else ""
        if size is not None and by_index == self._wanted and self._falls_short(size):
            self.proof = DRAWN
        if self.budget is not None and self.asked is not None:
            self.proof = BY_BUDGET
        self.arrived = size if size is not None else by_index
        self.lengths.note(batch, None if self.reader.undecided else self.arrived)
        if self.asked is None and self.arrived is not None:
            # The largest one seen: the last batch of an epoch may be short.
            self.num_seen = max(self.num_seen or 0, self.arrived)
            self.native = self.num_seen if self.budget is None else self.budget.own

    @property
    def _wanted(self) -> int | None:
        """Samples of a batch, as far as it is known."""
        return self.asked or self.batch_size

    def _falls_short(self, size: int) -> bool:
        """Whether a collate function may have left some of the samples out."""
        wanted = self._wanted
        return self.budget is None and wanted is not None and falls_short(size, wanted)


def is_training_fetch() -> bool:
    """Whether a batch fetched now can be meant for a backward pass."""
    return torch.is_grad_enabled() and not torch.is_inference_mode_enabled()


def renewed(loader: Any, iterator: Any, inner: Any) -> Any:
    """Makes the script's iterator read from a fresh one from now on, and returns that.

    Args:
        loader: `None` where it is gone.
        iterator: that the script holds.
        inner: what that has read from so far.

    Raises:
        StopIteration: the loader is gone.
    """
    if loader is None:
        raise StopIteration
    if hasattr(inner, "_shutdown_workers"):
        inner._shutdown_workers()
    if loader._iterator is inner:
        loader._iterator = None  # persistent workers: it would be used again
    fresh = type(iterator)(loader)
    iterator.__dict__["_batchadvisor_inner"] = fresh
    return fresh


def renewed_over(stream: CycledDataset, loader: Any, iterator: Any, inner: Any) -> Any:
    """Makes the iterator read another stream; a pass that the script begins later has none of its
    first samples."""
    loader.__dict__["dataset"] = stream
    fresh = renewed(loader, iterator, inner)
    loader.__dict__["dataset"] = stream.starting_with((), 0)
    return fresh
