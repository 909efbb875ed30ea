"""The timed steps of a window: when they are enough, and what they say."""

from __future__ import annotations

from math import ceil

import msgspec

from ...records import Spread, StepMethod, StepQuality, TrialRequest
from ...records.request import USUAL_TIMED_STEPS
from ...spread import spread_of
from ..devices.device_probe import WindowDevice
from ..process.messages import StepSample
from . import clean_steps
from .page_faults import page_faults
from .timed_step import Step, sampled
from .token_rates import StepMeans, means_of
from .warm_up import WAITS, WarmUp

MAX_CLEAN_SAMPLES = 30
TIMING_PATIENCE = 2
"""Where clean steps are too few, timing goes on for this many times its limits."""
HOPELESS = 2
"""After half of the time, and so many times the fewest samples without a clean step, there is no
reason to expect one."""
MAX_STEPS_A_SAMPLE = 50
"""Very short steps are averaged in groups, up to so many, so that a sample is not all jitter."""
AHEAD_S = 1.0
MIN_AHEAD = 4
"""While steps are timed, a host is no more than so many seconds and steps ahead of its device: that
hides any pause of the host, and what was timed is known before the time is over."""
SHOWN_STEPS = 40
SHOWN_S = 1.0
"""Seconds, or steps, that are timed on such a device, where steps differ (one in ten reads a
number)."""
LEAST_BURSTS = 3
"""Where bursts of batches are too long for the fewest samples, so many will do."""


class TimedSteps:
    """The steps of one window that are timed.

    Args:
        request: says the fewest samples.
        device: where the time is read.
        precision: half-width of the median's interval at which timing stops, relative.
        min_sample_s: steps shorter than this are averaged in groups that are not.
        min_time_s: timing goes on for at least so long.
        time_limit_s: timing stops after this long once it has the fewest clean samples.
        brief: the script has few steps to give; none is timed that need not be.
        asynchronous: the device goes on while the host waits.
        num_workers: of the loader. They hand over batches in bursts: so many steps are one sample.
    """

    def __init__(
        self,
        request: TrialRequest,
        device: WindowDevice,
        *,
        precision: float,
        min_sample_s: float,
        min_time_s: float,
        time_limit_s: float,
        brief: bool,
        asynchronous: bool,
        num_workers: int = 0,
    ) -> None:
        self._burst = max(1, num_workers)
        self._least = request.min_timed_steps
        self._device = device
        self._precision = precision
        self._min_sample_s = min_sample_s
        self._min_time_s = min_time_s
        self._time_limit_s = time_limit_s
        self._asynchronous = asynchronous
        self._num_shown = SHOWN_STEPS if asynchronous and not brief else 0
        self._num_run_up = int(asynchronous)
        self._group = 1
        self._most_ahead = MIN_AHEAD
        self._steps: list[Step] = []

    def __len__(self) -> int:
        return len(self._steps)

    def begin(self, warm_up: WarmUp) -> None:
        """Timing starts after these steps."""
        burst = self._burst
        shortest_s = warm_up.shortest_s if burst == 1 else warm_up.mean_s(burst)
        group = max(1, min(MAX_STEPS_A_SAMPLE, ceil(self._min_sample_s / shortest_s)))
        whole = self._burst * ceil(group / self._burst)
        if warm_up.is_short():
            self._least = max(self._least, USUAL_TIMED_STEPS)
        affordable = self._least * whole * shortest_s <= self._time_limit_s
        self._group = whole if affordable else group
        self._most_ahead = max(MIN_AHEAD, ceil(AHEAD_S / shortest_s))

    def skip_run_up(self) -> bool:
        """Whether the step that ended is left out: it began with nothing queued, as no other."""
        if not self._num_run_up:
            return False
        self._num_run_up -= 1
        return True

    def add(self, step: Step) -> None:
        """A timed step ended. Waits for one of some time ago, newer ones are queued meanwhile."""
        self._steps.append(step)
        place = len(self._steps) - 1 - self._most_ahead
        if self._asynchronous and place >= 0 and self._steps[place].end is not None:
            self._device.reach(self._steps[place].end)

    def are_enough(self, spent_s: float, micro_batches: int) -> bool:
        """Whether the timed steps so far will do.

        Args:
            spent_s: seconds since timing began.
            micro_batches: of a usual step.
        """
        num_steps = len(self._steps)
        group, least = self._samples_of(micro_batches)
        if num_steps % group or num_steps < least * group:
            return False
        if spent_s < self._min_time_s:
            return False
        if num_steps < self._num_shown and spent_s < SHOWN_S:
            return False
        most = TIMING_PATIENCE * MAX_CLEAN_SAMPLES * group  # a script may have no more to give
        if spent_s >= TIMING_PATIENCE * self._time_limit_s or num_steps >= most:
            return True
        clean = clean_steps.in_groups(self._judged(micro_batches).clean, group)
        if not clean and num_steps >= HOPELESS * least * group:
            return spent_s >= self._time_limit_s / 2
        if len(clean) < least:
            return False
        if len(clean) >= MAX_CLEAN_SAMPLES or spent_s >= self._time_limit_s:
            return True
        spread = spread_of(clean)
        return spread is not None and spread.relative_half_width <= self._precision

    def step_time(
        self, micro_batches: int, unread: dict[str, str] | None
    ) -> tuple[Spread | None, StepQuality | None]:
        """Seconds of a step, and which steps were disturbed.

        Args:
            micro_batches: of a usual step.
            unread: counters of the kernel that cannot be read, with the reason; `None` where none
                was to be read.
        """
        judged = self._judged(micro_batches)
        group, least = self._samples_of(micro_batches)
        step_s, method = clean_steps.step_time(
            judged,
            group=group,
            min_samples=min(least, max(1, len(self._usual(micro_batches)) // group)),
            asynchronous=self._asynchronous,
        )
        quality = clean_steps.quality_of(judged, method, unread, step_s)
        if quality is None or step_s is None or self._asynchronous:
            return step_s, quality
        finished = self._finished(micro_batches)
        # Others on the cores change how long a step takes, and not what it asks the system for.
        counts = [step.evidence.faults for step in finished if step.evidence is not None]
        faults = page_faults(counts, step_s.median)
        places = clean_steps.stood_for(judged, method, group=group)
        stood = [each for place in places if (each := finished[place].evidence) is not None]
        cpu_s = [each.process_s for each in stood if each.process_s is not None]
        return step_s, msgspec.structs.replace(
            quality, page_faults=faults, cpu_s=sum(cpu_s) / len(cpu_s) if cpu_s else None
        )

    def wait_time(self, micro_batches: int, method: StepMethod) -> Spread | None:
        """Seconds that a step waited for data, of the steps that the step time is made of.

        Args:
            micro_batches: of a usual step.
            method: how the step time was taken from them.
        """
        waits = [step.wait_s for step in self._finished(micro_batches)]
        judged = self._judged(micro_batches)
        group, _ = self._samples_of(micro_batches)
        return clean_steps.wait_time(judged, waits, method, group=group)

    def mean_samples(self, micro_batches: int) -> float | None:
        """Samples of a usual step, be it finished or not; `None` where there is none."""
        steps = self._usual(micro_batches)
        return sum(step.num_samples for step in steps) / len(steps) if steps else None

    def tokens(self, micro_batches: int, method: StepMethod) -> list[StepMeans | None]:
        """Tokens of a step, of the steps that the step time is made of.

        Args:
            micro_batches: of a usual step.
            method: how the step time was taken from them.
        """
        finished = self._finished(micro_batches)
        judged = self._judged(micro_batches)
        group, _ = self._samples_of(micro_batches)
        places = clean_steps.stood_for(judged, method, group=group)
        return [means_of(finished[place]) for place in places]

    def samples(self) -> tuple[StepSample, ...]:
        """Every finished step, for `samples.jsonl`."""
        finished = [step for step in self._steps if step.elapsed_s_on(self._device) is not None]
        return sampled(finished, asynchronous=self._asynchronous)

    # inside ----------------------------------------------------------------------------------

    def _samples_of(self, micro_batches: int) -> tuple[int, int]:
        """Steps of one sample, and the fewest samples.

        Steps that wait for bursts of batches are long and short in turn: a part of a burst is no
        sample, even where the time allows few whole ones.
        """
        if not self._group % self._burst:
            return self._group, self._least
        finished = self._finished(micro_batches)
        seconds = sum(step.elapsed_s or 0.0 for step in finished)
        if sum(step.wait_s for step in finished) < WAITS * seconds:
            return self._group, self._least
        return max(1, min(self._burst, len(finished))), LEAST_BURSTS

    def _usual(self, micro_batches: int) -> list[Step]:
        return [step for step in self._steps if step.micro_batches == micro_batches]

    def _finished(self, micro_batches: int) -> list[Step]:
        """The usual steps that the device has finished."""
        usual = self._usual(micro_batches)
        return [step for step in usual if step.elapsed_s_on(self._device) is not None]

    def _judged(self, micro_batches: int) -> clean_steps.Judged:
        """The finished usual steps, each with what it lost."""
        steps = [step.timed for step in self._finished(micro_batches)]
        whole, rest = divmod(len(steps), self._burst)
        bursts = [self._burst] * whole + [rest] * bool(rest) if self._burst > 1 else []
        return clean_steps.judged(steps, asynchronous=self._asynchronous, bursts=bursts)
