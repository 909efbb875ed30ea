"""The template door: the script is started once for each size, which it got as an argument.

Nothing is taken over: what the script does is only watched. A step ends when every optimizer has
stepped; the time until the next such moment is the step's.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch

from ..records import Discovery, LoaderInfo
from .inputs import AS_ASKED, ModelInputs
from .loaders import LoaderHandle, is_training_fetch
from .messages import WorkOrder
from .placeholder import command, source_of, without_placeholder
from .steering import Steering, StepConductor


class TemplateSteering(Steering):
    """Watches one script that runs at one size.

    Args:
        conductor: decides at step boundaries.
        order: holds the size, the arguments with their placeholder, and whether the door was
            insisted on.
        started_s: `time.monotonic()` at the start of the process.
    """

    def __init__(self, conductor: StepConductor, order: WorkOrder, started_s: float) -> None:
        super().__init__(
            conductor,
            loader=None,
            batch_cap=None,
            arguments=order.arguments,
            started_s=started_s,
        )
        assert order.batch_size is not None
        self._order = order
        self._size = order.batch_size
        self._inputs = ModelInputs()
        self._backwards = _BackwardCount()
        self._own_size, self._own_source = source_of(
            order.script, order.template, module=order.module
        )
        self._source: LoaderHandle | None = None
        self._proof = AS_ASKED

    def stepped(self, optimizer: Any) -> None:
        self._note_step(optimizer)
        ended = self._cycles.fetching()
        if not ended:
            return
        if self.steering:
            self._tell_what_arrived()
            self._conductor.boundary()
            self._inputs.forget()
            return
        now = time.monotonic()
        self._native_step_s = now - self._cycle_started_s
        self._cycle_started_s = now
        self._conductor.discovering(self._cycles.num_steps)
        if self._cycles.stable and not self._awaits_optimizers():
            self._begin_template()
        elif not self._norm_inputs.watched:
            self._norm_inputs.watch()
        self._backwards.forget()

    def next_batch(
        self, handle: LoaderHandle, iterator: Any, native_next: Callable[[Any], Any]
    ) -> Any:
        start = time.perf_counter()
        batch = handle.fetch(iterator, native_next)
        if is_training_fetch():
            self._cycles.fetched(handle.ordinal)
            if self.steering:
                wait_s = time.perf_counter() - start
                primary = handle is self._source and self._proof != AS_ASKED
                self._conductor.arrived(handle.arrived, handle.proof, wait_s, primary=primary)
        return batch

    def ask(self, batch_size: int) -> None:
        """The size was chosen when the process was started."""
        assert batch_size == self._size

    # inside ----------------------------------------------------------------------------------

    def _tell_what_arrived(self) -> None:
        if self._source is not None and self._proof != AS_ASKED:
            return  # the loader told
        for _ in range(self._micro_batches):
            self._conductor.arrived(self._size, self._proof, 0.0, primary=True)

    def _begin_template(self) -> None:
        training = self._cycles.training_loaders
        handle = self._handles[next(iter(training))] if training else None
        if handle is not None and not handle.cannot_steer and not self._order.forced:
            self._refuse_steerable(handle)
        self._source = handle
        self._prove(handle)
        self._micro_batches = max(
            1, training[handle.ordinal] if handle is not None else self._num_backwards()
        )
        parameters = self.parameters()
        device = parameters[0].device if parameters else torch.device("cpu")
        norms, unseen = self._norm_inputs.layers(parameters, self._size)
        discovery = Discovery(
            door="template",
            loaders=(self._stand_in(handle),),
            optimizers=self._optimizers.infos(self._cycles.optimizers),
            primary_loader=0,
            native_batch_size=self._own_size or self._size,
            micro_batches=self._micro_batches,
            parameter_device=str(device),
            num_parameters=sum(one.numel() for one in parameters),
            norm_layers=norms,
            setup_s=time.monotonic() - self._started_s,
            native_step_s=self._native_step_s,
            unavailable={"norm_values": unseen} if unseen else {},
        )
        self._inputs.stop()
        if handle is None:
            self._conductor.no_input = "the script fetches from no DataLoader"
        self.steering = True
        self._conductor.found(discovery, device)

    def _refuse_steerable(self, handle: LoaderHandle) -> None:
        order = self._order
        plain = command(order.script, without_placeholder(order.template), module=order.module)
        self._conductor.cannot_steer(
            f"the training loader ({handle.place}) can be steered, and {{batch_size}} asks for a "
            "process of its own for each size",
            f"leave the placeholder out: {plain}   (or insist with --template).",
            usage=True,
        )

    def _prove(self, handle: LoaderHandle | None) -> None:
        """A loader or a tensor that shows the size is the proof that the script took it."""
        if handle is not None and handle.arrived == self._size and handle.proof:
            self._proof = handle.proof
        elif self._inputs.lead == self._size:
            self._proof = "shape"

    def _num_backwards(self) -> int:
        """Backward passes per optimizer step: an accumulation, where there is one optimizer."""
        return self._backwards.count if len(self._cycles.optimizers) == 1 else 1

    def _stand_in(self, handle: LoaderHandle | None) -> LoaderInfo:
        info = handle.info() if handle is not None else None
        # The length of a dataset that batches itself counts batches.
        counts = handle is not None and not handle.cannot_steer
        return LoaderInfo(
            ordinal=0,
            place=info.place if info is not None else None,
            batch_size=self._own_size or self._size,
            num_samples=info.num_samples if info is not None and counts else None,
            drop_last=info.drop_last if info is not None and counts else False,
            num_workers=info.num_workers if info is not None else 0,
            sampler=info.sampler if info is not None else "none",
            iterable=info.iterable if info is not None else False,
            steered="by the script's argument",
            trains=True,
            source=self._own_source,
        )


class _BackwardCount:
    """How often a backward pass ran since it was last forgotten."""

    def __init__(self) -> None:
        self.count = 0
        native = torch.autograd.backward

        def backward(*args: Any, **kwargs: Any) -> None:
            self.count += 1
            native(*args, **kwargs)

        # Tensor.backward() calls this name of the module.
        torch.autograd.backward = backward

    def forget(self) -> None:
        self.count = 0
