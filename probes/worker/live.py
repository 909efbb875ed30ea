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
from typing import Any, Protocol

import msgspec
import torch

from ...records import DeviceInfo, Discovery, FileTouched, Trial, TrialRequest
from ..devices import host
from ..devices.device_probe import DeviceProbe
from ..devices.neighbours import Surroundings
from ..devices.outside import Outside
from ..devices.torch_devices import limited_process_memory, probe_for
from ..doors.declared import Workload, WorkloadError
from ..doors.optimizers import optimizer_info
from ..doors.step_on_batches import Arrival, StepOnBatches
from ..doors.workload import device_in_use, discovery_of
from ..loader.compiled_modules import compiles
from ..loader.model_inputs import AS_ASKED, ModelInputs
from ..loader.norm_inputs import NormInputs
from ..process.endings import ENDED, WorkerGone, over
from ..process.faults import largest_tensor, refusal_in, script_traceback
from ..process.messages import CannotSteer, Progress, Raised, StepSample
from ..process.orders import RunTrial, WorkOrder
from ..windows.interleaved_window import TurnsWindow
from ..windows.optimizer_hooks import listen
from ..windows.protocols import TrialWindow, WindowProfiler
from ..windows.step_evidence import EvidenceReader
from ..windows.window import Window
from .parallelism import ddp_modules
from .signs_of_life import SignsOfLife
from .trial_checks import check_tail, with_causes
from .trial_task import trace_profiler
from .versions import versions

DISCOVERY_STEPS = 2
_NO_LOADER = "a workload in a notebook fetches from no DataLoader that is watched"
_NOT_COUNTED = "tokens are not counted in a live function"


class RankFailedError(Exception):
    """A step failed on another rank, or a rank was told to end there."""


class Ranks(Protocol):
    """The ranks of a job that run the same workload at the same time.

    Attributes:
        num_here: of them, on this host.
    """

    num_here: int

    @property
    def leads(self) -> bool:
        """Whether this is the one that decides."""

    def agree(self, decision: bool) -> bool:
        """Waits for all ranks and returns what the leading one decided.

        Raises:
            RankFailedError: a rank said `failed` meanwhile.
        """

    def failed(self) -> None:
        """Tells those that wait in `agree` that this rank does not go on."""


class LocalWorker:
    """Runs the sizes of one workload.

    Args:
        step: as in doors/declared.py, or a `StepOnBatches`.
        ranks: that run it together.
        device: that the user named; the steps have to train there.
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
        ranks: Ranks | None = None,
        device: str = "auto",
    ) -> None:
        self.order = order
        self.log = log
        self.pid = os.getpid()
        self.versions = versions()
        self.files: list[FileTouched] = []
        self._declared = step
        self._own = (batch_size, num_samples)
        self._on_progress = on_progress
        self._wanted_device = device
        self._ranks = ranks
        self._agree: Callable[[bool], bool] = bool if ranks is None else ranks.agree
        self._on_batches = step if isinstance(step, StepOnBatches) else None
        self._steps_of: dict[int, Callable[[], Any]] = {}
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

    def parameters(self) -> list[torch.Tensor]:
        """Those that its optimizers step, once it was discovered."""
        return self._parameters

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
            found = self._discover(workload, started_s)
            self._agree(True)
        except RankFailedError:
            gone = self._ended_with_others()
        except WorkloadError as error:
            self._tell_of_failure()
            message = CannotSteer(reason=error.reason.rstrip("."), remedy=error.remedy, usage=True)
            raise WorkerGone("no_step", error.reason, message) from None
        except KeyboardInterrupt:
            self._tell_of_failure()
            raise
        except Exception as error:  # noqa: BLE001  whatever the step raises is the user's
            gone = self._gone(error)
        else:
            return found
        raise gone

    def run(self, order: RunTrial) -> tuple[Trial, tuple[StepSample, ...]]:
        """Runs one size.

        Raises:
            WorkerGone: the step raised.
        """
        assert self._device is not None
        request = order.request
        window: TrialWindow | None = None
        surroundings = Surroundings(torch.get_num_threads()) if self._ranks is None else None
        evidence = EvidenceReader(
            throttled=host.throttle_files(), outside_cores=self._outside.cores
        )
        try:
            with limited_process_memory(self._memory_bytes()):
                self._prepare(request.turns.sizes if request.turns else (request.batch_size,))
                window = self._window(order, evidence)
                self._largest = max(self._largest, request.batch_size)
                self._steps(window)
            self._agree(True)
        except KeyboardInterrupt:
            self._abandon(window)
            self._tell_of_failure()
            raise
        except RankFailedError:
            self._abandon(window)
            gone = self._ended_with_others()
        except Exception as error:  # noqa: BLE001
            self._abandon(window)
            gone = self._gone(error)
        else:
            trial = window.result(order.ordinal, self.order.worker)
            if request.kind == "timed" and surroundings is not None:
                trial = with_causes(trial, surroundings.causes())
            if request.purpose == "tail":
                trial = msgspec.structs.replace(trial, tail=check_tail(trial, self._parameters))
            return self._without_input(trial), window.samples()
        finally:
            evidence.close()
        raise gone

    def end(self) -> None:
        """Lets go of the steps and of what they held."""
        self._step = None
        self._steps_of.clear()
        if self._on_batches is not None:
            self._on_batches.batches.close()
        gc.collect()
        if torch.cuda.is_available() and torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
            torch.cuda.empty_cache()

    # inside ----------------------------------------------------------------------------------

    def _window(self, order: RunTrial, evidence: EvidenceReader) -> TrialWindow:
        assert self._device is not None
        request, ordinal = order.request, order.ordinal
        num_workers = self._num_workers()
        if request.turns is not None:
            window = TurnsWindow(
                request,
                self._device,
                seed=ordinal,
                time_limit_s=order.time_limit_s,
                deadline_s=order.deadline_s,
                evidence=evidence,
                asynchronous=self._device_type != "cpu",
                num_ahead=0,
                num_workers=num_workers,
                meter=None,
                agree=self._agree,
            )
            self._take_up(window.size)
            return window
        return Window(
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
            num_workers=num_workers,
            inputs=None if compiles() else ModelInputs(),
            agree=self._agree,
        )

    def _steps(self, window: TrialWindow) -> None:
        self._ready()
        window.resume()
        while True:
            self._make_step()
            came = Arrival(self._size, self._proof, 0.0)
            if self._on_batches is not None:
                came = self._on_batches.arrival
            num = self._size if came.num_samples is None else came.num_samples
            window.arrived(num, came.proof, came.wait_s, primary=True)
            if window.boundary():
                return
            self._progress(window)
            if window.size != self._size:
                self._take_up(window.size)
            self._ready()
            window.resume()

    def _make_step(self) -> None:
        assert self._step is not None
        self._step()

    def _ready(self) -> None:
        if self._on_batches is not None:
            self._on_batches.ready()

    def _prepare(self, sizes: tuple[int, ...]) -> None:
        """Makes the steps of these sizes ready, and lets go of all others first."""
        assert self._workload is not None
        self._step = None
        for size in self._steps_of.keys() - set(sizes):
            del self._steps_of[size]
        for size in sorted(sizes):
            if size not in self._steps_of:
                self._steps_of[size] = self._workload.prepared(size)
                self._take_up(size)
                self._step_alone()
        self._take_up(sizes[0])

    def _take_up(self, size: int) -> None:
        """The next steps have this size."""
        self._step, self._size = self._steps_of[size], size
        if self._on_batches is not None:
            self._on_batches.batches.ask(size)

    def _step_alone(self) -> None:
        """Where DDP joins the ranks, the first step of a size runs without its synchronisation.

        A rank that runs out of memory would else leave the others waiting inside it. A static
        graph has to see its first step whole.
        """
        if self._ranks is None:
            return
        joined = [module for module in ddp_modules() if not getattr(module, "static_graph", False)]
        before = [module.require_backward_grad_sync for module in joined]
        for module in joined:
            module.require_backward_grad_sync = False
        try:
            if joined:
                self._ready()
                self._make_step()
        finally:
            for module, syncs in zip(joined, before, strict=True):
                module.require_backward_grad_sync = syncs
        self._agree(True)

    def _memory_bytes(self) -> int | None:
        """What the kernel shall allow this process while steps of the user's batches run on a CPU:
        better a refused allocation than a killed training."""
        if self._on_batches is None or self._device_type != "cpu":
            return None
        resident, left = host.status_bytes("VmRSS"), host.available_bytes()
        limits = [self.order.memory_limit_bytes]
        if resident is not None and left is not None:
            num = 1 if self._ranks is None else self._ranks.num_here
            limits.append(resident + left[0] // num)
        return min((limit for limit in limits if limit is not None), default=None)

    def _abandon(self, window: TrialWindow | None) -> None:
        if isinstance(window, Window):  # sizes in turn start nothing that runs on
            window.abandon()

    def _tell_of_failure(self) -> None:
        if self._ranks is not None:
            self._ranks.failed()

    def _ended_with_others(self) -> WorkerGone:
        self.end()
        return WorkerGone("crashed", ENDED)

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
            self._prepare((size,))
            for number in range(DISCOVERY_STEPS):
                self._ready()
                before_s = time.monotonic()
                self._make_step()
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
        self._check_device(device)
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
        if self._on_batches is not None:
            unknown = self._on_batches.why_own_unknown
            discovery = msgspec.structs.replace(
                discovery,
                loaders=(self._on_batches.info(),),
                unavailable=discovery.unavailable | ({"own_size": unknown} if unknown else {}),
            )
        return discovery, self._device.info()

    def _check_device(self, device: torch.device) -> None:
        """Fails where the user named another device than the one that is trained on."""
        wanted, _, number = self._wanted_device.partition(":")
        if wanted not in ("auto", device.type) or number not in ("", str(device.index or 0)):
            raise WorkloadError(
                f"device={self._wanted_device!r}, and the steps train on {device}.",
                "Leave device out, or move the model there first.",
            )

    def _gone(self, error: Exception) -> WorkerGone:
        self._tell_of_failure()
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
        if self._ranks is None:
            return trace_profiler(self.order, request, ordinal, self._device_type)
        from ..distributed.lockstep import SteadyProfiler

        trace = trace_profiler(self.order, request, ordinal, self._device_type)
        num_steps = sum(self.order.profile_schedule)
        return SteadyProfiler(trace if self._ranks.leads else None, num_steps)

    def _progress(self, window: TrialWindow) -> None:
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

    def _num_workers(self) -> int:
        return 0 if self._on_batches is None else self._on_batches.info().num_workers

    def _without_input(self, trial: Trial) -> Trial:
        """The trial without what its batches cannot tell."""
        on_batches = self._on_batches
        why = _NO_LOADER if on_batches is None else on_batches.batches.why_no_wait
        reasons = {**trial.unavailable}
        if trial.kind == "timed":
            reasons["tokens"] = _NO_LOADER if on_batches is None else _NOT_COUNTED
        if why:
            reasons["input_wait_s"] = why
            trial = msgspec.structs.replace(trial, input_wait_s=None)
        return msgspec.structs.replace(trial, unavailable=reasons)
