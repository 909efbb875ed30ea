"""A declared workload in this very process: for notebooks, where the step is a live function.

Stands in for `supervisor.Worker`, and for the script that waits in its loop: a trial is the same
task as there. There is no second process, so a crash or a kill takes this one along; what raises is
caught, and after memory was refused the caches are emptied.
"""

from __future__ import annotations

import gc
import os
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol, cast

import msgspec
import torch

from ...records import DeviceInfo, Discovery, FileTouched, LengthChoice, Trial
from ..devices import host
from ..devices.outside import Outside
from ..devices.torch_devices import limited_process_memory, probe_for
from ..doors.declared import Workload, WorkloadError
from ..doors.optimizers import optimizer_info
from ..doors.protocols import FoundLoop, StepListener
from ..doors.step_on_batches import Arrival, StepOnBatches
from ..doors.workload import DISCOVERY_STEPS, device_in_use, discovery_of
from ..loader.model_inputs import AS_ASKED, ModelInputs
from ..loader.norm_inputs import NormInputs
from ..process.endings import ENDED, WorkerGone, over
from ..process.faults import largest_tensor, refusal_in, script_traceback
from ..process.messages import CannotSteer, Message, Progress, Raised, Result
from ..process.orders import AnswerT, Order, RunTrial, WorkOrder
from ..windows.optimizer_hooks import listen
from .parallelism import ddp_modules
from .supervisor_line import SupervisorLine
from .task import Boundary, TaskContext
from .trial_task import TrialTask
from .versions import versions

_NO_LOADER = "a workload in a notebook fetches from no DataLoader that is watched"
_NOT_COUNTED = "tokens are not counted in a live function"


class RankFailedError(Exception):
    """A step failed on another rank, or a rank was told to end there."""


class Ranks(Protocol):
    """The ranks of a job that run the same workload at the same time.

    Attributes:
        rank: of this process; 0 is the one that decides.
        num_here: of them, on this host.
    """

    rank: int
    num_here: int

    def agree(self, decision: bool) -> bool:
        """Waits for all ranks and returns what the leading one decided.

        Raises:
            RankFailedError: a rank said `failed` meanwhile.
        """

    def failed(self) -> None:
        """Tells those that wait in `agree` that this rank does not go on."""


class LiveDoor:
    """Makes steps of the sizes that are asked for, each size prepared before its first trial.

    Args:
        workload: what was declared.
        step: the object that it was made of.
        ranks: that run it together.

    Attributes:
        proof: how it is known that a size arrives, where the batches do not say it.
        trained: parameters that its optimizers step, once they are known.
    """

    batches: None = None

    def __init__(self, workload: Workload, step: Any, ranks: Ranks | None) -> None:
        self.proof = AS_ASKED
        self.trained: list[torch.Tensor] = []
        self._workload = workload
        self._on_batches = step if isinstance(step, StepOnBatches) else None
        self._ranks = ranks
        self._steps_of: dict[int, Callable[[], Any]] = {}
        self._step: Callable[[], Any] | None = None
        self._size = 0

    def prepare(self, sizes: tuple[int, ...]) -> None:
        """Makes the steps of these sizes ready, and lets go of all others first."""
        self._step = None
        for size in self._steps_of.keys() - set(sizes):
            del self._steps_of[size]
        for size in sorted(sizes):
            if size not in self._steps_of:
                self._steps_of[size] = self._workload.prepared(size)
                self.ask(size)
                self._step_alone()
        self.ask(sizes[0])

    def ready(self) -> None:
        """A step comes next: its batch is made now, where that is no part of a step."""
        if self._on_batches is not None:
            self._on_batches.ready()

    def make_step(self) -> Arrival:
        """Makes it; returns what it trained on."""
        assert self._step is not None
        self._step()
        if self._on_batches is None:
            return Arrival(self._size, self.proof, 0.0)
        came = self._on_batches.arrival
        return came if came.num_samples is not None else came._replace(num_samples=self._size)

    def close(self) -> None:
        """Lets go of the steps and of what they held."""
        self._step = None
        self._steps_of.clear()
        if self._on_batches is not None:
            self._on_batches.batches.close()

    # asked by a trial ------------------------------------------------------------------------

    def report_to(self, listener: StepListener) -> None:
        """Nothing runs on by itself here, so that nobody needs to listen."""

    def ask(self, batch_size: int, length: LengthChoice = "") -> None:  # noqa: ARG002
        """The next steps have this size, which was prepared."""
        self._step, self._size = self._steps_of[batch_size], batch_size
        if self._on_batches is not None:
            self._on_batches.batches.ask(batch_size)

    def resize(self, batch_size: int) -> None:
        """As `ask`."""
        self.ask(batch_size)

    def parameters(self) -> list[torch.Tensor]:
        """Those that its optimizers step."""
        return self.trained

    # inside ----------------------------------------------------------------------------------

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
                self.ready()
                self.make_step()
        finally:
            for module, syncs in zip(joined, before, strict=True):
                module.require_backward_grad_sync = syncs
        self._ranks.agree(True)


class LocalWorker:
    """Runs the sizes of one workload, as `TrialTask` does in a script.

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
        self._door: LiveDoor | None = None
        self._context: TaskContext | None = None
        self._line = SupervisorLine(self, order.silence_s, tuple)
        self._answer: Result | None = None
        self._largest = 0

    def parameters(self) -> list[torch.Tensor]:
        """Those that its optimizers step, once it was discovered."""
        return [] if self._door is None else self._door.parameters()

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
            workload = Workload(
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

    def takes(self, kind: type[Order[Any]]) -> bool:
        """Trials alone: nothing else is known of a function."""
        return kind is RunTrial

    def ask(self, order: Order[AnswerT], until_s: float | None = None) -> AnswerT:
        """Runs one size.

        Args:
            until_s: means nothing here, as in `discover`.

        Raises:
            WorkerGone: the step raised.
        """
        del until_s
        assert isinstance(order, RunTrial)
        assert self._context is not None
        request = order.request
        task = TrialTask(order, self._context, None, shrinks=request.batch_size < self._largest)
        try:
            with limited_process_memory(self._memory_bytes()):
                self._steps(task, request.turns.sizes if request.turns else (request.batch_size,))
            self._agree(True)
        except KeyboardInterrupt:
            task.abandon()
            self._tell_of_failure()
            raise
        except RankFailedError:
            task.abandon()
            gone = self._ended_with_others()
        except Exception as error:  # noqa: BLE001
            task.abandon()
            gone = self._gone(error)
        else:
            assert self._answer is not None
            trial = self._without_tokens(self._answer.trial)
            return cast("AnswerT", msgspec.structs.replace(self._answer, trial=trial))
        raise gone

    def end(self) -> None:
        """Lets go of the steps and of what they held."""
        if self._door is not None:
            self._door.close()
        free_memory()

    # the other end of the trial's line --------------------------------------------------------

    def send(self, message: Message) -> None:
        """What a trial tells: there is no other process to tell it to."""
        if isinstance(message, Progress):
            self._on_progress(message)
        elif isinstance(message, Result):
            self._answer = message

    def receive_line(self) -> bytes | None:
        """Orders come as calls."""
        return None

    # inside ----------------------------------------------------------------------------------

    def _steps(self, task: TrialTask, sizes: tuple[int, ...]) -> None:
        assert self._door is not None
        self._door.prepare(sizes)
        self._largest = max(self._largest, *sizes)
        task.begin()
        over = False
        while not over:
            came = self._door.make_step()
            task.arrived(came.num_samples, came.proof, came.wait_s, primary=True)
            over = task.boundary(Boundary(num_batches=1, num_steps=1))

    def _memory_bytes(self) -> int | None:
        """What the kernel shall allow this process while steps of the user's batches run on a CPU:
        better a refused allocation than a killed training."""
        context = self._context
        if self._on_batches is None or context is None or context.is_asynchronous:
            return None
        resident, left = host.status_bytes("VmRSS"), host.available_bytes()
        limits = [self.order.memory_limit_bytes]
        if resident is not None and left is not None:
            num = 1 if self._ranks is None else self._ranks.num_here
            limits.append(resident + left[0] // num)
        return min((limit for limit in limits if limit is not None), default=None)

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
            door = self._door = LiveDoor(workload, self._declared, self._ranks)
            door.prepare((size,))
            for number in range(DISCOVERY_STEPS):
                door.ready()
                before_s = time.monotonic()
                door.make_step()
                step_s = time.monotonic() - before_s
                self._on_progress(Progress(phase="discovering", num_steps=number + 1))
                if not number:
                    norms.watch()  # the first step may have made the model
        finally:
            steps.remove()
            inputs.stop()
            norms.stop()
        door.proof = "shape" if inputs.lead == size else AS_ASKED
        parameters = door.trained = [
            parameter
            for optimizer in optimizers.values()
            for group in optimizer.param_groups
            for parameter in group["params"]
        ]
        device = parameters[0].device if parameters else device_in_use()
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
        on_batches = self._on_batches
        if on_batches is not None:
            unknown = on_batches.why_own_unknown
            discovery = msgspec.structs.replace(
                discovery,
                loaders=(on_batches.info(),),
                unavailable=discovery.unavailable | ({"own_size": unknown} if unknown else {}),
            )
        probe = probe_for(device, self.order.memory_limit_bytes)
        no_input = _NO_LOADER if on_batches is None else on_batches.batches.why_no_wait
        self._context = TaskContext(
            order=self.order,
            door=door,
            loop=FoundLoop(discovery=discovery, device=device, no_input=no_input),
            device=probe,
            line=self._line,
            outside=Outside(),
            agree=self._agree,
            rank=None if self._ranks is None else self._ranks.rank,
            before_step=door.ready,
        )
        return discovery, probe.info()

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

    def _without_tokens(self, trial: Trial) -> Trial:
        """The trial with the reason why its batches cannot tell of tokens."""
        if trial.kind != "timed":
            return trial
        why = _NO_LOADER if self._on_batches is None else _NOT_COUNTED
        return msgspec.structs.replace(trial, unavailable={**trial.unavailable, "tokens": why})


def free_memory() -> None:
    """Gives the device what nothing holds any more."""
    gc.collect()
    if torch.cuda.is_available() and torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        torch.cuda.empty_cache()
