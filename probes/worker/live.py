"""A declared workload in this very process: for notebooks, where the step is a live function.

Stands in for `supervisor.Worker`. There is no second process, so a crash or a kill takes this one
along; what raises is caught, and after memory was refused the caches are emptied.
"""

from __future__ import annotations

import gc
import os
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import torch

from ...records import DeviceInfo, Discovery, FileTouched, Trial, TrialRequest
from ..devices import host
from ..devices.device_probe import DeviceProbe
from ..devices.neighbours import Surroundings
from ..devices.outside import Outside
from ..devices.torch_devices import probe_for
from ..doors.declared import Workload, WorkloadError
from ..doors.optimizers import optimizer_info
from ..doors.workload import device_in_use, discovery_of
from ..loader.compiled_modules import compiles
from ..loader.model_inputs import AS_ASKED, ModelInputs
from ..loader.norm_inputs import NormInputs
from ..process.endings import WorkerGone, over
from ..process.faults import largest_tensor, refusal_in, script_traceback
from ..process.messages import CannotSteer, Progress, Raised, StepSample
from ..process.orders import RunTrial, WorkOrder
from ..windows.optimizer_hooks import listen
from ..windows.protocols import WindowProfiler
from ..windows.step_evidence import EvidenceReader
from ..windows.window import Window
from .signs_of_life import SignsOfLife
from .trial_checks import check_tail, with_causes
from .trial_task import trace_profiler
from .versions import versions

DISCOVERY_STEPS = 2
_NO_LOADER = "a workload in a notebook fetches from no DataLoader that is watched"


class LocalWorker:
    """Runs the sizes of one workload.

    Args:
        step: as in doors/declared.py.
        order: of the run; the device and the script's arguments mean nothing here.
        on_progress: told of every sign of life.

    Attributes:
        in_use, distribution: nothing: this process is the user's own, and one.
    """

    in_use: tuple[()] = ()
    distribution: None = None

    def __init__(
        self,
        step: Any,
        order: WorkOrder,
        *,
        batch_size: int | None,
        num_samples: int | None,
        log: Path,
        on_progress: Callable[[Progress], None],
    ) -> None:
        self.order = order
        self.log = log
        self.pid = os.getpid()
        self.versions = versions()
        self.files: list[FileTouched] = []
        self._declared = step
        self._own = (batch_size, num_samples)
        self._on_progress = on_progress
        self._step: Callable[[], Any] | None = None
        self._size = 0
        self._largest = 0
        self._device: DeviceProbe | None = None
        self._device_type = "cpu"
        self._proof = AS_ASKED
        self._parameters: list[torch.Tensor] = []
        self._workload: Workload | None = None
        self._signs = SignsOfLife(order.silence_s)
        self._outside = Outside()

    def was_stopped(self) -> bool:
        """False: who stops this process stops us as well."""
        return False

    def discover(self, until_s: float | None = None) -> tuple[Discovery, DeviceInfo]:
        """Makes two steps of the workload's own size.

        Args:
            until_s: means nothing here: nobody could end a step that takes longer.

        Raises:
            WorkerGone: they failed.
        """
        del until_s
        started_s = time.monotonic()
        try:
            batch_size, num_samples = self._own
            self._workload = workload = Workload(
                self._declared, self.order.script, batch_size=batch_size, num_samples=num_samples
            )
            return self._discover(workload, started_s)
        except WorkloadError as error:
            message = CannotSteer(reason=error.reason.rstrip("."), remedy=error.remedy, usage=True)
            raise WorkerGone("no_step", error.reason, message) from None
        except Exception as error:  # noqa: BLE001  whatever the step raises is the user's
            gone = self._gone(error)
        raise gone

    def run(self, order: RunTrial) -> tuple[Trial, tuple[StepSample, ...]]:
        """Runs one size.

        Raises:
            WorkerGone: the step raised.
        """
        assert self._device is not None
        request, ordinal = order.request, order.ordinal
        window: Window | None = None
        surroundings = Surroundings(torch.get_num_threads())
        evidence = EvidenceReader(
            throttled=host.throttle_files(), outside_cores=self._outside.cores
        )
        try:
            self._prepare(request.batch_size)
            window = Window(
                request,
                self._device,
                profiler=(lambda: self._profiler(request, ordinal)) if request.profile else None,
                precision=order.precision,
                min_sample_s=order.min_sample_s,
                min_time_s=order.min_time_s,
                brief=order.brief,
                time_limit_s=order.time_limit_s,
                deadline_s=order.deadline_s,
                evidence=evidence,
                asynchronous=self._device_type != "cpu",
                shrinks=request.batch_size < self._largest,
                inputs=None if compiles() else ModelInputs(),
            )
            self._largest = max(self._largest, request.batch_size)
            self._steps(window)
        except KeyboardInterrupt:
            if window is not None:
                window.abandon()
            raise
        except Exception as error:  # noqa: BLE001
            if window is not None:
                window.abandon()
            gone = self._gone(error)
        else:
            trial = window.result(ordinal, self.order.worker)
            if request.kind == "timed":
                trial = with_causes(trial, surroundings.causes())
            if request.purpose == "tail":
                trial = msgspec.structs.replace(trial, tail=check_tail(trial, self._parameters))
            return _without_input(trial), window.samples()
        finally:
            evidence.close()
        raise gone

    def end(self) -> None:
        """Lets go of the step and of what it held."""
        self._step = None
        gc.collect()
        if torch.cuda.is_available() and torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
            torch.cuda.empty_cache()

    # inside ----------------------------------------------------------------------------------

    def _steps(self, window: Window) -> None:
        window.resume()
        while True:
            assert self._step is not None
            self._step()
            window.arrived(self._size, self._proof, 0.0, primary=True)
            if window.boundary():
                return
            self._progress(window)
            window.resume()

    def _prepare(self, size: int) -> None:
        assert self._workload is not None
        if self._step is None or size != self._size:
            self._step = None
            self._step = self._workload.prepared(size)
            self._size = size

    def _discover(self, workload: Workload, started_s: float) -> tuple[Discovery, DeviceInfo]:
        optimizers: dict[int, Any] = {}
        steps = listen(
            lambda *_: None,
            lambda optimizer, *_: optimizers.setdefault(id(optimizer), optimizer),
        )
        inputs, norms = ModelInputs(), NormInputs()
        step_s = 0.0
        try:
            size = min(workload.batch_size, self.order.batch_cap or workload.batch_size)
            self._prepare(size)
            for number in range(DISCOVERY_STEPS):
                assert self._step is not None
                before_s = time.monotonic()
                self._step()
                step_s = time.monotonic() - before_s
                self._on_progress(Progress(phase="discovering", num_steps=number + 1))
                if not number:
                    norms.watch()  # the first step may have made the model
        finally:
            steps.remove()
            inputs.stop()
            norms.stop()
        self._proof = "shape" if inputs.lead == size else AS_ASKED
        parameters = [
            parameter
            for optimizer in optimizers.values()
            for group in optimizer.param_groups
            for parameter in group["params"]
        ]
        self._parameters = parameters
        device = parameters[0].device if parameters else device_in_use()
        self._device = probe_for(device, self.order.memory_limit_bytes)
        self._device_type = device.type
        discovery = discovery_of(
            workload,
            norms=norms.layers(parameters, size),
            optimizers=tuple(
                optimizer_info(optimizer, n) for n, optimizer in enumerate(optimizers.values())
            ),
            device=device,
            num_parameters=sum(parameter.numel() for parameter in parameters),
            setup_s=time.monotonic() - started_s,
            native_step_s=step_s,
            door="live",
        )
        return discovery, self._device.info()

    def _gone(self, error: Exception) -> WorkerGone:
        refusal = refusal_in(error)
        message = Raised(
            kind=type(refusal or error).__name__,
            text=str(refusal or error),
            traceback=script_traceback(error),
            out_of_memory=refusal is not None,
            largest_tensor=() if refusal else largest_tensor(error),
        )
        traceback.clear_frames(error.__traceback__)  # they hold the tensors of the failed step
        self.end()
        return over(message)

    def _profiler(self, request: TrialRequest, ordinal: int) -> WindowProfiler:
        return trace_profiler(self.order, request, ordinal, self._device_type)

    def _progress(self, window: Window) -> None:
        if not self._signs.due(window.phase):
            return
        self._on_progress(
            Progress(
                phase=window.phase,
                batch_size=self._size,
                num_steps=window.num_steps,
                step_s=window.last_step_s,
            )
        )


def _without_input(trial: Trial) -> Trial:
    reasons = {**trial.unavailable, "input_wait_s": _NO_LOADER}
    if trial.kind == "timed":
        reasons["tokens"] = _NO_LOADER
    return msgspec.structs.replace(trial, input_wait_s=None, unavailable=reasons)
