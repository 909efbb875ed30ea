"""The loader door: the script's own training loop, with batches of our size.

`worker/patches.py` calls in here whenever the script fetches a batch or makes an optimizer step.
Until a whole training cycle has been seen, everything passes as the script wants it. From then on
every step boundary belongs to the trial runner, which says what the next batch size is.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import torch

from ...records import BatchOrder, Discovery, InputSize, LengthChoice
from ...records import Door as DoorName
from ..loader.compiled_modules import compiles
from ..loader.loader_handle import LoaderHandle, is_training_fetch
from ..loader.reading_ahead import reads_ahead
from ..loader.repeated_inputs import RepeatedInputs
from ..loader.token_meter import TokenMeter
from .caught_errors import CaughtErrors
from .protocols import Aside, BatchSubstitute, Evaluation, FoundLoop, StepListener
from .script_watch import ScriptWatch
from .training_cycle import Rhythm

MAX_FETCHES_WITHOUT_STEP = 1000
STEPS_WITHOUT_FETCH = 3
WARM_UP_STEPS = 20
WARM_UP_S = 10.0
"""Before its first fetch a script that has made a loader may make so many steps, and for so long,
on batches of its own: CUDA graphs are captured after some, 11 where DDP is in them."""
STEPS_ON_FETCHED = 20
ON_FETCHED_S = 60.0
"""A script that makes so many steps, and for so long, on what it fetched fetches no more: those
that read a pool of batches first and train on it fetch again before."""
FETCHES_WITHOUT_STEP = 64
"""Batches for a step of one micro-batch after which there will be none."""
LEFT_S = 30.0
"""A script that fetched nothing for so long from the loader that is steered, and went on to train
on another's batches, does not come back to it."""
UNSTEADY = "the optimizer makes several steps for some batches, and not as many for each"


class LoaderDoor:
    """The state of one script whose loaders are asked for sizes.

    Args:
        watch: knows the script's loaders and optimizers.
        loader: ordinal of the loader to steer; `None` takes the one that trains.
        worst_case: trials begin with the longest samples.
        only_fakes: its batches are replaced, so that one which takes no size will do.
        started_s: `time.monotonic()` at the start of the process.

    Attributes:
        in_control: the loop was found, its sizes are ours.
        meter: is told of the batches of the primary loader.
    """

    _listener: StepListener

    def __init__(
        self,
        watch: ScriptWatch,
        *,
        loader: int | None,
        worst_case: bool = False,
        only_fakes: bool = False,
        started_s: float,
    ) -> None:
        self.watch = watch
        self._wanted_loader = loader
        self._worst_case = worst_case
        self._only_fakes = only_fakes
        self._started_s = started_s
        self._primary: LoaderHandle | None = None
        self._fetches_in_cycle = 0
        self._batches_a_cycle = 1
        self._rhythm: Rhythm | None = None
        self._num_ahead = 0
        self._caught_errors = CaughtErrors()
        self._without_gradients = False
        self._fetched_without = False
        self._num_fed_without = 0
        self._steps_at_fetch = 0
        self._fetched_s = time.monotonic()
        self._first_step_s = 0.0
        self._num_found = 0
        self._begins_anew = False
        self._used = False
        self._fed_elsewhere = False
        self._substitute: BatchSubstitute | None = None
        self._aside: Aside = nullcontext
        self._evaluation: Evaluation | None = None
        self._repeated = RepeatedInputs()
        self.in_control = False
        self.meter = TokenMeter()

    # what the script does --------------------------------------------------------------------

    def stepped(self, optimizer: Any) -> None:
        """An optimizer made a step."""
        self.watch.stepped(optimizer, replaces=self.in_control)
        self._num_fed_without += self._fetched_without
        self._fetched_without = False
        self._used = True
        if not self.in_control:
            self._look_whether_repeated()
        if self._fed_elsewhere:
            self._fed_elsewhere = False
            self._listener.stepped_elsewhere()
        if not self.in_control and self.watch.num_steps >= STEPS_WITHOUT_FETCH:
            self._check_fetches()

    def next_batch(
        self, handle: LoaderHandle, iterator: Any, native_next: Callable[[Any], Any]
    ) -> Any:
        """The script fetches from a loader: the only place where it waits for us."""
        if self._evaluation is not None:
            return self._evaluated(self._evaluation, handle, iterator, native_next)
        cycles = self.watch.cycles
        training = is_training_fetch() or self._without_gradients
        self._fetched_without = self._fetched_without or not training
        if training and self.in_control and not handle.trains:
            self._succeed(handle)
        if training and (not self.in_control or handle is self._primary):
            if self.watch.steps_in_other_thread:
                cycles.set_apart()
            self._before_fetch()
            if self._evaluation is not None:
                raise StopIteration
            if self.in_control and not handle.trains:  # the loop was found just now
                self._succeed(handle)
        if training and self.in_control:
            self._note_turn(handle)
            if handle is self._primary and handle.epochs.begins():
                self._listener.epoch_began()
        start = time.perf_counter()
        try:
            with self._aside():
                batch = handle.fetch(iterator, native_next, training=training)
        except StopIteration:
            if training and handle.arrived is None:
                self.watch.note_empty(handle)
            if not training:
                self.watch.evaluated()
            raise
        wait_s = time.perf_counter() - start
        self.watch.fetched(handle, trains=handle.trains if self.in_control else training)
        if training:
            handle.note_steps(self.watch.num_steps)
            if not self.in_control:
                handle.taken(iterator, cycles.num_cycles)
                self._steps_at_fetch = cycles.num_steps
            cycles.fetched(handle.ordinal)
            if not self.in_control or handle is self._primary:
                self._fetched_s = time.monotonic()
            if self.in_control and handle.trains:
                primary = handle is self._primary
                self._listener.arrived(handle.arrived, handle.proof, wait_s, primary=primary)
                if primary:
                    self.meter.note(batch, ahead=reads_ahead())
                    if self._substitute is not None:
                        return self._substitute(batch, handle.arrived, handle.reader)
        return batch

    # asked by the trial runner ---------------------------------------------------------------

    def report_to(self, listener: StepListener) -> None:
        """See `Door`."""
        self._listener = listener

    def ask(self, batch_size: int, length: LengthChoice = "") -> None:
        """A trial of this size begins; see `resize`."""
        assert self._primary is not None
        self._primary.begin_trial(length, self._batches_a_cycle)
        self.resize(batch_size)

    def resize(self, batch_size: int) -> None:
        """From the next fetch on, the primary loader yields this size; others keep their ratio."""
        primary = self._primary
        assert primary is not None
        for handle in self.watch.handles:
            if handle is primary:
                handle.ask(batch_size)
            elif handle.cannot_steer:
                continue
            elif handle.trains and handle.native and primary.native:
                handle.ask(max(1, round(handle.native * batch_size / primary.native)))

    @property
    def batches(self) -> LoaderDoor:
        """Those of the primary loader pass here; see below."""
        return self

    def parameters(self) -> list[torch.Tensor]:
        """The parameters of the optimizers that step."""
        return self.watch.parameters()

    # asked of its batches, see `PassingBatches` -----------------------------------------------

    def are_all_ready(self) -> bool:
        """See `PassingBatches`."""
        return self._primary is not None and self._primary.holds_all()

    def inputs(self) -> InputSize | None:
        """How the batches of the trial that ends now varied."""
        return None if self._primary is None else self._primary.inputs()

    def replace_batches(self, substitute: BatchSubstitute, aside: Aside) -> None:
        """The script gets what `substitute` makes of a batch of the primary loader."""
        self._substitute = substitute
        self._aside = self.watch.apart = aside

    def end_epoch(self, evaluation: Evaluation) -> None:
        """Nothing is trained from then on."""
        self._evaluation = evaluation
        for handle in self.watch.handles:
            handle.cap = None  # of what came before the loop was found

    # inside ----------------------------------------------------------------------------------

    def _evaluated(
        self,
        evaluation: Evaluation,
        handle: LoaderHandle,
        iterator: Any,
        native_next: Callable[[Any], Any],
    ) -> Any:
        """A batch after the epoch; with one of the loader that trains, the next epoch begins."""
        if handle is self._primary or evaluation.is_enough:
            evaluation.over()
            raise StopIteration
        try:
            with self._aside():
                batch = handle.fetch(iterator, native_next)
        except StopIteration:
            evaluation.over()
            raise
        return evaluation.take(batch, handle.called())

    def _note_turn(self, handle: LoaderHandle) -> None:
        """Whether a batch of a size that is not ours comes after the step of the primary's.

        One that comes before it belongs to the same step. Where batches are taken ahead of their
        steps, nothing tells whose step it is.
        """
        if handle is self._primary:
            self._used = self._fed_elsewhere = False
        elif self._used and handle.asked is None and self._num_ahead <= 1:
            self._fed_elsewhere = True

    def _succeed(self, handle: LoaderHandle) -> None:
        """A loader that was made anew takes the place of the one before it.

        Where the script keeps that one too, steps on batches of the new one alone tell.
        """
        for other in self.watch.handles:
            if not other.trains:
                continue
            idle = handle.ordinal >= self._num_found and self._is_idle(other)
            if handle.succeeds(other, kept=idle):
                if other is self._primary:
                    self._primary = handle
                    self._begins_anew = idle
                return
        primary = self._primary
        assert primary is not None
        long_s = time.monotonic() - self._fetched_s
        if long_s > LEFT_S and self._is_idle(primary, FETCHES_WITHOUT_STEP):
            self._listener.left(handle.place, primary.steps_at_fetch)

    def _is_idle(self, handle: LoaderHandle, least: int = 1) -> bool:
        """Whether steps were made on other batches than those of a loader that trains.

        Args:
            least: so many, as its own are counted.
        """
        own = max(1, self._num_ahead)
        num_steps = self.watch.num_steps - handle.steps_at_fetch
        return num_steps >= (own + least) * max(1, handle.steps_between)

    def _before_fetch(self) -> None:
        cycles = self.watch.cycles
        ended = cycles.fetching()
        if self._begins_anew:  # what came since the last step is no step of one size
            self._begins_anew, self._fetches_in_cycle = False, 0
            self._listener.epoch_began()
            return
        if self.in_control:
            self._fetches_in_cycle = 0 if ended else self._fetches_in_cycle + 1
            if ended:
                self._caught_errors.stop()
                if self._primary is not None:
                    self._primary.epochs.stepped(
                        self._primary.asked, cycles.num_batches(self._primary.ordinal)
                    )
                self._listener.boundary(cycles.last_steps if self._rhythm else 0)
            else:
                self._without_step(FETCHES_WITHOUT_STEP * max(1, self._batches_a_cycle))
            return
        if ended:
            self.watch.cycle_ended()
            self._listener.discovering(cycles.num_steps)
            if cycles.complete and not self.watch.awaits_optimizers():
                self._begin()
            else:
                self.watch.look_at_norms()
        elif not cycles.num_steps:
            self._before_first_step()

    def _without_step(self, most: int) -> None:
        """Batches of our size go in, and no cycle ends."""
        if self._fetches_in_cycle > most // 2:
            self._caught_errors.look()
        if self._fetches_in_cycle > most:
            self._caught_errors.stop()
            # Where nothing is swallowed, the others trained in an earlier phase, or the script
            # skips what is beyond its epoch.
            if not self._caught_errors.seen and self.watch.cycles.forget_idle():
                return
            primary = None if self._caught_errors.seen else self._primary
            if primary is not None and primary.epochs.without_step():
                self._fetches_in_cycle = 0
                return
            self._listener.no_step(self._fetches_in_cycle, self._caught_errors)

    def _before_first_step(self) -> None:
        num_fetches = self.watch.num_fetches
        if num_fetches > MAX_FETCHES_WITHOUT_STEP // 2:
            self._caught_errors.look()
        if num_fetches > MAX_FETCHES_WITHOUT_STEP:
            self._caught_errors.stop()
            seen = self._caught_errors.seen
            text = f"; the script swallows {seen}" if seen else ""
            self._listener.cannot_steer(
                f"{num_fetches} batches were fetched and no optimizer made a step{text}",
                "check that the script reaches its update: the step() of a torch optimizer, or a "
                "write to its parameters after the backward pass. Updates that make new tensors go "
                "through a declared workload (--workload).",
            )

    def _look_whether_repeated(self) -> None:
        if self.watch.num_fetches == 0:
            self._repeated.step_ended()
        else:
            self._repeated.stop()

    def _check_fetches(self) -> None:
        if self.watch.num_fetches == 0 and self._num_fed_without > 1:
            # Batches come through a generator that works under torch.no_grad(). One validation
            # before a step is no such thing.
            self._without_gradients = True
            self._num_fed_without = 0
            self.watch.forget_cycles()
        elif self.watch.num_fetches == 0 and self._may_warm_up():
            return
        elif self.watch.num_fetches == 0 and not self._repeated.undecided:
            self._listener.cannot_steer(
                f"the script made {self.watch.num_steps} optimizer steps without fetching "
                "a batch from a DataLoader",
                "only batches that come from a torch DataLoader can be resized.",
                door="template",
                whole=self._repeated.said(),
                repeated=self._repeated.clause(),
            )
        elif self.watch.num_steps - self._steps_at_fetch >= STEPS_ON_FETCHED:
            self._check_last_fetch()

    def _may_warm_up(self) -> bool:
        """Whether steps without a fetch may be those of a warm-up, with the loop still to come."""
        self._first_step_s = self._first_step_s or time.monotonic()
        soon = time.monotonic() - self._first_step_s < WARM_UP_S
        return bool(self.watch.handles) and soon and self.watch.num_steps < WARM_UP_STEPS

    def _check_last_fetch(self) -> None:
        """Whether the script trains for so long on what it fetched that it fetches no more."""
        waited_s = time.monotonic() - self._fetched_s
        if waited_s < ON_FETCHED_S:
            return
        num_fetches, num_steps = self.watch.num_fetches, self.watch.num_steps
        batches = "1 batch" if num_fetches == 1 else f"{num_fetches} batches"
        self._listener.cannot_steer(
            f"the script fetched {batches} and then made {num_steps - self._steps_at_fetch} "
            f"optimizer steps in {waited_s:.0f} s without another. Only a loop that keeps fetching "
            "can be steered",
            "let it fetch a batch for each step.",
            door="template",
        )

    def _begin(self) -> None:
        """The loop is found, and the listener is told, unless no loader can be asked for sizes."""
        cycles = self.watch.cycles
        training = cycles.training_loaders
        for handle in self.watch.handles:
            handle.note_training(trains=handle.ordinal in training)
            if handle.trains:
                self.watch.try_size(handle)
        primary = primary_of(
            self.watch.handles, list(training), self._wanted_loader, steers=not self._only_fakes
        )
        if isinstance(primary, Refusal):
            self._listener.cannot_steer(
                primary.reason, primary.remedy, usage=primary.usage, door=primary.door
            )
            return
        self._primary = primary
        self._num_found = self.watch.num_loaders
        self._batches_a_cycle = training[primary.ordinal]
        self._rhythm = cycles.rhythm(primary.ordinal)
        num_ahead = steps_ahead(primary, self._batches_a_cycle, cycles.num_cycles)
        self._num_ahead = max(num_ahead, int(reads_ahead()))
        parameters = self.parameters()
        device = parameters[0].device if parameters else torch.device("cpu")
        discovery = self._discovery(primary, parameters, device)
        self.in_control = True
        self._listener.found(
            FoundLoop(discovery=discovery, device=device, num_ahead=self._num_ahead)
        )

    def _discovery(
        self, primary: LoaderHandle, parameters: list[torch.Tensor], device: torch.device
    ) -> Discovery:
        rhythm = self._rhythm or Rhythm(self._batches_a_cycle)
        unordered = primary.why_unordered if self._worst_case else ""
        norms, unseen = self.watch.norm_layers(primary.num_seen or primary.batch_size or 1)
        unsteady = "" if self._rhythm else UNSTEADY
        reasons = {"worst_case": unordered, "norm_values": unseen, "optimizer_steps": unsteady}
        return Discovery(
            loaders=tuple(handle.info() for handle in self.watch.handles),
            optimizers=self.watch.optimizer_infos(),
            primary_loader=primary.ordinal,
            native_batch_size=primary.batch_size or primary.native or 1,
            micro_batches=rhythm.micro_batches,
            accumulation=self.watch.accumulation_source(rhythm.micro_batches),
            following=self.watch.following(primary, rhythm.micro_batches),
            leaves_out=self.watch.leaves_out(),
            steps_per_batch=rhythm.steps_per_batch,
            pool=rhythm.pool,
            parameter_device=str(device),
            num_parameters=sum(parameter.numel() for parameter in parameters),
            precision=", ".join(
                sorted({str(parameter.dtype).removeprefix("torch.") for parameter in parameters})
            ),
            norm_layers=norms,
            compiled=compiles(),
            order_options=order_options(),
            setup_s=time.monotonic() - self._started_s,
            native_step_s=self.watch.native_step_s / rhythm.pool,
            unavailable={name: reason for name, reason in reasons.items() if reason},
        )


def order_options() -> tuple[tuple[BatchOrder, str], ...]:
    """Options of the imported frameworks for these orders; nothing is imported here."""
    options: dict[BatchOrder, str] = {}
    if "transformers.trainer" in sys.modules:
        arguments = getattr(
            sys.modules.get("transformers.training_args"), "TrainingArguments", None
        )
        fields = getattr(arguments, "__dataclass_fields__", {})
        if "train_sampling_strategy" in fields:
            options["grouped"] = 'TrainingArguments(train_sampling_strategy="group_by_length")'
        elif "group_by_length" in fields:
            options["grouped"] = "TrainingArguments(group_by_length=True)"
    config = getattr(sys.modules.get("trl.trainer.sft_config"), "SFTConfig", None)
    if "packing" in getattr(config, "__dataclass_fields__", {}):
        options["packed"] = "SFTConfig(packing=True)"
        if "grouped" in options:
            options["grouped"] = options["grouped"].replace("TrainingArguments", "SFTConfig")
    return tuple(options.items())


# Which of the loaders that train is asked for sizes.

MOST_AHEAD = 32
"""A script that takes batches more steps ahead than this is looking at its data, not training."""


@dataclass(frozen=True)
class Refusal:
    """Why no loader can be asked for sizes; the arguments of `StepListener.cannot_steer`."""

    reason: str
    remedy: str
    usage: bool = False
    door: DoorName | None = None


def primary_of(
    handles: Sequence[LoaderHandle],
    training: Sequence[int],
    wanted: int | None,
    *,
    steers: bool = True,
) -> LoaderHandle | Refusal:
    """The loader whose size is asked for, or why there is none.

    Args:
        training: ordinals of those that yield between optimizer steps, by their first fetch.
        wanted: ordinal of the user's choice; `None` takes the first that trains.
        steers: sizes are asked of it; else one that has known batches will do.
    """
    if wanted is not None and wanted >= len(handles):
        return Refusal(
            f"--loader {wanted}: the script's loaders are numbered from 0, "
            f"and the last is {len(handles) - 1}",
            "run with --dry-run to see them.",
            usage=True,
        )
    if wanted is not None and wanted not in training:
        return Refusal(
            f"--loader {wanted} yields nothing between optimizer steps",
            f"loaders that do: {', '.join(map(str, training))}.",
            usage=True,
        )
    handle = handles[training[0] if wanted is None else wanted]
    if handle.cannot_steer and (steers or handle.native is None):
        return Refusal(
            f"the training loader ({handle.place}) cannot be steered: {handle.cannot_steer}",
            "give the DataLoader a batch_size.",
            door="template",
        )
    reason, remedy = handle.why_dispatched()
    if reason:
        return Refusal(f"the training loader ({handle.place}) cannot be steered: {reason}", remedy)
    return handle


def steps_ahead(handle: LoaderHandle, batches_a_cycle: int, num_cycles: int) -> int:
    """Steps that the script makes with batches that it holds: one, or a queue that a thread fills.

    Args:
        batches_a_cycle: of this loader.
        num_cycles: so far.
    """
    num_batches, since = handle.taken_ahead
    needed = (num_batches - 1) // batches_a_cycle + 1
    cycles = needed - (num_cycles - since)
    return cycles if 0 < cycles <= MOST_AHEAD else 0
