"""Steering: the script's own training loop, with batches of our size.

`patches.py` calls in here whenever the script makes a loader or an optimizer, fetches a batch or
makes an optimizer step. Until a whole training cycle has been seen, everything passes as the
script wants it. From then on every step boundary belongs to the conductor, which says what the
next batch size is.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any, Protocol

import torch

from ..records import Discovery, Door, InputSize, LoaderInfo
from .batch_sampler import SteeredBatchSampler
from .batch_size_source import find_batch_size_source
from .call_site import user_call_sites
from .discovery import CycleFinder, Rhythm
from .gauge import BatchGauge
from .loaders import LoaderHandle, is_training_fetch
from .norm_inputs import NormInputs
from .norms import is_compiled
from .optimizers import Optimizers
from .swallowed import Witness

MAX_FETCHES_WITHOUT_STEP = 1000
STEPS_WITHOUT_FETCH = 3
PATIENCE_CYCLES = 12
"""An optimizer that was made and has not stepped is waited for: some step every n-th batch."""
FETCHES_WITHOUT_STEP = 64
"""Batches for a step of one micro-batch after which there will be none."""
MOST_AHEAD = 32
"""A script that takes batches more steps ahead than this is looking at its data, not training."""
UNSTEADY = "the optimizer makes several steps for some batches, and not as many for each"


class StepConductor(Protocol):
    """Who decides at step boundaries; see conductor.py."""

    no_input: str
    num_ahead: int

    def found(self, discovery: Discovery, device: torch.device) -> None: ...
    def boundary(self, num_steps: int = 1) -> None: ...
    def arrived(
        self, num_samples: int | None, proof: str, wait_s: float, *, primary: bool
    ) -> None: ...
    def stepped_elsewhere(self) -> None: ...
    def no_step(self, num_fetches: int, witness: Witness) -> None: ...
    def cannot_steer(
        self, reason: str, remedy: str, *, usage: bool = False, door: Door | None = None
    ) -> None: ...
    def discovering(self, num_steps: int) -> None: ...


class Steering:
    """The state of one steered script.

    Args:
        conductor: decides at step boundaries.
        loader: ordinal of the loader to steer; `None` takes the one that trains.
        batch_cap: the script's own batches are cut to this size.
        arguments: the script's command line.
        started_s: `time.monotonic()` at the start of the process.

    Attributes:
        steering: the loop was found, its sizes are ours.
        worst_case: trials begin with the longest samples.
        empty: a loader whose first fetch for training gave no batch.
        handed: makes what the script gets in place of a batch of the primary loader.
        passive: somebody else asks the loaders for sizes and knows where steps end.
    """

    def __init__(
        self,
        conductor: StepConductor,
        *,
        loader: int | None,
        batch_cap: int | None,
        arguments: tuple[str, ...],
        started_s: float,
    ) -> None:
        self._conductor = conductor
        self._wanted_loader = loader
        self._batch_cap = batch_cap
        self._arguments = arguments
        self._started_s = started_s
        self._handles: list[LoaderHandle] = []
        self._by_loader: dict[int, LoaderHandle] = {}
        self._optimizers = Optimizers()
        self._cycles = CycleFinder()
        self._primary: LoaderHandle | None = None
        self._cycle_started_s = time.monotonic()
        self._native_step_s = 0.0
        self._fetches_in_cycle = 0
        self._batches_a_cycle = 1
        self._rhythm: Rhythm | None = None
        self._stepping_thread: int | None = None
        self._witness = Witness()
        self._norm_inputs = NormInputs()
        self._without_gradients = False
        self._fetched_without = False
        self._num_fed_without = 0
        self._used = False
        self._fed_elsewhere = False
        self.empty: LoaderInfo | None = None
        self.handed: Callable[[Any, int | None, BatchGauge], Any] | None = None
        self.steering = False
        self.passive = False
        self.worst_case = False

    @property
    def num_steps(self) -> int:
        """Optimizer steps so far."""
        return self._cycles.num_steps

    @property
    def num_fetches(self) -> int:
        """Batches fetched so far with gradients enabled."""
        return self._cycles.num_fetches

    @property
    def num_loaders(self) -> int:
        """Loaders made so far."""
        return len(self._handles)

    # what the script makes -------------------------------------------------------------------

    def made_loader(self, loader: Any) -> None:
        """A DataLoader was constructed."""
        place, *callers = user_call_sites() or (None,)
        size = loader.batch_size or getattr(loader.batch_sampler, "batch_size", None)
        source = None
        if place is not None:
            source = find_batch_size_source(place, size, self._arguments, callers)
        if isinstance(loader.batch_sampler, SteeredBatchSampler):
            # A framework wraps a loader of the script's: its line is the one to change.
            original = loader.batch_sampler.handle
            assert isinstance(original, LoaderHandle)
            place, source = original.place, original.source
        handle = LoaderHandle(loader, len(self._handles), place, source, self._batch_cap)
        handle.worst_case = self.worst_case
        self._handles.append(handle)
        # By identity, not by call site: one line may make several loaders. The handle keeps no
        # reference, so a dead loader's number may come again and is overwritten here.
        self._by_loader[id(loader)] = handle

    def made_optimizer(self, optimizer: Any) -> None:
        """An optimizer was constructed."""
        self._optimizers.add(optimizer)

    def handle_of(self, loader: Any) -> LoaderHandle | None:
        """The handle of a loader; one that was not made here, but copied or unpickled, gets it."""
        known = self._by_loader.get(id(loader))
        if known is None or not known.is_of(loader):
            self.made_loader(loader)
        return self._by_loader.get(id(loader))

    # what the script does --------------------------------------------------------------------

    def stepped(self, optimizer: Any) -> None:
        """An optimizer made a step."""
        if self.passive:
            return
        self._note_step(optimizer)
        self._num_fed_without += self._fetched_without
        self._fetched_without = False
        self._used = True
        if self._fed_elsewhere:
            self._fed_elsewhere = False
            self._conductor.stepped_elsewhere()
        if not self.steering and self._cycles.num_steps >= STEPS_WITHOUT_FETCH:
            self._check_fetches()

    def next_batch(
        self, handle: LoaderHandle, iterator: Any, native_next: Callable[[Any], Any]
    ) -> Any:
        """The script fetches from a loader: the only place where it waits for us."""
        if self.passive:
            return handle.fetch(iterator, native_next)
        training = is_training_fetch() or self._without_gradients
        self._fetched_without = self._fetched_without or not training
        if training and self.steering and not handle.trains:
            self._succeed(handle)
        if training and (not self.steering or handle is self._primary):
            if self._stepping_thread not in (None, threading.get_ident()):
                self._cycles.apart = True
            self._before_fetch()
            if self.steering and not handle.trains:  # the loop was found just now
                self._succeed(handle)
        if training and self.steering:
            self._note_turn(handle)
        start = time.perf_counter()
        try:
            batch = handle.fetch(iterator, native_next)
        except StopIteration:
            if training and handle.arrived is None:
                self.empty = handle.info()
            raise
        wait_s = time.perf_counter() - start
        if training:
            if not self.steering:
                handle.taken(iterator, self._cycles.num_cycles)
            self._cycles.fetched(handle.ordinal)
            if self.steering and handle.trains:
                primary = handle is self._primary
                self._conductor.arrived(handle.arrived, handle.proof, wait_s, primary=primary)
                if primary and self.handed is not None:
                    return self.handed(batch, handle.arrived, handle.gauge)
        return batch

    def ask(self, batch_size: int) -> None:
        """A trial of this size begins; see `resize`."""
        assert self._primary is not None
        self._primary.begin_trial()
        self.resize(batch_size)

    def resize(self, batch_size: int) -> None:
        """From the next fetch on, the primary loader yields this size; others keep their ratio."""
        assert self._primary is not None
        for handle in self._handles:
            if handle is self._primary:
                handle.asked = batch_size
            elif handle.cannot_steer:
                continue
            elif handle.trains and handle.native and self._primary.native:
                handle.asked = max(1, round(handle.native * batch_size / self._primary.native))

    def inputs(self) -> InputSize | None:
        """How the batches of the trial that ends now varied."""
        return None if self._primary is None else self._primary.lengths.take()

    def parameters(self) -> list[torch.Tensor]:
        """The parameters of the optimizers that step."""
        return self._optimizers.parameters(self._cycles.optimizers)

    # inside ----------------------------------------------------------------------------------

    def _note_step(self, optimizer: Any) -> None:
        cycles, optimizers = self._cycles, self._optimizers
        ordinal = optimizers.ordinal_of(optimizer)
        cycles.forget(optimizers.gone(cycles.optimizers))
        if ordinal not in cycles.optimizers:
            optimizers.look(ordinal)
            if self.steering:
                cycles.forget(optimizers.replaced_by(optimizer, cycles.optimizers))
        cycles.stepped(ordinal)
        self._stepping_thread = threading.get_ident()

    def _awaits_optimizers(self) -> bool:
        """Whether parameters may get an optimizer's step that none has stepped so far.

        The generator of a GAN may step every fifth batch; a cycle without it would be another.
        """
        patient = self._cycles.num_cycles < PATIENCE_CYCLES
        return patient and self._optimizers.would_train_more(self._cycles.optimizers)

    def _note_turn(self, handle: LoaderHandle) -> None:
        """Whether a batch of a size that is not ours comes after the step of the primary's.

        One that comes before it belongs to the same step. Where batches are taken ahead of their
        steps, nothing tells whose step it is.
        """
        if handle is self._primary:
            self._used = self._fed_elsewhere = False
        elif self._used and handle.asked is None and not self._conductor.num_ahead:
            self._fed_elsewhere = True

    def _succeed(self, handle: LoaderHandle) -> None:
        """A loader that was made anew takes the place of the one before it."""
        for other in self._handles:
            if other.trains and handle.succeeds(other):
                if other is self._primary:
                    self._primary = handle
                return

    def _before_fetch(self) -> None:
        ended = self._cycles.fetching()
        if self.steering:
            self._fetches_in_cycle = 0 if ended else self._fetches_in_cycle + 1
            if ended:
                self._witness.stop()
                self._conductor.boundary(self._cycles.last_steps if self._rhythm else 0)
            else:
                self._without_step(FETCHES_WITHOUT_STEP * max(1, self._batches_a_cycle))
            return
        if ended:
            now = time.monotonic()
            self._native_step_s = now - self._cycle_started_s
            self._cycle_started_s = now
            self._conductor.discovering(self._cycles.num_steps)
            if self._cycles.complete and not self._awaits_optimizers():
                self._begin()
            elif not self._norm_inputs.watched:
                self._norm_inputs.watch()
        elif not self._cycles.num_steps:
            self._before_first_step()

    def _without_step(self, most: int) -> None:
        """Batches of our size go in, and no cycle ends."""
        if self._fetches_in_cycle > most // 2:
            self._witness.look()
        if self._fetches_in_cycle > most:
            self._witness.stop()
            # Where nothing is swallowed, the others trained in an earlier phase.
            if not self._witness.seen and self._cycles.forget_idle():
                return
            self._conductor.no_step(self._fetches_in_cycle, self._witness)

    def _before_first_step(self) -> None:
        num_fetches = self._cycles.num_fetches
        if num_fetches > MAX_FETCHES_WITHOUT_STEP // 2:
            self._witness.look()
        if num_fetches > MAX_FETCHES_WITHOUT_STEP:
            self._witness.stop()
            seen = self._witness.seen
            text = f"; the script swallows {seen}" if seen else ""
            self._conductor.cannot_steer(
                f"{num_fetches} batches were fetched and no optimizer made a step{text}",
                "check that the script reaches optimizer.step() of a torch optimizer; updates made "
                "by hand go through a declared workload (--workload).",
            )

    def _begin(self) -> None:
        training = self._cycles.training_loaders
        for handle in self._handles:
            handle.trains = handle.ordinal in training
        primary = self._choose_primary(list(training))
        if primary is None:
            return
        self._primary = primary
        self._batches_a_cycle = training[primary.ordinal]
        self._rhythm = self._cycles.rhythm(primary.ordinal)
        rhythm = self._rhythm or Rhythm(self._batches_a_cycle)
        parameters = self.parameters()
        device = parameters[0].device if parameters else torch.device("cpu")
        unordered = primary.why_unordered if self.worst_case else ""
        native = primary.native or primary.batch_size or 1
        norms, unseen = self._norm_inputs.layers(parameters, native)
        unsteady = "" if self._rhythm else UNSTEADY
        reasons = {"worst_case": unordered, "norm_values": unseen, "optimizer_steps": unsteady}
        discovery = Discovery(
            loaders=tuple(handle.info() for handle in self._handles),
            optimizers=self._optimizers.infos(self._cycles.optimizers),
            primary_loader=primary.ordinal,
            native_batch_size=primary.batch_size or primary.native or 1,
            micro_batches=rhythm.micro_batches,
            steps_per_batch=rhythm.steps_per_batch,
            pool=rhythm.pool,
            parameter_device=str(device),
            num_parameters=sum(one.numel() for one in parameters),
            norm_layers=norms,
            compiled=is_compiled(),
            setup_s=time.monotonic() - self._started_s,
            native_step_s=self._native_step_s / rhythm.pool,
            unavailable={name: reason for name, reason in reasons.items() if reason},
        )
        self._conductor.num_ahead = self._ahead(primary)
        self.steering = True
        self._conductor.found(discovery, device)

    def _ahead(self, primary: LoaderHandle) -> int:
        """Steps that the script makes with batches that it holds: a queue that a thread fills.

        Of one batch nothing need be known: the first step of a window is never counted.
        """
        num_batches, since = primary.taken_ahead
        needed = (num_batches - 1) // self._batches_a_cycle + 1
        cycles = needed - (self._cycles.num_cycles - since)
        return cycles if 1 < cycles <= MOST_AHEAD else 0

    def _choose_primary(self, training: list[int]) -> LoaderHandle | None:
        chosen = training[0]
        if self._wanted_loader is not None:
            if self._wanted_loader >= len(self._handles):
                self._conductor.cannot_steer(
                    f"--loader {self._wanted_loader}: the script's loaders are numbered from 0, "
                    f"and the last is {len(self._handles) - 1}",
                    "run with --dry-run to see them.",
                    usage=True,
                )
                return None
            if self._wanted_loader not in training:
                self._conductor.cannot_steer(
                    f"--loader {self._wanted_loader} yields nothing between optimizer steps",
                    f"loaders that do: {', '.join(map(str, training))}.",
                    usage=True,
                )
                return None
            chosen = self._wanted_loader
        handle = self._handles[chosen]
        if handle.cannot_steer:
            self._conductor.cannot_steer(
                f"the training loader ({handle.place}) cannot be steered: {handle.cannot_steer}",
                "give the DataLoader a batch_size.",
                door="template",
            )
            return None
        reason, remedy = handle.why_dispatched()
        if reason:
            self._conductor.cannot_steer(
                f"the training loader ({handle.place}) cannot be steered: {reason}", remedy
            )
            return None
        return handle

    def _check_fetches(self) -> None:
        if self._cycles.num_fetches == 0 and self._num_fed_without > 1:
            # Batches come through a generator that works under torch.no_grad(). One validation
            # before a step is no such thing.
            self._without_gradients = True
            self._num_fed_without = 0
            self._cycles = CycleFinder()
        elif self._cycles.num_fetches == 0:
            self._conductor.cannot_steer(
                f"the script made {self._cycles.num_steps} optimizer steps without fetching "
                "a batch from a DataLoader",
                "only batches that come from a torch DataLoader can be resized.",
                door="template",
            )
