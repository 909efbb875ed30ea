"""The door for declared workloads, inside the worker: makes steps of the size that is asked for."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch

from ...records import Discovery, Door, LengthChoice, LoaderInfo, NormLayers
from ..loader.loader_handle import LoaderHandle
from ..loader.model_inputs import AS_ASKED, ModelInputs
from ..process.orders import WorkOrder
from .declared import Workload, WorkloadError, load
from .protocols import FoundLoop, StepListener
from .script_watch import ScriptWatch

DISCOVERY_STEPS = 2


class WorkloadDoor:
    """Calls one declared workload.

    Args:
        watch: knows the workload's loaders and optimizers.
        order: names the workload and the size to begin with.
        started_s: `time.monotonic()` at the start of the process.

    Attributes:
        in_control: the first steps were made.
    """

    batches: None = None
    _listener: StepListener

    def __init__(self, watch: ScriptWatch, order: WorkOrder, started_s: float) -> None:
        self.watch = watch
        self._order = order
        self._started_s = started_s
        self._workload: Workload | None = None
        self._step: Callable[[], Any] | None = None
        self._size = 0
        self._wait_s = 0.0
        self.in_control = False

    # what the workload does ------------------------------------------------------------------

    def stepped(self, optimizer: Any) -> None:
        """An optimizer made a step."""
        self.watch.stepped(optimizer, replaces=self.in_control)

    def next_batch(
        self, handle: LoaderHandle, iterator: Any, native_next: Callable[[Any], Any]
    ) -> Any:
        """The workload fetches from a loader of its own; the time is part of the step's wait."""
        start = time.perf_counter()
        batch = handle.fetch(iterator, native_next)
        self._wait_s += time.perf_counter() - start
        return batch

    def run(self) -> None:
        """Loads the workload and makes steps until the process is ended."""
        try:
            self._workload = load(self._order.script, module=self._order.module)
            proof = self._discover(self._workload)
        except WorkloadError as error:
            self._listener.cannot_steer(error.reason.rstrip("."), error.remedy, usage=True)
            return
        while True:
            assert self._step is not None
            self._step()
            self._listener.arrived(self._size, proof, self._wait_s, primary=True)
            self._wait_s = 0.0
            self._listener.boundary()

    # asked by the trial runner ---------------------------------------------------------------

    def report_to(self, listener: StepListener) -> None:
        """See `Door`."""
        self._listener = listener

    def ask(self, batch_size: int, length: LengthChoice = "") -> None:  # noqa: ARG002
        """The next steps have this size; what the last size held is let go first."""
        assert self._workload is not None
        if self._step is None or batch_size != self._size:
            self._step = None
            self._step = self._workload.prepared(batch_size)
            self._size = batch_size

    def resize(self, batch_size: int) -> None:
        """As `ask`."""
        self.ask(batch_size)

    def parameters(self) -> list[torch.Tensor]:
        """The parameters of the optimizers that step."""
        return self.watch.parameters()

    # inside ----------------------------------------------------------------------------------

    def _discover(self, workload: Workload) -> str:
        """Makes the first steps and tells of the loop; returns how the size is known."""
        inputs, watch = ModelInputs(), self.watch
        size = min(workload.batch_size, self._order.batch_cap or workload.batch_size)
        self.ask(size)
        native_step_s = 0.0
        for number in range(DISCOVERY_STEPS):
            assert self._step is not None
            start_s = time.monotonic()
            self._step()
            native_step_s = time.monotonic() - start_s
            self._listener.discovering(number + 1)
            watch.look_at_norms()  # the first step may have made the model
        inputs.stop()
        no_input = "" if watch.num_loaders else "the workload fetches from no DataLoader"
        self.in_control = True
        parameters = self.parameters()
        device = parameters[0].device if parameters else device_in_use()
        discovery = discovery_of(
            workload,
            norms=watch.norm_layers(size),
            optimizers=watch.optimizer_infos(),
            device=device,
            num_parameters=sum(parameter.numel() for parameter in parameters),
            setup_s=time.monotonic() - self._started_s,
            native_step_s=native_step_s,
        )
        self._wait_s = 0.0
        self._listener.found(FoundLoop(discovery=discovery, device=device, no_input=no_input))
        return "shape" if inputs.lead == size else AS_ASKED


def discovery_of(
    workload: Workload,
    *,
    norms: tuple[NormLayers, str],
    optimizers: tuple[Any, ...],
    device: torch.device,
    num_parameters: int,
    setup_s: float,
    native_step_s: float,
    door: Door = "workload",
) -> Discovery:
    """Describes a workload after its first steps."""
    source = LoaderInfo(
        ordinal=0,
        place=workload.place,
        batch_size=workload.batch_size,
        num_samples=workload.num_samples,
        drop_last=False,
        num_workers=0,
        sampler="none",
        iterable=False,
        steered="by the argument of the function"
        if door == "live"
        else "by the argument of the declared workload",
        trains=True,
    )
    return Discovery(
        door=door,
        loaders=(source,),
        optimizers=optimizers,
        primary_loader=0,
        native_batch_size=workload.batch_size,
        micro_batches=1,
        parameter_device=str(device),
        num_parameters=num_parameters,
        norm_layers=norms[0],
        setup_s=setup_s,
        native_step_s=native_step_s,
        unavailable={"norm_values": norms[1]} if norms[1] else {},
    )


def device_in_use() -> torch.device:
    """Where no optimizer stepped: the accelerator that the workload has woken, else the CPU."""
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        return torch.device("cuda", torch.cuda.current_device())
    return torch.device("cpu")
