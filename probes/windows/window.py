"""One trial inside the running loop: warm-up, timed steps, memory, profiled steps.

A window is told of every step boundary and says what it wants next. It holds no torch; the device
and the profiler are handed in, so it can be driven by a fake clock.

    fit:    warm-up (2 steps) ── memory
    timed:  warm-up until settled ── timed until the interval is narrow ── memory ── counted
            ── profiled
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ...records import Entered, Memory, StepMethod, Trial, TrialRequest, trial_of
from ...spread import inverse
from ..devices.device_probe import WindowDevice
from ..process.messages import Phase, StepSample
from .arrivals import Arrivals
from .counted_step import CountedStep, FlopCounter
from .profiled_phase import LATE, NO_ROOM, ProfiledPhase
from .protocols import WindowProfiler
from .step_evidence import EvidenceReader, Reading, between
from .timed_step import Step
from .timed_steps import TimedSteps
from .token_rates import tokens_of
from .warm_up import WarmUp

if TYPE_CHECKING:
    from ..loader.model_inputs import ModelInputs
    from ..loader.token_meter import TokenMeter

FIT_STEPS = 2


class Window:
    """The state of one trial.

    Args:
        request: what to run.
        device: where the time and memory are read.
        profiler: made when the profiled phase starts; `None` leaves the phase out.
        profile_below_bytes: a peak above this leaves the profile out; the profiler needs memory
            of its own.
        precision: half-width of the median's interval at which timing stops, relative.
        min_sample_s: steps shorter than this are averaged in groups that are not.
        min_time_s: timing goes on for at least so long.
        brief: the script has few steps to give; none is timed that need not be.
        time_limit_s: timing stops after this long once it has the fewest clean samples.
        deadline_s: the whole trial ends after this long, at the next boundary, with what it has.
        evidence: reads what the kernel counts about this process; `None` leaves steps unjudged.
        asynchronous: the device goes on while the host waits.
        shrinks: the window before ran a larger size, whose last batch is still alive.
        num_ahead: steps that the script still makes with batches of the window before.
        num_workers: of the loader.
        full: whether it holds every batch ready that it may.
        meter: counts the tokens of timed steps; `None` where batches do not pass.
        flops: counts the operations of a step, or why that cannot be; `None` leaves that step out.
        inputs: looks at what steps of the warm-up train on; `None` leaves that out.
        agree: where ranks keep in step: waits for all and returns what the leading one decided.
        timed: called when the timed steps are over and the device was waited for.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        request: TrialRequest,
        device: WindowDevice,
        *,
        profiler: Callable[[], WindowProfiler] | None = None,
        profile_below_bytes: int | None = None,
        precision: float = 0.02,
        min_sample_s: float = 0.0,
        min_time_s: float = 0.0,
        brief: bool = False,
        time_limit_s: float = 30.0,
        deadline_s: float | None = None,
        evidence: EvidenceReader | None = None,
        asynchronous: bool = False,
        shrinks: bool = False,
        num_ahead: int = 0,
        num_workers: int = 0,
        full: Callable[[], bool] = lambda: False,
        meter: TokenMeter | None = None,
        flops: Callable[[], FlopCounter] | str | None = None,
        inputs: ModelInputs | None = None,
        agree: Callable[[bool], bool] = bool,
        timed: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.request = request
        self.phase: Phase = "fitting" if request.kind == "fit" else "warming up"
        self._device = device
        self._profiled = ProfiledPhase(profiler, profile_below_bytes)
        self._counted = CountedStep(flops)
        self._arrivals = Arrivals(request.batch_size)
        self._warm_up = WarmUp(
            min_steps=request.min_warmup_steps,
            time_limit_s=time_limit_s,
            num_stale=max(num_ahead, int(shrinks)),
            num_workers=num_workers,
        )
        self._timed = TimedSteps(
            request,
            device,
            precision=precision,
            min_sample_s=min_sample_s,
            min_time_s=min_time_s,
            time_limit_s=time_limit_s,
            brief=brief,
            asynchronous=asynchronous,
            num_workers=num_workers,
        )
        self._deadline_s = deadline_s
        self._evidence = evidence
        self._reading: Reading | None = None
        self._full = full
        self._agree = agree
        self._are_timed = timed
        self._meter = meter
        if meter is not None:
            meter.begin()
        self._inputs = inputs
        self._entered: Entered | None = None
        self._clock = clock
        self._started_s = clock()
        self._timing_started_s = self._started_s
        self._memory: Memory | None = None
        self._step_started: Any = None
        self._parts = 1
        device.reset_peaks()

    @property
    def size(self) -> int:
        """The size of the step that comes next."""
        return self.request.batch_size

    @property
    def num_steps(self) -> int:
        """Steps made in the present phase."""
        return self._warm_up.num_steps if self._is_warming_up else len(self._timed)

    @property
    def last_step_s(self) -> float | None:
        """A recent step's time by the host's clock, for progress only."""
        last_s = self._warm_up.last_s
        return None if last_s is None else last_s / self._parts

    def arrived(self, num_samples: int | None, proof: str, wait_s: float, *, primary: bool) -> None:
        """A batch went to the script after `wait_s` seconds."""
        if primary and self.phase == "counting" and wait_s and not self._arrivals.num_batches:
            self._counted.arrived()
        self._arrivals.add(num_samples, proof, wait_s, primary=primary)

    def resume(self) -> None:
        """The script goes on: the next step starts now."""
        if self._is_warming_up:
            self._device.synchronize()
            if self._inputs is not None:
                self._inputs.forget()
        self._arrivals.begin_step()
        if self.phase in ("timing", "counting") and self._meter is not None:
            self._meter.begin_step()
        if self.phase == "counting":
            self._counted.begin()
        if self.phase == "timing" and self._evidence is not None:
            self._reading = self._evidence.read()
        self._step_started = self._device.mark()

    def boundary(self, parts: int = 1) -> bool:
        """A step ended, by the script's next fetch. True when the trial is complete.

        Args:
            parts: equal steps that it was; the script fetched the batches of all of them first.
        """
        end = self._device.mark()
        self._parts = parts
        self._arrivals.count_step(self._arrivals.num_batches // parts)
        late = self._agree(self._is_late())
        if self.phase == "profiling":
            return self._profiled.boundary(late=late)
        if self.phase == "counting":
            self._counted.end(parts, None if self._meter is None else self._meter.end_step())
            self._device.synchronize()
            num_batches = self._arrivals.num_batches // parts
            unlike = self._agree(num_batches not in (0, self._arrivals.usual_micro_batches))
            if unlike and self._counted.again() and not late:
                return False
            return self._after_counted(late=late)
        if self.phase == "timing":
            if not late and self._timed.skip_run_up():
                return False
            self._timed.add(self._step(end))
            return self._after_timed(late=late)
        over = self._after_warm_up(end, late=late)
        if over or not self._is_warming_up:
            self._look_no_more()
        return over

    def abandon(self) -> None:
        """Stops a running profiler or counter; the trial is over some other way."""
        self._look_no_more()
        self._counted.abandon()
        self._profiled.abandon()

    def samples(self) -> tuple[StepSample, ...]:
        """Every timed step, for `samples.jsonl`."""
        return self._timed.samples()

    def result(self, ordinal: int, worker: int) -> Trial:
        """The trial as the record keeps it."""
        request, arrivals = self.request, self._arrivals
        micro_batches = arrivals.usual_micro_batches
        step_s, quality = None, None
        if request.kind == "timed":
            unread = None if self._evidence is None else self._evidence.unavailable
            step_s, quality = self._timed.step_time(micro_batches, unread)
        per_step: float | None = None
        if arrivals.left_out:
            per_step = self._timed.mean_samples(micro_batches)
        if per_step is None:
            per_step = request.batch_size * micro_batches
        method: StepMethod = quality.method if quality else "all steps"
        tokens = None
        if self._meter is not None:
            tokens = tokens_of(self._meter, self._timed.tokens(micro_batches, method), step_s)
        unavailable: dict[str, str] = {}
        if request.kind == "fit":
            reason = "a fit trial makes two steps and measures memory only"
            unavailable = dict.fromkeys(("step_s", "samples_per_s", "input_wait_s"), reason)
        elif step_s is None:
            reason = "the time of the trial was over before a step was timed"
            unavailable = dict.fromkeys(("step_s", "samples_per_s", "input_wait_s"), reason)
        if self._counted.why_not:
            unavailable["flops"] = self._counted.why_not
        wrong = arrivals.why_wrong
        return trial_of(
            request,
            ordinal=ordinal,
            worker=worker,
            outcome="wrong_size" if wrong else "ok",
            detail=wrong,
            arrived_batch_size=arrivals.size,
            mean_arrived=None if wrong else arrivals.mean_size,
            size_proof=arrivals.proof,
            micro_batches=micro_batches,
            num_warmup_steps=self._warm_up.num_steps,
            filled_after=self._warm_up.filled_after,
            step_s=step_s,
            samples_per_s=inverse(step_s, per_step) if step_s and step_s.low > 0 else None,
            input_wait_s=self._timed.wait_time(micro_batches, method),
            entered=self._entered,
            tokens=tokens,
            flops=self._counted.flops,
            memory=self._memory,
            profile=self._profiled.profile,
            elapsed_s=self._clock() - self._started_s,
            quality=quality,
            unavailable=unavailable,
        )

    # inside ----------------------------------------------------------------------------------

    @property
    def _is_warming_up(self) -> bool:
        return self.phase in ("warming up", "fitting")

    def _look_no_more(self) -> None:
        """Steps that are timed run without the look at what they train on."""
        if self._inputs is not None:
            self._entered = self._inputs.entered
            self._inputs.stop()
            self._inputs = None

    def _is_late(self) -> bool:
        """Whether the trial has taken all the time that it may."""
        return self._deadline_s is not None and self._spent_s() >= self._deadline_s

    def _spent_s(self) -> float:
        return self._clock() - self._started_s

    def _step(self, end: Any) -> Step:
        evidence = None
        if self._evidence is not None and self._reading is not None:
            evidence = between(self._reading, self._evidence.read()).per(self._parts)
        arrivals = self._arrivals
        return Step(
            self._step_started,
            end,
            arrivals.wait_s,
            arrivals.num_samples,
            arrivals.num_batches,
            parts=self._parts,
            evidence=evidence,
            tokens=None if self._meter is None else self._meter.end_step(),
        )

    def _after_warm_up(self, end: Any, *, late: bool) -> bool:
        """Whether the trial ends with this step of the warm-up."""
        self._device.synchronize()
        seconds = self._device.elapsed_s(self._step_started, end) or 0.0
        self._warm_up.add(seconds, self._arrivals.wait_s, full=self._full())
        fits = self.request.kind == "fit"
        if late and not fits:
            self._memory = self._device.read_memory()
            return True
        if self._warm_up.drop_stale():
            self._device.reset_peaks()
            return False
        if fits:
            if self._warm_up.num_steps < FIT_STEPS:
                return False
            self._memory = self._device.read_memory()
            return True
        if self._agree(self._warm_up.is_settled(self._spent_s())):
            self.phase = "timing"
            self._timed.begin(self._warm_up)
            if self._evidence is not None:
                self._evidence.renew()  # the threads that compute exist by now
            self._timing_started_s = self._clock()
        return False

    def _after_timed(self, *, late: bool) -> bool:
        """Whether the trial ends with this timed step."""
        spent_s = self._clock() - self._timing_started_s
        enough = self._timed.are_enough(spent_s, self._arrivals.usual_micro_batches)
        if not self._agree(enough) and not late:
            return False
        self._device.synchronize()
        self._are_timed()
        self._memory = self._device.read_memory()
        if self._counted.is_wanted and not late:
            self.phase = "counting"
            return False
        if self._counted.is_wanted:
            self._counted.leave_out(LATE)
        return self._after_counted(late=late)

    def _after_counted(self, *, late: bool) -> bool:
        """Whether the trial ends here, without a profile."""
        assert self._memory is not None
        if not self._profiled.is_wanted:
            return True
        if late:
            self._profiled.leave_out(LATE)
            return True
        if not self._agree(self._profiled.has_room(self._memory)):
            self._profiled.leave_out(NO_ROOM)
            return True
        self.phase = "profiling"
        return not self._profiled.begin()
