"""Runs trials inside the script's loop: asks the supervisor for the next size, opens a window.

Lives in the worker. The script waits inside its own `next(loader)` while we talk.
"""

from __future__ import annotations

import functools
import os
import time
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import msgspec
import torch

from ..records import (
    Cause,
    Discovery,
    Door,
    FileTouched,
    InputSize,
    LossCheck,
    Parallelism,
    TailCheck,
    Trial,
    trial_of,
)
from . import host
from .devices import DeviceProbe
from .discovery import parts_of, usual_steps
from .distributed.lockstep import Agreement, LockstepWindow, SteadyProfiler
from .distributed.pairs import PairWindow
from .distributed.shapes import ddp_modules, recognise
from .gauge import BatchGauge
from .gpus_in_use import devices_of, gpus_in_use
from .loss_steps import LossSteps
from .messages import (
    CannotSteer,
    Channel,
    ChannelClosedError,
    Found,
    Lockstep,
    LossResult,
    PairsResult,
    Progress,
    Result,
    RunLoss,
    RunPairs,
    RunTrial,
    Touched,
    WorkOrder,
    decode_to_worker,
)
from .neighbours import Surroundings
from .norms import RunningStatistics
from .profiling import TraceProfiler, trace_path
from .signs import SignsOfLife
from .spread_model import probe_of_model
from .step_evidence import EvidenceReader
from .swallowed import Witness
from .turns import TurnsWindow
from .window import Window, WindowProfiler

Handed = Callable[[Any, int | None, BatchGauge], Any]
"""A batch, its samples and what knows where it carries them, to what the script gets instead."""
PROFILE_BELOW = 0.90
"""Share of the capacity above which a trial is not profiled."""


class Conductor:
    """One worker's trials.

    Args:
        channel: to the supervisor.
        order: what the supervisor asked of this worker.
        touched: takes the files that the script opened since it was last asked.

    Attributes:
        no_input: why waiting for data cannot be seen; empty where it can.
        no_profile: why no trace would say anything; empty where it would.
        num_ahead: steps that the script makes with batches it took before a size was asked for.
        ask: told of every new size before its window opens.
        resize: told of every new size while sizes take turns.
        device_known: told of the kind of device that the script trains on.
        parameters: what the optimizers train.
        replace: told what hands the script another batch than the one it fetched; `None` where
            nobody can.
    """

    def __init__(
        self, channel: Channel, order: WorkOrder, touched: Callable[[], tuple[FileTouched, ...]]
    ) -> None:
        self._channel = channel
        self._order = order
        self._touched = touched
        self._device: DeviceProbe | None = None
        self._device_type = "cpu"
        self._window: Window | TurnsWindow | None = None
        self._evidence: EvidenceReader | None = None
        self._size = 0
        self._num_batches = 0
        self._steps_a_cycle = 1
        self._steps_seen: Counter[int] = Counter()
        self._run: RunTrial | None = None
        self._pairs: PairWindow | None = None
        self._loss: LossSteps | None = None
        self._agreement: Agreement | None = None
        self._largest_so_far = 0
        self._norms: RunningStatistics | None = None
        self._surroundings: Surroundings | None = None
        self._signs = SignsOfLife(order.silence_s)
        self._num_steps = self._num_elsewhere = 0
        self.no_input = ""
        self.no_profile = ""
        self.num_ahead = 0
        self.ask: Callable[[int], None] = lambda _: None
        self.resize: Callable[[int], None] = lambda _: None
        self.inputs: Callable[[], InputSize | None] = lambda: None
        self.parameters: Callable[[], list[torch.Tensor]] = list
        self.device_known: Callable[[str], None] = lambda _: None
        self.replace: Callable[[Handed], None] | None = None

    @property
    def has_loop(self) -> bool:
        """Whether the training loop is found."""
        return self._device is not None

    def join(self, lockstep: Lockstep) -> None:
        """From here on this process is one rank of several."""
        self._order = msgspec.structs.replace(self._order, lockstep=lockstep)

    # called by steering ----------------------------------------------------------------------

    def discovering(self, num_steps: int) -> None:
        """A native cycle ended."""
        self._send(Progress(phase="discovering", num_steps=num_steps))

    def found(
        self, discovery: Discovery, device: torch.device, *, probe: DeviceProbe | None = None
    ) -> None:
        """The training loop is known; from here on it is ours.

        Args:
            probe: where another than torch's own for the device is needed.
        """
        parallelism = recognise(self.parameters())
        limit, in_use = self._order.memory_limit_bytes, gpus_in_use()
        names = devices_of(device, parallelism.devices, in_use)
        self._device = probe or probe_of_model(device, names, limit)
        self._device_type = device.type
        if not self._fits_the_job(parallelism):
            return
        discovery = msgspec.structs.replace(
            discovery,
            num_ranks=parallelism.world_size or 1,
            num_replicas=max(1, len(parallelism.replicas)),
        )
        info = self._device.info()
        self._tell_files()
        self._send(Found(discovery=discovery, device=info, parallelism=parallelism, in_use=in_use))
        self.device_known(info.kind)
        self._next()

    def arrived(self, num_samples: int | None, proof: str, wait_s: float, *, primary: bool) -> None:
        """A batch went to the script."""
        self._num_batches += primary
        if self._window is not None:
            self._window.arrived(num_samples, proof, wait_s, primary=primary)

    def boundary(self, num_steps: int = 1) -> None:
        """An optimizer step is complete and the script fetches the next batch.

        Args:
            num_steps: made since the boundary before; several where a pool of batches was fetched,
                or where each batch is stepped on more than once. 0: no rhythm was found in them.
        """
        parts = parts_of(self._num_batches, num_steps) if num_steps else 1
        if self._num_batches:
            self._steps_seen[num_steps // parts] += 1
        self._num_batches, self._steps_a_cycle = 0, num_steps
        if self._pairs is not None:
            self._pair_boundary(self._pairs, parts)
            return
        if self._loss is not None:
            self._loss_boundary(self._loss)
            return
        window = self._window
        if window is None:
            return
        self._num_steps += parts
        if window.boundary(parts):
            self._report(window)
            self._next()
            return
        self._progress(window)
        if window.size != self._size:
            self._size = window.size
            self.resize(window.size)
        window.resume()

    def stepped_elsewhere(self) -> None:
        """An optimizer stepped on a batch of another loader, whose size is the script's own."""
        self._num_elsewhere += 1

    def no_step(self, num_fetches: int, witness: Witness) -> None:
        """Batches of the asked size flow and no optimizer steps.

        Args:
            witness: knows what the script caught meanwhile and kept to itself.
        """
        if self._loss is not None:
            self._send(LossResult(check=LossCheck(reason="no optimizer stepped")))
            _wait_for_the_end()
        if self._run is None:
            self.cannot_steer(f"{num_fetches} batches went in and no optimizer stepped", "")
        assert self._run is not None
        request = self._run.request
        kept = f": the script swallows {witness.seen}" if witness.seen else ""
        self._finish(
            trial_of(
                request,
                ordinal=self._run.ordinal,
                worker=self._order.worker,
                outcome="out_of_memory" if witness.out_of_memory else "no_step",
                detail=f"{num_fetches} batches of {request.batch_size} samples went into the "
                f"loop and no optimizer stepped{kept}",
            )
        )
        _wait_for_the_end()

    def cannot_steer(
        self, reason: str, remedy: str, *, usage: bool = False, door: Door | None = None
    ) -> None:
        """Nothing here can be steered; the supervisor ends this process."""
        self._send(CannotSteer(reason=reason, remedy=remedy, usage=usage, door=door))
        _wait_for_the_end()

    # inside ----------------------------------------------------------------------------------

    def _next(self) -> None:
        """Takes the next request and opens its window."""
        try:
            line = self._channel.receive_line()
        except ChannelClosedError:
            os._exit(0)  # the supervisor is gone or has enough; no clean-up code of the script
        message = decode_to_worker(line or b"")
        if self._order.lockstep is not None and self._agreement is None:
            self._agreement = Agreement(self._order.lockstep)
        if isinstance(message, RunPairs):
            self._open_pairs(message)
            return
        if isinstance(message, RunLoss):
            self._open_loss(message)
            return
        assert isinstance(message, RunTrial)
        assert self._device is not None
        self._run = message
        request = message.request
        if request.turns is None:
            self.ask(request.batch_size)  # before peaks are reset: it may prepare data
        if request.kind != "fit":
            files = host.throttle_files()
            self._evidence = EvidenceReader(throttled=files, paced=self._order.paced)
        self._window = window = self._window_for(message)
        self._size = window.size
        if request.turns is not None:
            self.ask(window.size)
        self._steps_seen.clear()
        self._norms = RunningStatistics() if request.purpose == "tail" else None
        self._surroundings = None
        if request.kind != "fit" and self._order.lockstep is None:  # other ranks are no strangers
            self._surroundings = Surroundings(torch.get_num_threads())
        self._largest_so_far = max(self._largest_so_far, request.batch_size)
        self._signs.begin()
        self._num_steps = self._num_elsewhere = 0
        self._progress(window)
        window.resume()

    def _window_for(self, message: RunTrial) -> Window | TurnsWindow:
        assert self._device is not None
        request, agreement = message.request, self._agreement
        if request.turns is not None:
            return TurnsWindow(
                request,
                self._device,
                seed=message.ordinal,
                time_limit_s=message.time_limit_s,
                deadline_s=message.deadline_s,
                evidence=self._evidence,
                asynchronous=self._device_type != "cpu",
                num_ahead=self.num_ahead,
                agree=bool if agreement is None else agreement.agree,
            )
        make: Callable[..., Window] = Window
        if agreement is not None:
            make = functools.partial(LockstepWindow, agree=agreement.agree)
        return make(
            request,
            self._device,
            profiler=self._profiler if request.profile and not self.no_profile else None,
            profile_below_bytes=int(PROFILE_BELOW * self._device.info().capacity_bytes),
            precision=message.precision,
            min_sample_s=message.min_sample_s,
            min_time_s=message.min_time_s,
            brief=message.brief,
            time_limit_s=message.time_limit_s,
            deadline_s=message.deadline_s,
            evidence=self._evidence,
            asynchronous=self._device_type != "cpu",
            shrinks=request.batch_size < self._largest_so_far,
            num_ahead=self.num_ahead,
        )

    def _open_pairs(self, order: RunPairs) -> None:
        assert self._device is not None
        assert self._agreement is not None
        assert self._order.lockstep is not None
        self.ask(order.batch_size)
        self._pairs = PairWindow(
            self._order.lockstep.rank,
            ddp_modules(),
            self._device,
            agree=self._agreement.agree,
            time_limit_s=order.time_limit_s,
        )
        self._pairs.resume()

    def _pair_boundary(self, pairs: PairWindow, parts: int) -> None:
        if not pairs.boundary(parts):
            if self._signs.due("timing"):
                self._send(Progress(phase="timing", num_steps=pairs.num_steps))
            pairs.resume()
            return
        self._pairs = None
        self._send(PairsResult(pairs=pairs.result()))
        self._next()

    def _open_loss(self, order: RunLoss) -> None:
        reason = "batches cannot be replaced behind this door" if self.replace is None else ""
        if self.num_ahead:
            reason = "the script takes its batches several steps ahead"
        if reason or self.replace is None:
            self._send(LossResult(check=LossCheck(reason=reason)))
            self._next()
            return
        self.ask(order.batch_size)
        self._loss = loss = LossSteps(
            self.parameters(), order.batch_size, time_limit_s=order.time_limit_s
        )
        self.replace(loss.hand)
        self._signs.begin()

    def _loss_boundary(self, loss: LossSteps) -> None:
        loss.boundary()
        if not loss.over:
            if self._signs.due("fitting"):
                self._send(Progress(phase="fitting", num_steps=loss.num_steps))
            return
        loss.close()
        self._send(LossResult(check=loss.result()))
        _wait_for_the_end()  # what the script was given meanwhile is no training

    def _fits_the_job(self, parallelism: Parallelism) -> bool:
        lockstep, world = self._order.lockstep, parallelism.world_size
        started = 1 if lockstep is None else lockstep.world_size
        if world is None or world == started:
            return True
        if lockstep is None:
            self.cannot_steer(
                f"this is one of {world} ranks, and the others were started past batchadvisor",
                f"let it start them: batchadvisor run --nproc-per-node {world} SCRIPT.",
            )
            return False
        self.cannot_steer(
            f"the script's process group has {world} ranks and the launcher started "
            f"{lockstep.world_size}",
            "let the script take its world size from the launcher.",
        )
        return False

    def _profiler(self) -> WindowProfiler:
        """Made where the timed steps are over, before the profiler's own start takes its time."""
        assert self._run is not None
        size = self._run.request.batch_size
        self._send(Progress(phase="profiling", batch_size=size, timed_until_s=time.monotonic()))
        lockstep = self._order.lockstep
        if lockstep is None:
            return self._trace_profiler()
        inner = self._trace_profiler() if lockstep.rank == 0 else None
        return SteadyProfiler(inner, sum(self._order.profile_schedule))

    def _trace_profiler(self) -> TraceProfiler:
        assert self._run is not None
        folder = Path(self._order.run_folder)
        path = trace_path(
            folder, self._run.request.batch_size, self._order.worker, self._run.ordinal
        )
        return TraceProfiler(
            path,
            folder,
            self._device_type,
            self._order.profile_schedule,
            with_stack=self._order.with_stack,
        )

    def _report(self, window: Window | TurnsWindow) -> None:
        assert self._run is not None
        trial = window.result(self._run.ordinal, self._order.worker)
        if self._surroundings is not None:
            # All that the supervisor started is ours.
            trial = with_causes(trial, self._surroundings.causes((os.getppid(),)))
        if self._num_elsewhere:
            elsewhere = round(self._num_elsewhere / self._num_steps, 3)
            trial = msgspec.structs.replace(trial, steps_elsewhere=elsewhere)
        trial = msgspec.structs.replace(trial, steps_per_batch=usual_steps(self._steps_seen))
        inputs = self.inputs()
        if inputs is not None:
            trial = msgspec.structs.replace(trial, inputs=inputs)
        if self.no_profile and window.request.profile:
            reasons = {**trial.unavailable, "profile": self.no_profile}
            trial = msgspec.structs.replace(trial, unavailable=reasons)
        if self.no_input:
            reasons = {**trial.unavailable, "input_wait_s": self.no_input}
            trial = msgspec.structs.replace(trial, input_wait_s=None, unavailable=reasons)
        if window.request.purpose == "tail":
            num_steps = window.num_steps * max(1, self._steps_a_cycle)
            check = check_tail(trial, self.parameters(), self._norms, num_steps)
            trial = msgspec.structs.replace(trial, tail=check)
        self._finish(trial, window.samples())

    def _finish(self, trial: Trial, steps: tuple[Any, ...] = ()) -> None:
        self._window = None
        if self._evidence is not None:
            self._evidence.close()
            self._evidence = None
        self._tell_files()
        self._send(Result(trial=trial, steps=steps))

    def _tell_files(self) -> None:
        files = self._touched()
        if files:
            self._send(Touched(files=files))

    def _progress(self, window: Window | TurnsWindow) -> None:
        if not self._signs.due(window.phase):
            return
        self._send(
            Progress(
                phase=window.phase,
                batch_size=window.size,
                num_steps=window.num_steps,
                step_s=window.last_step_s,
            )
        )

    def _send(self, message: Any) -> None:
        try:
            self._channel.send(message)
        except ChannelClosedError:
            os._exit(0)


def _wait_for_the_end() -> None:
    while True:
        time.sleep(3600)


def with_causes(trial: Trial, causes: tuple[Cause, ...]) -> Trial:
    """The trial with what disturbed it; a doubt only where too few of its steps were clean."""
    if not trial.contended:
        return msgspec.structs.replace(trial, causes=causes)
    assert trial.quality is not None
    messages = "; ".join(cause.message for cause in causes)
    doubt = (
        f"{trial.quality.num_disturbed} of {trial.quality.num_steps} steps were held up"
        f"{': ' + messages if messages else ''}"
    )
    return msgspec.structs.replace(trial, causes=causes, doubts=(*trial.doubts, doubt))


def check_tail(
    trial: Trial,
    parameters: Iterable[torch.Tensor],
    norms: RunningStatistics | None = None,
    num_steps: int | None = None,
) -> TailCheck:
    """Whether the parameters are still numbers after a step of the tail's length.

    Args:
        norms: running statistics as they were before; what became of them is said too.
    """
    num_broken = sum(
        1
        for parameter in parameters
        if parameter.is_floating_point() and not bool(torch.isfinite(parameter).all())
    )
    moved = norms.moved_most() if norms is not None else None
    return TailCheck(
        num_samples=trial.batch_size,
        outcome=trial.outcome,
        detail=trial.detail,
        num_non_finite=num_broken,
        num_steps=num_steps,
        num_norms=None if norms is None else norms.num_layers,
        num_non_finite_norms=0 if norms is None else norms.num_non_finite(),
        running_var_before=None if moved is None else moved[0],
        running_var_after=None if moved is None else moved[1],
    )
