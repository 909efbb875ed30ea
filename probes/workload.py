"""The door for declared workloads, inside the worker: makes steps of the size that is asked for."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch

from ..records import Discovery, Door, LoaderInfo, NormLayers
from .declared import Workload, WorkloadError, load
from .inputs import AS_ASKED, ModelInputs
from .loaders import LoaderHandle
from .messages import WorkOrder
from .norm_inputs import NormInputs
from .steering import Steering, StepConductor

DISCOVERY_STEPS = 2


class WorkloadSteering(Steering):
    """Calls one declared workload.

    Args:
        conductor: decides at step boundaries.
        order: names the workload and the size to begin with.
        started_s: `time.monotonic()` at the start of the process.
    """

    def __init__(self, conductor: StepConductor, order: WorkOrder, started_s: float) -> None:
        super().__init__(
            conductor, loader=None, batch_cap=None, arguments=order.arguments, started_s=started_s
        )
        self._order = order
        self._workload: Workload | None = None
        self._step: Callable[[], Any] | None = None
        self._size = 0
        self._wait_s = 0.0

    def stepped(self, optimizer: Any) -> None:
        self._note_step(optimizer)

    def next_batch(
        self, handle: LoaderHandle, iterator: Any, native_next: Callable[[Any], Any]
    ) -> Any:
        start = time.perf_counter()
        batch = handle.fetch(iterator, native_next)
        self._wait_s += time.perf_counter() - start
        return batch

    def ask(self, batch_size: int) -> None:
        """The next steps have this size; what the last size held is let go first."""
        assert self._workload is not None
        if self._step is None or batch_size != self._size:
            self._step = None
            self._step = self._workload.prepared(batch_size)
            self._size = batch_size

    def run(self) -> None:
        """Loads the workload and makes steps until the process is ended."""
        try:
            self._workload = load(self._order.script, module=self._order.module)
            proof = self._discover(self._workload)
        except WorkloadError as error:
            self._conductor.cannot_steer(error.reason.rstrip("."), error.remedy, usage=True)
            return
        while True:
            assert self._step is not None
            self._step()
            self._conductor.arrived(self._size, proof, self._wait_s, primary=True)
            self._wait_s = 0.0
            self._conductor.boundary()

    def _discover(self, workload: Workload) -> str:
        inputs, norms = ModelInputs(), NormInputs()
        size = min(workload.batch_size, self._order.batch_cap or workload.batch_size)
        self.ask(size)
        for number in range(DISCOVERY_STEPS):
            assert self._step is not None
            start_s = time.monotonic()
            self._step()
            self._native_step_s = time.monotonic() - start_s
            self._conductor.discovering(number + 1)
            if not number:
                norms.watch()  # the first step may have made the model
        inputs.stop()
        if not self._handles:
            self._conductor.no_input = "the workload fetches from no DataLoader"
        self.steering = True
        parameters = self.parameters()
        device = parameters[0].device if parameters else device_in_use()
        trained = self._optimizers.infos(self._cycles.optimizers)
        discovery = discovery_of(
            workload,
            norms=norms.layers(parameters, size),
            optimizers=trained,
            device=device,
            num_parameters=sum(one.numel() for one in parameters),
            setup_s=time.monotonic() - self._started_s,
            native_step_s=self._native_step_s,
        )
        self._wait_s = 0.0
        self._conductor.found(discovery, device)
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
    """What is known of a workload after its first steps."""
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
