"""One trial in the script's loop: its window, what is around it, and what becomes of it."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path

import msgspec
import torch

from ...records import TailCheck, Trial, TrialRequest, trial_of
from ..devices import host
from ..devices.neighbours import Surroundings
from ..doors.caught_errors import CaughtErrors
from ..doors.training_cycle import usual_steps
from ..loader.compiled_modules import compiles
from ..loader.model_inputs import ModelInputs
from ..loader.norms import RunningStatistics
from ..loader.token_meter import TokenMeter
from ..process.messages import Progress, Result, StepSample
from ..process.orders import RunTrial, WorkOrder
from ..windows.counted_step import FlopCounter
from ..windows.interleaved_window import TurnsWindow
from ..windows.profiling import TraceProfiler, trace_path
from ..windows.protocols import TrialWindow, WindowProfiler
from ..windows.step_evidence import EvidenceReader
from ..windows.window import Window
from .kept_steps import KeptSteps
from .supervisor_line import wait_for_the_end
from .task import Boundary, TaskContext

PROFILE_BELOW = 0.90
"""Share of the capacity above which a trial is not profiled."""

TOKENS_NOT_SEEN = "batches are counted on their way from a loader; here none is steered"


class TrialTask:
    """One size, or several that take turns.

    Args:
        order: what to run.
        context: where it runs.
        kept: what the steps of this process keep; `None` where nobody looks.
        shrinks: a trial before ran a larger size.
    """

    def __init__(
        self, order: RunTrial, context: TaskContext, kept: KeptSteps | None, *, shrinks: bool
    ) -> None:
        self._order = order
        self._request = order.request
        self._context = context
        self._kept = kept
        self._shrinks = shrinks
        self._window: TrialWindow | None = None
        self._size = order.request.batch_size
        self._evidence: EvidenceReader | None = None
        self._norms: RunningStatistics | None = None
        self._surroundings: Surroundings | None = None
        self._steps_seen: Counter[int] = Counter()
        self._steps_a_cycle = 1
        self._num_steps = self._num_elsewhere = 0

    def begin(self) -> bool:
        """Asks for the size and opens the window."""
        request, context = self._request, self._context
        if request.turns is None:
            # Before peaks are reset: it may prepare data.
            if request.length:
                context.door.ask(request.batch_size, request.length)
            else:
                context.door.ask(request.batch_size)
        if request.kind != "fit" and not self._order.left_out:
            files = host.throttle_files()
            self._evidence = EvidenceReader(
                throttled=files,
                paced=context.order.paced,
                outside_cores=context.outside.cores,
            )
        if request.turns is None:
            window = self._one_size()
        else:
            window = self._sizes_in_turn()
            context.door.ask(window.size)
        self._window = window
        self._size = window.size
        if request.purpose == "tail":
            self._norms = RunningStatistics()
        alone = context.rank is None  # other ranks are no strangers
        if request.kind != "fit" and alone and not self._order.left_out:
            self._surroundings = Surroundings(torch.get_num_threads())
        if self._kept is not None and self._looks:
            self._kept.begin()
        context.line.begin_task()
        self._show(window)
        context.before_step()
        window.resume()
        return True

    def arrived(self, num_samples: int | None, proof: str, wait_s: float, *, primary: bool) -> None:
        """A batch went to the script."""
        if self._window is not None:
            self._window.arrived(num_samples, proof, wait_s, primary=primary)

    def boundary(self, boundary: Boundary) -> bool:
        """A step ended. True when the trial is over and its result is sent."""
        window = self._window
        assert window is not None
        if boundary.num_batches:
            self._steps_seen[boundary.num_steps // boundary.parts] += 1
        self._steps_a_cycle = boundary.num_steps
        self._num_steps += boundary.parts
        is_over = window.boundary(boundary.parts)
        if self._kept is not None:
            self._kept.stepped(boundary.parts)
        if is_over:
            self._send(self._completed(window), window.samples())
            return True
        self._show(window)
        if window.size != self._size:
            self._size = window.size
            self._context.door.resize(window.size)
        self._context.before_step()
        window.resume()
        return False

    def epoch_began(self) -> None:
        """The step that comes next starts now; validation and saving were before it."""
        if self._window is not None and self._window.phase not in ("counting", "profiling"):
            self._window.resume()

    def stepped_elsewhere(self) -> None:
        """An optimizer stepped on a batch of another loader, whose size is the script's own."""
        self._num_elsewhere += 1

    def no_step(self, num_fetches: int, caught_errors: CaughtErrors) -> None:
        """The trial failed, and the loop with it."""
        request = self._request
        kept = f": the script swallows {caught_errors.seen}" if caught_errors.seen else ""
        self._send(
            trial_of(
                request,
                ordinal=self._order.ordinal,
                worker=self._context.order.worker,
                outcome="out_of_memory" if caught_errors.out_of_memory else "no_step",
                detail=f"{num_fetches} batches of {request.batch_size} samples went into the "
                f"loop and no optimizer stepped{kept}",
            )
        )
        wait_for_the_end()

    def abandon(self) -> None:
        """The trial is over without a result: a step raised."""
        window, self._window = self._window, None
        if isinstance(window, Window):  # sizes in turn start nothing that runs on
            window.abandon()
        self._close_evidence()

    # its window ------------------------------------------------------------------------------

    def _one_size(self) -> TrialWindow:
        order, context, request = self._order, self._context, self._request
        wants_profile = request.profile and not (context.loop.no_profile or order.left_out)
        return Window(
            request,
            context.device,
            profiler=self._profiler if wants_profile else None,
            profile_below_bytes=int(PROFILE_BELOW * context.device.info().capacity_bytes),
            precision=order.precision,
            min_sample_s=order.min_sample_s,
            min_time_s=order.min_time_s,
            brief=order.brief,
            time_limit_s=order.time_limit_s,
            deadline_s=order.deadline_s,
            evidence=self._evidence,
            asynchronous=context.is_asynchronous,
            shrinks=self._shrinks,
            num_ahead=context.loop.num_ahead,
            num_workers=context.loop.discovery.primary.num_workers,
            full=self._are_all_ready,
            meter=self._meter,
            flops=self._flop_counter() if self._counts_flops else None,
            inputs=None if compiles() else ModelInputs(),
            agree=context.agree,
            timed=self._timed,
        )

    def _timed(self) -> None:
        """The steps to come are not timed: what is counted meanwhile would be wrong by them."""
        size = self._request.batch_size
        self._context.line.send(
            Progress(phase="timing", batch_size=size, timed_until_s=time.monotonic())
        )

    @property
    def _counts_flops(self) -> bool:
        """Whether a step more is made for its floating point operations: once for each size."""
        request = self._request
        searched = request.kind == "timed" and request.purpose == "search"
        return searched and not self._order.brief and not self._context.loop.no_profile

    def _flop_counter(self) -> Callable[[], FlopCounter] | str:
        """The counter, or why none can count."""
        from ..windows.step_flops import NO_COUNT_COMPILED, StepFlopCounter

        if compiles():
            return NO_COUNT_COMPILED
        return self._order.left_out or StepFlopCounter

    def _sizes_in_turn(self) -> TrialWindow:
        order, context = self._order, self._context
        return TurnsWindow(
            self._request,
            context.device,
            seed=order.ordinal,
            time_limit_s=order.time_limit_s,
            deadline_s=order.deadline_s,
            evidence=self._evidence,
            asynchronous=context.is_asynchronous,
            num_ahead=context.loop.num_queued,
            num_workers=context.loop.discovery.primary.num_workers,
            meter=self._meter,
            agree=context.agree,
        )

    def _are_all_ready(self) -> bool:
        batches = self._context.door.batches
        return batches is not None and batches.are_all_ready()

    @property
    def _meter(self) -> TokenMeter | None:
        batches = self._context.door.batches
        return None if batches is None else batches.meter

    def _profiler(self) -> WindowProfiler:
        rank = self._context.rank
        if rank is None:
            return self._trace()
        from ..distributed.lockstep import SteadyProfiler

        inner = self._trace() if rank == 0 else None
        return SteadyProfiler(inner, sum(self._context.order.profile_schedule))

    def _trace(self) -> TraceProfiler:
        context, order = self._context, self._order
        return trace_profiler(context.order, order.request, order.ordinal, context.loop.device.type)

    @property
    def _looks(self) -> bool:
        """Whether it has steps enough to see what each keeps, and no rank waits meanwhile."""
        request = self._request
        return (
            request.kind != "fit"
            and request.purpose != "tail"
            and self._context.rank is None
            and not self._order.left_out
        )

    # its result ------------------------------------------------------------------------------

    def _completed(self, window: TrialWindow) -> Trial:
        """The trial of the window, with what the window itself does not know."""
        loop, request, door = self._context.loop, self._request, self._context.door
        trial = window.result(self._order.ordinal, self._context.order.worker)
        if self._surroundings is not None:
            causes = self._surroundings.causes(self._context.ours)
            trial = msgspec.structs.replace(trial, causes=causes)
        if self._num_elsewhere:
            elsewhere = round(self._num_elsewhere / self._num_steps, 3)
            trial = msgspec.structs.replace(trial, steps_elsewhere=elsewhere)
        trial = msgspec.structs.replace(trial, steps_per_batch=usual_steps(self._steps_seen))
        if self._kept is not None and self._looks:
            trial = msgspec.structs.replace(trial, kept=self._kept.look())
            if self._kept.reason:
                reasons = {**trial.unavailable, "kept": self._kept.reason}
                trial = msgspec.structs.replace(trial, unavailable=reasons)
        batches = door.batches
        inputs = None if batches is None or self._order.left_out else batches.inputs()
        if inputs is not None:
            trial = msgspec.structs.replace(trial, inputs=inputs)
        if batches is None and request.kind == "timed":
            reasons = {**trial.unavailable, "tokens": TOKENS_NOT_SEEN}
            trial = msgspec.structs.replace(trial, unavailable=reasons)
        no_profile = loop.no_profile or self._order.left_out
        if no_profile and request.profile:
            reasons = {**trial.unavailable, "profile": no_profile}
            trial = msgspec.structs.replace(trial, unavailable=reasons)
        if loop.no_input:
            reasons = {**trial.unavailable, "input_wait_s": loop.no_input}
            trial = msgspec.structs.replace(trial, input_wait_s=None, unavailable=reasons)
        if request.purpose == "tail":
            num_steps = window.num_steps * max(1, self._steps_a_cycle)
            check = check_tail(trial, door.parameters(), self._norms, num_steps)
            trial = msgspec.structs.replace(trial, tail=check)
        return trial

    def _send(self, trial: Trial, steps: tuple[StepSample, ...] = ()) -> None:
        self._window = None
        self._close_evidence()
        self._context.line.send_files()
        self._context.line.send(Result(trial=trial, steps=steps))

    def _close_evidence(self) -> None:
        if self._evidence is not None:
            self._evidence.close()
            self._evidence = None

    def _show(self, window: TrialWindow) -> None:
        self._context.line.show(
            window.phase,
            num_steps=window.num_steps,
            batch_size=window.size,
            step_s=window.last_step_s,
        )


def trace_profiler(
    order: WorkOrder, request: TrialRequest, ordinal: int, device_type: str
) -> TraceProfiler:
    """The profiler of one trial; its trace lies in the folder of the run."""
    folder = Path(order.run_folder)
    return TraceProfiler(
        trace_path(folder, request.batch_size, order.worker, ordinal),
        folder,
        device_type,
        order.profile_schedule,
        with_stack=order.with_stack,
    )


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
