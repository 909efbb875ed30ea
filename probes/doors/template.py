"""The template door: the script is started once for each size, which it got as an argument.

Nothing is taken over: what the script does is only watched. A step ends when every optimizer has
stepped, or with the next backward pass after the script wrote its parameters itself; the time until
the next such moment is the step's.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch

from ...records import Discovery, LengthChoice, LoaderInfo
from ..loader.compiled_modules import compiles
from ..loader.loader_handle import LoaderHandle, is_training_fetch
from ..loader.model_inputs import AS_ASKED, ModelInputs
from ..process.orders import WorkOrder
from ..source.placeholder import command, has_placeholder, source_of, without_placeholder
from .protocols import FoundLoop, StepListener
from .script_watch import ScriptWatch


class TemplateDoor:
    """Watches one script that runs at one size.

    Args:
        watch: knows the script's loaders and optimizers.
        order: holds the size, the arguments with their placeholder, and whether the door was
            insisted on.
        started_s: `time.monotonic()` at the start of the process.

    Attributes:
        in_control: the loop was found.
    """

    batches: None = None
    _listener: StepListener

    def __init__(self, watch: ScriptWatch, order: WorkOrder, started_s: float) -> None:
        assert order.batch_size is not None
        self.watch = watch
        self._order = order
        self._started_s = started_s
        self._size = order.batch_size
        self._inputs = ModelInputs()
        place = order.place
        self._own_size, self._own_source = (
            (place.number, place.source)
            if place is not None
            else source_of(order.script, order.template, module=order.module)
        )
        self._source: LoaderHandle | None = None
        self._micro_batches = 1
        self._proof = AS_ASKED
        self._loader_tells = False
        self.in_control = False

    # what the script does --------------------------------------------------------------------

    def stepped(self, optimizer: Any) -> None:
        """An optimizer made a step."""
        watch = self.watch
        watch.stepped(optimizer, replaces=self.in_control)
        if not watch.cycles.fetching():
            return
        if self.in_control:
            self._tell_what_arrived()
            self._listener.boundary()
            self._inputs.forget()
            return
        watch.cycle_ended(self._inputs.evaluated_s)
        self._listener.discovering(watch.num_steps)
        if watch.cycles.stable and not watch.awaits_optimizers():
            self._begin()
        else:
            watch.look_at_norms()
        watch.own_updates.num_passes = 0
        self._inputs.forget()

    def next_batch(
        self, handle: LoaderHandle, iterator: Any, native_next: Callable[[Any], Any]
    ) -> Any:
        """The script fetches from a loader, and gets what it would get."""
        start = time.perf_counter()
        batch = handle.fetch(iterator, native_next)
        if is_training_fetch():
            self.watch.cycles.fetched(handle.ordinal)
            if self.in_control:
                wait_s = time.perf_counter() - start
                primary = handle is self._source and self._loader_tells
                self._listener.arrived(handle.arrived, handle.proof, wait_s, primary=primary)
        return batch

    # asked by the trial runner ---------------------------------------------------------------

    def report_to(self, listener: StepListener) -> None:
        """See `Door`."""
        self._listener = listener

    def ask(self, batch_size: int, length: LengthChoice = "") -> None:  # noqa: ARG002
        """The size was chosen when the process was started."""
        assert batch_size == self._size

    def resize(self, batch_size: int) -> None:
        """No other size can take turns with it."""
        assert batch_size == self._size

    def parameters(self) -> list[torch.Tensor]:
        """The parameters of the optimizers that step."""
        return self.watch.parameters()

    # inside ----------------------------------------------------------------------------------

    def _tell_what_arrived(self) -> None:
        if self._loader_tells:
            return
        for _ in range(self._micro_batches):
            self._listener.arrived(self._size, self._proof, 0.0, primary=True)

    def _begin(self) -> None:
        watch = self.watch
        training = watch.cycles.training_loaders
        handle = watch.handles[next(iter(training))] if training else None
        if handle is not None and not handle.cannot_steer and not self._order.forced:
            self._refuse_steerable(handle)
        self._source = handle
        self._prove(handle)
        self._micro_batches = max(
            1, training[handle.ordinal] if handle is not None else self._num_backwards()
        )
        parameters = self.parameters()
        device = parameters[0].device if parameters else torch.device("cpu")
        norms, unseen = watch.norm_layers(self._size)
        discovery = Discovery(
            door="template",
            loaders=(self._stand_in(handle),),
            optimizers=watch.optimizer_infos(),
            primary_loader=0,
            native_batch_size=self._own_size or self._size,
            micro_batches=self._micro_batches,
            parameter_device=str(device),
            num_parameters=sum(parameter.numel() for parameter in parameters),
            norm_layers=norms,
            leaves_out=watch.leaves_out(),
            compiled=compiles(),
            setup_s=time.monotonic() - self._started_s,
            native_step_s=watch.native_step_s,
            entered=self._inputs.entered,
            unavailable={"norm_values": unseen} if unseen else {},
        )
        self._inputs.stop()
        no_input = "the script fetches from no DataLoader" if handle is None else ""
        self.in_control = True
        self._listener.found(FoundLoop(discovery=discovery, device=device, no_input=no_input))

    def _refuse_steerable(self, handle: LoaderHandle) -> None:
        order = self._order
        plain = command(order.script, without_placeholder(order.template), module=order.module)
        self._listener.cannot_steer(
            f"the training loader ({handle.place}) can be steered, and {{batch_size}} asks for a "
            "process of its own for each size",
            f"leave the placeholder out: {plain}   (or insist with --template).",
            usage=True,
        )

    def _prove(self, handle: LoaderHandle | None) -> None:
        """A loader or a tensor that shows the size is the proof that the script took it."""
        if handle is not None and handle.arrived == self._size and handle.proof:
            self._proof, self._loader_tells = handle.proof, True
        elif self._inputs.lead == self._size:
            self._proof = "shape"

    def _num_backwards(self) -> int:
        """Backward passes per optimizer step: an accumulation, where there is one optimizer."""
        one = len(self.watch.cycles.optimizers) == 1
        return self.watch.own_updates.num_passes if one else 1

    def _stand_in(self, handle: LoaderHandle | None) -> LoaderInfo:
        info = handle.info() if handle is not None else None
        # The length of a dataset that batches itself counts batches, and so does that of one whose
        # items are whole batches: its loader gives one of them at a time.
        whole = info is not None and info.batch_size == 1 != self._size / self._micro_batches
        counts = handle is not None and not handle.cannot_steer and not whole
        return LoaderInfo(
            ordinal=0,
            place=info.place if info is not None else None,
            batch_size=self._own_size or self._size,
            num_samples=info.num_samples if info is not None and counts else None,
            drop_last=info.drop_last if info is not None and counts else False,
            num_workers=info.num_workers if info is not None else 0,
            sampler=info.sampler if info is not None else "none",
            iterable=info.iterable if info is not None else False,
            steered=(
                "by the script's argument"
                if has_placeholder(self._order.template)
                else "by another number in place of its own"
            ),
            trains=True,
            source=self._own_source,
        )
