"""Runs training steps on fake tensors: their memory, without computing.

The mode is on while the script works on a batch, and off while it fetches one. Parameters keep
their values; gradients and the optimizers' state do not, so that the process can only run such
steps from then on.
"""

from __future__ import annotations

import contextlib
import gc
import weakref
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch.optim import Optimizer
from torch.utils._pytree import tree_leaves

from ...records import FakeTrial, LivedBefore, OpWork, PeakRole, Variant
from ..windows.optimizer_hooks import listen
from .changes import Changes
from .checkpointed_blocks import CheckpointedBlocks
from .cuda_convolutions import suggested_layout
from .fake_values import make_readable
from .faked_count import FakedCount
from .large_parameters import LargeParameters
from .model_tree import owners_of, parts_of
from .origins import Origin, origin_here
from .other_optimizers import fill_history
from .peak_parts import peak_of, peak_outside, peak_parts, step_timeline
from .step_work import StepWork

TIMED = (Variant(), Variant(bf16=True))
"""Variants whose operations are kept, for a bound of their time."""


class FakeSteps:
    """Steps whose tensors are fake, from one batch to the next fetch.

    Args:
        parameters: what is trained.
        for_gpu: its tensors stand for those of a GPU; see `use_cuda_forms` too.
        beside: tensors that live all the time, though a step may not touch them.
    """

    def __init__(
        self,
        parameters: Iterable[torch.Tensor],
        *,
        for_gpu: bool = False,
        beside: Iterable[torch.Tensor] = (),
    ) -> None:
        self._parameters = list({id(tensor): tensor for tensor in parameters}.values())
        self._own = self._parameters
        self._count = FakedCount(self._origin, for_gpu=for_gpu)
        self._checkpointed = CheckpointedBlocks(self._parameters)
        self._changes = Changes(self._parameters, self._checkpointed.members)
        self._variant = Variant()
        self._settled = False
        self._last_size = 0
        self._autocast: Any = None
        self._entered: contextlib.ExitStack | None = None
        self._optimizers: dict[int, Optimizer] = {}
        self._depth = 0
        self._gradients = self._input = self._num_held = 0
        self._held_gradients: list[int] = []
        self._batches: list[weakref.ref[torch.Tensor]] = []
        self._roles: dict[int, PeakRole] = {}
        self._owners: dict[int, str] = {}
        self._owner_of = owners_of(self._parameters)
        self._steps = listen(self._before_step, self._after_step)
        for tensor in self._parameters:
            tensor.grad = None
        self._count.hold(self._parameters)
        self._count.hold(beside)
        make_readable()

    def begin(self, variant: Variant, batch_size: int = 0) -> bool:
        """Steps of another size begin.

        Args:
            batch_size: of them; what a script keeps of a larger step before takes room in the next.
            variant: autocast goes for the whole step, whatever the script asks for.

        Returns:
            Whether the optimizer's state is there already: the first step is as all that follow.

        Raises:
            ValueError: the variant cannot be made of this script.
        """
        # Ranks convert what they gather; autocast would keep a converted copy of all of it.
        autocast = variant.bf16 and variant.ranks == 1
        self._autocast = torch.autocast("cpu", torch.bfloat16) if autocast else None
        self._checkpointed.on = variant.checkpointed
        settled = self._settled
        if _changed(variant) != _changed(self._variant):
            self._change(variant)
            settled = settled and self._makes_state()
        settled = settled and batch_size >= self._last_size
        self._count.work = StepWork() if variant in TIMED else None
        self._variant, self._settled = variant, False
        self.next_step()
        return settled

    def next_step(self) -> None:
        """Begins a step: what is counted from here on is of it."""
        self._input = 0
        self._roles.clear()
        self._owners.clear()
        self._count.reset_peak()
        # In the first of all steps these came before the optimizer's state, later they come after.
        batches = [tensor for each in self._batches if (tensor := each()) is not None]
        gradients = [each.grad for each in self._parameters if each.grad is not None]
        self._count.put_last([*batches, *gradients])
        self._batches.clear()
        self._count.reset_requests()
        self._num_held = len(self._count.requests)
        if self._count.work is not None:
            self._count.work.clear()
        self._held_gradients = self._numbers_of(self._note_gradients())

    @property
    def lived(self) -> LivedBefore:
        """What lived before the last step; see `FakedCount` for what is known of its requests."""
        count = self._count
        return LivedBefore(
            num=self._num_held,
            late=self._late,
            products=tuple(sorted(count.first_products.values())),
            passing=tuple(count.passing),
            emptied=tuple(count.emptied),
        )

    @property
    def _late(self) -> tuple[int, ...]:
        states = self._numbers_of(_counted_states(self._states()))
        return tuple(
            number for number in (*self._held_gradients, *states) if number <= self._num_held
        )

    @property
    def blocks(self) -> str:
        """Names of blocks that can be checkpointed; see `CheckpointedBlocks.names`."""
        return self._checkpointed.names

    @property
    def change(self) -> str:
        """What was changed for these steps, `24 Linear`; see `Changes.text`."""
        return self._changes.text

    @property
    def peak_bytes(self) -> int:
        """The most that lived at once since the step began."""
        return self._count.peak_bytes

    @property
    def requests(self) -> tuple[int, ...]:
        """Requests for memory of the last step; see `StorageCount`."""
        return tuple(self._count.requests)

    @property
    def work(self) -> tuple[OpWork, ...]:
        """Operations of the last step; empty where they are not counted."""
        work = self._count.work
        return () if work is None or work.problem else tuple(work.operations)

    @property
    def no_work(self) -> str:
        """Why the operations are not known."""
        return "" if self._count.work is None else self._count.work.problem

    def enter(self, batch: Any) -> None:
        """The script gets a batch and works on it."""
        tensors = _tensors(batch)
        self._count.hold(tensors)
        self._input += _bytes_of(tensors)
        self._batches += [weakref.ref(tensor) for tensor in tensors]
        self._note(tensors, "batch")
        if self._entered is None:
            self._enter()

    def empty(self, like: torch.Tensor, shape: list[int]) -> torch.Tensor:
        """A fake tensor of another shape, in the same order of memory."""
        layout = suggested_layout(like)
        with self._count.fakes:
            made = self._count.fakes.from_tensor(like).new_empty(shape)
            return made if layout is None else made.contiguous(memory_format=layout)

    def leave(self) -> None:
        """The script fetches a batch, or a step is over."""
        if self._entered is not None:
            self._entered.close()
            self._entered = None

    @contextlib.contextmanager
    def aside(self) -> Iterator[None]:
        """Code that runs in it computes as usual."""
        on = self._entered is not None
        self.leave()
        yield
        if on:
            self._enter()

    def is_as_the_next(self, batch_size: int) -> bool:
        """Whether a step of this size that follows would peak as this one did.

        What the step before left until this one gave it back was of the size before: the outputs
        that the script's loop still names.
        """
        requests = self._count.requests
        given_back = {-request for request in requests if request < 0}
        left = given_back.intersection(range(1, self._num_held + 1)).difference(self._late)
        growth = batch_size / max(1, self._last_size)
        sizes = (size for size in requests if size > 0)
        grown = {at: growth * size for at, size in enumerate(sizes, 1) if at in left}
        return peak_of(requests, grown) <= self._count.peak_bytes

    def trial(self, batch_size: int) -> FakeTrial:
        """Memory of the last step."""
        self._settled, self._last_size = True, batch_size
        states = self._note_states()
        for parameter in self._parameters:
            self._note([parameter], "parameters", owner=parameter)
        requests, origins = self._count.requests, self._count.origins
        parts = peak_parts(requests, origins, self._roles, self._owners)
        return FakeTrial(
            batch_size=batch_size,
            peak_bytes=self._count.peak_bytes,
            outside_bytes=peak_outside(requests, origins),
            at_peak=parts.at_peak,
            places=parts.places,
            modules=parts.modules,
            lines=parts.lines,
            timeline=step_timeline(requests, origins, self._roles),
            parameter_bytes=_bytes_of(self._parameters),
            gradient_bytes=self._gradients,
            optimizer_bytes=_bytes_of(states),
            input_bytes=self._input,
            largest=self._count.large.all,
        )

    def close(self) -> None:
        """Takes the hooks away."""
        self._steps.remove()

    # inside ----------------------------------------------------------------------------------

    def _enter(self) -> None:
        self._entered = contextlib.ExitStack()
        large = LargeParameters.current
        if large is not None and large.pause():
            self._entered.callback(large.go_on)
        # A GPU's backward pass has a thread of its own, and torch's mode is not made for two.
        self._entered.enter_context(torch.autograd.set_multithreading_enabled(False))
        self._entered.enter_context(self._count.fakes)
        self._entered.enter_context(self._count)
        if self._autocast is not None:
            self._entered.enter_context(self._autocast)

    def _origin(self) -> Origin:
        """Finds where a tensor that begins to live was made."""
        origin = origin_here(in_optimizer=self._depth > 0)
        logits = self._count.number_of_key(origin.loss_input)
        if logits is not None:
            self._roles.setdefault(logits, "loss and logits")
        return origin

    def _change(self, variant: Variant) -> None:
        """Drops what the steps of the last variant held, and counts what this one holds."""
        before = [*self._parameters, *_counted_states(self._states())]
        gone = self._changes.gone
        with self._count.fakes, self._count:
            self._changes.begin(variant, self._optimizers.values())
        if variant.ranks > 1 or self._variant.ranks > 1 or self._variant.lora_rank:
            gc.collect()  # sharded and wrapped modules refer to themselves
        self._parameters = list(self._changes.trained)
        self._count.hold(gone)  # first: sharded anew, the same tensors are gone again
        self._count.forget([*before, *self._changes.gone])
        if not self._changes.gone:  # layers that no longer train are there all the same
            self._count.hold(self._own)
        self._count.hold([*self._parameters, *_counted_states(self._states())])

    def _makes_state(self) -> bool:
        """Whether another optimizer got its state without a step of the script's: by the gradients
        of the last one."""
        other = self._changes.other
        if other is None or any(each.grad is None for each in self._parameters):
            return False
        with self._count.fakes, self._count:
            for optimizer in self._optimizers.values():
                other.make_state(optimizer)
        return True

    def _states(self) -> list[Any]:
        other = self._changes.other
        if other is not None:
            return other.states
        return [optimizer.state for optimizer in self._optimizers.values()]

    def _before_step(self, optimizer: Optimizer, args: Any, kwargs: Any) -> Any:
        """A step() that calls that of the class above it comes here twice."""
        self._depth += 1
        self._optimizers[id(optimizer)] = optimizer
        if self._depth == 1 and self._changes.other is None:
            fill_history(optimizer)
        if self._depth == 1 and self._changes.other is not None:
            return self._changes.other.before(optimizer, args, kwargs)
        return None

    def _after_step(self, _optimizer: Optimizer, _args: Any, _kwargs: Any) -> None:
        self._depth -= 1
        if self._depth == 0 and self._changes.other is not None:
            self._changes.other.after()
        self._gradients = _bytes_of(self._note_gradients())

    def _note_gradients(self) -> list[torch.Tensor]:
        """Those that live now."""
        gradients = []
        for parameter in self._parameters:
            if parameter.grad is not None:
                gradients.append(parameter.grad)
                self._note([parameter.grad], "gradients", owner=parameter)
        return gradients

    def _note_states(self) -> list[torch.Tensor]:
        """Returns the states of the optimizers that stepped; most keep one for each parameter."""
        states = []
        for each in self._states():
            for key, state in each.items():
                tensors = _tensors(state)
                self._note(tensors, "optimizer's state", owner=key)
                states += tensors
        return states

    def _numbers_of(self, tensors: Iterable[torch.Tensor]) -> list[int]:
        """Returns the numbers of the requests for these tensors, each once."""
        numbers = (self._count.number_of(tensor) for tensor in tensors)
        return list(dict.fromkeys(number for number in numbers if number is not None))

    def _note(self, tensors: Iterable[torch.Tensor], role: PeakRole, owner: Any = None) -> None:
        """Notes the role of these tensors.

        Args:
            owner: parameter to which they belong.
        """
        for tensor in tensors:
            number = self._count.number_of(tensor)
            if number is not None:
                self._roles[number] = role
                if id(owner) in self._owner_of:
                    self._owners[number] = self._owner_of[id(owner)]


def _tensors(tree: Any) -> list[torch.Tensor]:
    return [leaf for leaf in tree_leaves(tree) if isinstance(leaf, torch.Tensor)]


def _counted_states(states: Iterable[Any]) -> list[torch.Tensor]:
    """Without the numbers of steps, which optimizers keep on the host."""
    return [each for each in _tensors([list(s.values()) for s in states]) if each.dim()]


def _changed(variant: Variant) -> tuple[object, ...]:
    """Words the change of the model or of the optimizers."""
    layers = variant.lora_rank, variant.lora
    ranks = variant.ranks, variant.ranks > 1 and variant.bf16
    return variant.optimizer, variant.accumulates, *layers, *ranks


def _bytes_of(tensors: Iterable[torch.Tensor | None]) -> int:
    given = (part for each in tensors if each is not None for part in parts_of(each))
    storages = [part.untyped_storage() for part in given]
    return sum({id(storage): storage.nbytes() for storage in storages}.values())
