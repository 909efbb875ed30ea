"""One trial inside the running loop: warm-up, timed steps, memory, profiled steps.

A window is told of every step boundary and says what it wants next. It holds no torch; the device
and the profiler are handed in, so it can be driven by a fake clock.

    fit:    warm-up (2 steps) ── memory
    timed:  warm-up until settled ── timed until the interval is narrow ── memory ── profiled
"""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from collections.abc import Callable
from math import ceil
from typing import Any, Protocol

from ..records import Memory, Profile, Trial, TrialRequest, trial_of
from ..spread import inverse, spread_of
from . import clean_steps
from .gauge import DRAWN
from .messages import Phase, StepSample
from .step_evidence import EvidenceReader, Reading, between
from .timed_step import Step, sampled

MAX_WARMUP_STEPS = 12
SETTLED = 0.10
"""Two successive warm-up steps this close end the warm-up."""
FIT_STEPS = 2
MAX_SAMPLES = 30
PATIENCE = 2
"""Where clean steps are too few, timing goes on for this many times its limits."""
MAX_STEPS_A_SAMPLE = 50
"""Very short steps are averaged in groups, up to so many, so that a sample is not all jitter."""
AHEAD_S = 1.0
MIN_AHEAD = 4
"""While steps are timed, a host is no more than so many seconds and steps ahead of its device: that
hides any pause of the host, and what was timed is known before the time is over."""
SHOWN_STEPS = 40
SHOWN_S = 1.0
"""On such a device steps differ (one in ten reads a number): so many are timed, or for so long."""


class WindowDevice(Protocol):
    """The part of a device that a window uses."""

    def reset_peaks(self) -> None: ...
    def read_memory(self) -> Memory: ...
    def synchronize(self) -> None: ...
    def mark(self) -> Any: ...
    def elapsed_s(self, start: Any, end: Any) -> float | None: ...
    def reach(self, mark: Any, /) -> None: ...


class WindowProfiler(Protocol):
    """A profiler with its own schedule; see profiling.py."""

    def start(self) -> None: ...
    def step(self) -> bool:
        """Called at each boundary; true when the schedule is complete."""

    def finish(self) -> Profile: ...
    def abandon(self) -> None: ...


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
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.request = request
        self.phase: Phase = "fitting" if request.kind == "fit" else "warming up"
        self._device = device
        self._make_profiler = profiler
        self._profiler: WindowProfiler | None = None
        self._profile_below_bytes = profile_below_bytes
        self._precision = precision
        self._min_sample_s = min_sample_s
        self._group = 1
        self._most_ahead = MIN_AHEAD
        self._num_run_up = int(asynchronous)
        self._num_shown = SHOWN_STEPS if asynchronous and not brief else 0
        self._min_time_s = min_time_s
        self._time_limit_s = time_limit_s
        self._deadline_s = deadline_s
        self._evidence = evidence
        self._asynchronous = asynchronous
        self._reading: Reading | None = None
        self._num_stale = max(num_ahead, int(shrinks))
        self._clock = clock
        self._started_s = clock()
        self._phase_started_s = self._started_s
        self._warmups: list[float] = []
        self._steps: list[Step] = []
        self._micro_batches: Counter[int] = Counter()
        self._arrived: Counter[tuple[int | None, str]] = Counter()
        self._arrivals: list[int] = []
        self._left_out = False
        self._memory: Memory | None = None
        self._profile: Profile | None = None
        self._step_started: Any = None
        self._wait_s = 0.0
        self._samples = 0
        self._micro = 0
        self._parts = 1
        device.reset_peaks()

    @property
    def size(self) -> int:
        """The size of the step that comes next."""
        return self.request.batch_size

    @property
    def num_steps(self) -> int:
        """Steps made in the present phase."""
        if self.phase in ("warming up", "fitting"):
            return len(self._warmups)
        return len(self._steps)

    @property
    def last_step_s(self) -> float | None:
        """A recent step's time by the host's clock, for progress only."""
        return self._warmups[-1] / self._parts if self._warmups else None

    def arrived(self, num_samples: int | None, proof: str, wait_s: float, *, primary: bool) -> None:
        """A batch went to the script after `wait_s` seconds."""
        self._wait_s += wait_s
        if primary:
            size = self.request.batch_size
            samples = num_samples if num_samples is not None else size
            if proof == DRAWN:
                self._left_out = True
                self._arrived[size, "indices"] += 1
            else:
                self._arrived[num_samples, proof] += 1
            self._arrivals.append(samples)
            self._samples += samples
            self._micro += 1

    def resume(self) -> None:
        """The script goes on: the next step starts now."""
        if self.phase in ("warming up", "fitting"):
            self._device.synchronize()
        self._wait_s, self._samples, self._micro = 0.0, 0, 0
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
        step = Step(self._step_started, end, self._wait_s, self._samples, self._micro, parts=parts)
        if step.micro_batches:
            self._micro_batches[step.micro_batches] += 1
        late = self._late()
        if self.phase == "profiling":
            return self._profiled(late=late)
        if self._num_run_up and self.phase == "timing" and not late:
            self._num_run_up -= 1  # it began with nothing queued, as no other does
            return False
        if self.phase == "timing":
            if self._evidence is not None and self._reading is not None:
                step.evidence = between(self._reading, self._evidence.read()).per(parts)
            self._steps.append(step)
            self._hold_back()
            return self._timed(late=late)
        return self._warmed_up(step, late=late)

    def abandon(self) -> None:
        """Stops a running profiler; the trial is over some other way."""
        if self._profiler is not None:
            self._profiler.abandon()

    # phases ----------------------------------------------------------------------------------

    def _late(self) -> bool:
        """Whether the trial has taken all the time that it may."""
        return self._deadline_s is not None and self._clock() - self._started_s >= self._deadline_s

    def _hold_back(self) -> None:
        """Waits for a step of some time ago; newer ones are queued, so that the device goes on."""
        place = len(self._steps) - 1 - self._most_ahead
        if self._asynchronous and place >= 0 and self._steps[place].end is not None:
            self._device.reach(self._steps[place].end)

    def _warmed_up(self, step: Step, *, late: bool) -> bool:
        self._device.synchronize()
        self._warmups.append(self._device.elapsed_s(step.start, step.end) or 0.0)
        if late and self.request.kind != "fit":
            self._memory = self._device.read_memory()
            return True
        if self._num_stale:
            self._device.reset_peaks()
            self._num_stale -= 1
            self._warmups.clear()
            return False
        if self.request.kind == "fit":
            if len(self._warmups) < FIT_STEPS:
                return False
            self._memory = self._device.read_memory()
            return True
        if self._settled():
            self.phase = "timing"
            shortest = max(min(self._warmups), 1e-9)
            self._group = max(1, min(MAX_STEPS_A_SAMPLE, ceil(self._min_sample_s / shortest)))
            self._most_ahead = max(MIN_AHEAD, ceil(AHEAD_S / shortest))
            if self._evidence is not None:
                self._evidence.renew()  # the threads that compute exist by now
            self._phase_started_s = self._clock()
        return False

    def _settled(self) -> bool:
        least = self.request.min_warmup_steps
        if len(self._warmups) < least:
            return False
        if least < 2:  # steps are too long to wait until they settle
            return True
        if self._clock() - self._started_s >= self._time_limit_s:
            return True
        before, last = self._warmups[-2:]
        return abs(last - before) <= SETTLED * last or len(self._warmups) >= MAX_WARMUP_STEPS

    def _enough(self) -> bool:
        """Whether the timed steps so far will do."""
        least = self.request.min_timed_steps
        if len(self._steps) % self._group or len(self._steps) < least * self._group:
            return False
        spent_s = self._clock() - self._phase_started_s
        if spent_s < self._min_time_s:
            return False
        if len(self._steps) < self._num_shown and spent_s < SHOWN_S:
            return False
        most = PATIENCE * MAX_SAMPLES * self._group  # a script may have no more to give
        if spent_s >= PATIENCE * self._time_limit_s or len(self._steps) >= most:
            return True
        clean = clean_steps.in_groups(self._judged().clean, self._group)
        if len(clean) < least:
            return False
        if len(clean) >= MAX_SAMPLES or spent_s >= self._time_limit_s:
            return True
        spread = spread_of(clean)
        return spread is not None and spread.relative_half_width <= self._precision

    def _room_for_profile(self, memory: Memory) -> bool:
        limit = self._profile_below_bytes
        return limit is None or memory.peak_bytes <= limit

    def _timed(self, *, late: bool) -> bool:
        if not self._enough() and not late:
            return False
        self._device.synchronize()
        self._memory = self._device.read_memory()
        if self._make_profiler is None:
            return True
        if late:
            self._profile = Profile(unavailable={"trace": "left out: the time was over"})
            return True
        if not self._room_for_profile(self._memory):
            reason = "left out: the memory is too nearly full for the profiler's own"
            self._profile = Profile(unavailable={"trace": reason})
            return True
        self.phase = "profiling"
        try:
            self._profiler = self._make_profiler()
            self._profiler.start()
        except Exception as error:  # noqa: BLE001  a failed profile never fails a trial
            self._drop_profile(error)
            return True
        return False

    def _profiled(self, *, late: bool) -> bool:
        profiler = self._profiler
        assert profiler is not None
        try:
            if not profiler.step():
                if not late:
                    return False
                profiler.abandon()
                self._profile = Profile(unavailable={"trace": "cut short: the time was over"})
            else:
                self._profile = profiler.finish()
        except Exception as error:  # noqa: BLE001
            with contextlib.suppress(Exception):  # one left running would slow what comes after
                profiler.abandon()
            self._drop_profile(error)
        self._profiler = None
        return True

    def _drop_profile(self, error: Exception) -> None:
        reason = f"the profiler failed: {type(error).__name__}: {error}"
        self._profile = Profile(unavailable={"trace": reason})
        self._profiler = None

    # result ----------------------------------------------------------------------------------

    def _judged(self) -> clean_steps.Judged:
        """The finished steps of the usual kind, each with what it lost."""
        steps = [
            clean_steps.TimedStep(step.elapsed_s or 0.0, step.evidence) for step in self._finished()
        ]
        return clean_steps.judged(steps, asynchronous=self._asynchronous)

    def _finished(self) -> list[Step]:
        """The timed steps of the usual kind that the device has finished."""
        usual = self._usual_micro_batches()
        return [
            step
            for step in self._steps
            if step.micro_batches == usual and self._elapsed_s(step) is not None
        ]

    def _waits(self) -> list[float]:
        """Seconds that each step waited for data, of the steps that the step time is made of."""
        steps, lost_s = self._finished(), self._judged().lost_s
        clean = [step.wait_s for step, lost in zip(steps, lost_s, strict=True) if not lost]
        return clean or [step.wait_s for step in steps]

    def _elapsed_s(self, step: Step) -> float | None:
        return step.elapsed_s_on(self._device)

    def _usual_micro_batches(self) -> int:
        # A step that GradScaler skipped, or the first of an accumulation, counts differently.
        return self._micro_batches.most_common(1)[0][0] if self._micro_batches else 1

    def samples(self) -> tuple[StepSample, ...]:
        """Every timed step, for `samples.jsonl`."""
        return sampled(
            [step for step in self._steps if self._elapsed_s(step) is not None],
            asynchronous=self._asynchronous,
        )

    def result(self, ordinal: int, worker: int, *, doubts: tuple[str, ...] = ()) -> Trial:
        """The trial as the record keeps it."""
        request = self.request
        (arrived, proof), _ = self._arrived.most_common(1)[0] if self._arrived else ((None, ""), 0)
        usual = self._usual_micro_batches()
        steps = [one for one in self._steps if one.micro_batches == usual]
        step_s, quality = None, None
        if request.kind == "timed":
            judged = self._judged()
            step_s, method = clean_steps.step_time(
                judged,
                group=self._group,
                min_samples=min(request.min_timed_steps, len(steps)),
                asynchronous=self._asynchronous,
            )
            unread = None if self._evidence is None else self._evidence.unavailable
            quality = clean_steps.quality_of(judged, method, unread)
        per_step: float = request.batch_size * usual
        if self._left_out and steps:
            per_step = sum(one.num_samples for one in steps) / len(steps)
        unavailable: dict[str, str] = {}
        if request.kind == "fit":
            reason = "a fit trial makes two steps and measures memory only"
            unavailable = dict.fromkeys(("step_s", "samples_per_s", "input_wait_s"), reason)
        elif step_s is None:
            reason = "the time of the trial was over before a step was timed"
            unavailable = dict.fromkeys(("step_s", "samples_per_s", "input_wait_s"), reason)
        same = arrived == request.batch_size
        return trial_of(
            request,
            ordinal=ordinal,
            worker=worker,
            outcome="ok" if same else "wrong_size",
            detail="" if same else self._wrong_size(arrived),
            arrived_batch_size=arrived,
            mean_arrived=self._mean_arrived() if same else None,
            size_proof=proof,
            micro_batches=usual,
            num_warmup_steps=len(self._warmups),
            step_s=step_s,
            samples_per_s=inverse(step_s, per_step) if step_s and step_s.low > 0 else None,
            input_wait_s=spread_of(self._waits()),
            memory=self._memory,
            profile=self._profile,
            elapsed_s=self._clock() - self._started_s,
            doubts=doubts,
            quality=quality,
            unavailable=unavailable,
        )

    def _mean_arrived(self) -> float | None:
        if not self._left_out:
            return None
        return round(sum(self._arrivals) / len(self._arrivals), 3)

    def _wrong_size(self, arrived: int | None) -> str:
        if arrived is None:
            return f"asked for {self.request.batch_size}, the size that arrived could not be read"
        return f"asked for {self.request.batch_size}, {arrived} samples arrived"
