"""Which steps were disturbed from outside, and what the step time is therefore. Pure.

A step is judged by what the kernel counted while it ran, not by its length: a step that is long
because the script logs or evaluates keeps its place, one that waited for a core does not.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from math import ceil
from typing import NamedTuple

import msgspec

from ...records import Cause, Spread, StepMethod, StepQuality, Trial
from ...spread import around_mean, quantile_spread, spread_of
from .step_evidence import StepEvidence

LOST_SHARE = 0.02
"""A step that waited longer than this share of its time was disturbed."""
LOST_S = 5e-5
"""Seconds that any step may wait now and then: the kernel's own housekeeping."""
LONGER = 1.02
"""Where a sign alone proves no lost time (a tick of stolen time may be older, a GPU may go on
without its host), the step must also be this much longer than the usual one."""
SLOW = 2.0
"""A clean step this many times as long as the usual one is a slow step of the script's own."""
QUARTILE = 0.25
"""The quantile that stands for the step time where clean steps cannot be told apart."""
BOUND = 0.10
"""The quantile of what is left of the steps without their waiting; the interval reaches to it."""
LEAST = 0.01
"""The interval's lower end is not below this share of the quantile: no step takes no time."""
RARE = 0.25
"""Slow steps that are a larger share than this do not come now and then."""
STRETCHES = 10
"""The interval of a mean is that of the means of so many stretches."""
WIDE_SPREAD = 0.25
"""Without evidence, times that spread by more than this are judged by the quantile."""


class TimedStep(NamedTuple):
    """One timed step: its seconds, what was counted meanwhile, and its seconds without a batch."""

    seconds: float
    evidence: StepEvidence | None = None
    wait_s: float = 0.0

    @property
    def collected_s(self) -> float:
        """Seconds of it that full garbage collections took."""
        if self.evidence is None or not self.evidence.collections:
            return 0.0
        return min((1 - LEAST) * self.seconds, self.evidence.collected_s)

    @property
    def collections(self) -> float:
        """Full garbage collections in it."""
        return self.evidence.collections if self.evidence else 0.0


class Judged(NamedTuple):
    """Timed steps and what was found about each.

    Attributes:
        lost_s: seconds that each step lost to something outside, 0 for a clean one.
        known: whether any evidence could be read.
        wait_s: seconds that each step waited for the loader.
        collected_s: seconds of full garbage collections in each step.
        collections: their number in each step.
    """

    seconds: tuple[float, ...]
    lost_s: tuple[float, ...]
    known: bool
    wait_s: tuple[float, ...] = ()
    collected_s: tuple[float, ...] = ()
    collections: tuple[float, ...] = ()

    @property
    def computing_s(self) -> list[float]:
        """Seconds of each step without its wait for the loader, nor for garbage collections.

        Workers hand over batches in bursts: what a step waits for them differs, as it should. A
        collection may fall into the wait.
        """
        nothing = (0.0,) * len(self.seconds)
        rest = zip(self.seconds, self.wait_s or nothing, self.collected_s or nothing, strict=True)
        return [seconds - max(wait, collected) for seconds, wait, collected in rest]

    @property
    def working_s(self) -> list[float]:
        """Seconds of each step without garbage collections."""
        collected = self.collected_s or (0.0,) * len(self.seconds)
        return [seconds - mine for seconds, mine in zip(self.seconds, collected, strict=True)]

    @property
    def clean(self) -> list[float]:
        """Seconds of the clean steps, in order, without garbage collections."""
        return [
            seconds for seconds, lost in zip(self.working_s, self.lost_s, strict=True) if not lost
        ]

    @property
    def collecting(self) -> Collecting:
        """Mean seconds a step that garbage collections add, and their number."""
        num = sum(self.collections)
        return Collecting(sum(self.collected_s) / len(self.seconds), num) if num else Collecting()


class Collecting(NamedTuple):
    """Seconds that full garbage collections add to a step on average, and how many were seen.

    They come every so many steps, so that a window may hold one too many or too few.
    """

    seconds: float = 0.0
    num: float = 0.0

    def added_to(self, step_s: Spread) -> Spread:
        """The time of a step with its share of the collections."""
        if not self.num:
            return step_s
        more, apart = self.seconds, self.seconds / max(1.0, self.num)
        return msgspec.structs.replace(
            step_s,
            median=step_s.median + more,
            low=step_s.low + more - apart,
            high=step_s.high + more + apart,
        )


def judged(
    steps: Sequence[TimedStep], *, asynchronous: bool = False, bursts: Sequence[int] = ()
) -> Judged:
    """Says of each step how much time it lost to something outside the script.

    Args:
        asynchronous: the device goes on while its host waits, so that lost time of the host counts
            only where the step was longer for it.
        bursts: lengths of runs of steps that are judged as one each, all steps in all: where data
            workers hand over batches in bursts, short steps and long ones belong together, and
            without some of them the others' mean is that of no training.
    """
    seconds = tuple(step.seconds for step in steps)
    if not seconds:
        return Judged((), (), known=False)
    runs = _runs(steps, bursts)
    together = [_together(run) for run in runs]
    whole = [step.seconds for step in together if not was_stopped(step)]
    usual_s = quantile(whole, QUARTILE) if whole else 0.0
    losses = [_lost_s(step, needs_length=asynchronous, usual_s=usual_s) for step in together]
    lost = tuple(
        min(lost_s, (1 - LEAST) * step.seconds)
        for lost_s, run in zip(losses, runs, strict=True)
        for step in run
    )
    known = any(
        step.evidence is not None
        and (step.evidence.delay_s is not None or step.evidence.switches is not None)
        for step in steps
    )
    waits = tuple(step.wait_s for step in steps)
    if asynchronous:  # the device goes on while its host collects
        return Judged(seconds, lost, known, waits)
    return Judged(
        seconds,
        lost,
        known,
        waits,
        collected_s=tuple(step.collected_s for step in steps),
        collections=tuple(step.collections for step in steps),
    )


def _runs(steps: Sequence[TimedStep], bursts: Sequence[int]) -> list[Sequence[TimedStep]]:
    """The steps in runs of these lengths; each by itself without any."""
    if not bursts:
        return [(step,) for step in steps]
    ends = list(accumulate(bursts))
    return [steps[end - num : end] for num, end in zip(bursts, ends, strict=True)]


def _together(run: Sequence[TimedStep]) -> TimedStep:
    """The mean of the steps of a run."""
    if len(run) == 1:
        return run[0]
    evidence = [step.evidence for step in run if step.evidence is not None]
    return TimedStep(
        sum(step.seconds for step in run) / len(run),
        StepEvidence.mean(evidence) if len(evidence) == len(run) else None,
        sum(step.wait_s for step in run) / len(run),
    )


def was_stopped(step: TimedStep) -> bool:
    """Whether the process was stopped and continued in this step."""
    return step.evidence is not None and bool(step.evidence.stops)


def _lost_s(step: TimedStep, *, needs_length: bool, usual_s: float) -> float:
    """Seconds that one step lost, 0 where it is clean."""
    evidence = step.evidence
    if evidence is None:
        return 0.0
    longer = step.seconds > LONGER * usual_s
    # Threads of the script that wait for each other and for its workers are what a step costs: of
    # the waiting only as much is lost as others had of the cores meanwhile.
    outside_s = step.seconds if evidence.outside_s is None else evidence.outside_s
    waited_s = max(min(evidence.delay_s or 0.0, outside_s), evidence.throttled_s or 0.0)
    stolen_s = evidence.stolen_s or 0.0
    # A stolen core-second is one of all cores, and counted in ticks of 10 ms.
    lost_s = max(waited_s, min(stolen_s, step.seconds - usual_s) if longer else 0.0)
    if evidence.delay_s is None and evidence.switches and evidence.thread_s is not None:
        # No waiting is counted here: time off the core of a thread that was pushed off it. Beside
        # steady neighbours all steps are as long, so that their length is no sign.
        lost_s = max(lost_s, min(step.seconds - evidence.thread_s, outside_s))
    if was_stopped(step):  # how long is not counted: by what the step is longer, be it a little
        lost_s = max(lost_s, step.seconds - usual_s, LEAST * step.seconds)
        return min(lost_s, (1 - LEAST) * step.seconds)
    if lost_s <= max(LOST_S, LOST_SHARE * step.seconds) or (needs_length and not longer):
        return 0.0
    if lost_s >= step.seconds:  # counted over more than this step: by what it is longer
        lost_s = max(step.seconds - usual_s, LEAST * step.seconds)
    return min(lost_s, (1 - LEAST) * step.seconds)


def rarely_slow(steps: Judged, held: Sequence[float] = ()) -> list[bool]:
    """Tells for each step whether it is one of the script's slow steps that come now and then.

    Args:
        held: how much work each step's batches held beside the others'; a step with more of it
            takes longer for that. Empty where all hold as much.
    """
    computing_s = steps.computing_s
    clean = [value for value, lost in zip(computing_s, steps.lost_s, strict=True) if not lost]
    if not clean:
        return [False] * len(steps.seconds)
    most_s = SLOW * quantile(clean, 0.5)
    usual = quantile(held, 0.5) if held else 0.0
    room = [max(1.0, each / usual) if usual else 1.0 for each in held] or [1.0] * len(steps.seconds)
    slow = [
        not lost and seconds > most_s * more
        for seconds, lost, more in zip(computing_s, steps.lost_s, room, strict=True)
    ]
    return slow if sum(slow) <= RARE * len(clean) else [False] * len(slow)


def in_groups(values: Sequence[float], group: int) -> list[float]:
    """Means of `group` neighbours each; what is left over at the end is left out."""
    return [
        sum(values[start : start + group]) / group
        for start in range(0, len(values) - group + 1, group)
    ]


def step_time(
    steps: Judged, *, group: int = 1, min_samples: int = 1, asynchronous: bool = False
) -> tuple[Spread | None, StepMethod]:
    """Seconds per step with their interval, and what they are.

    Args:
        group: clean steps that are averaged into one sample.
        min_samples: clean samples that are enough for a median.
        asynchronous: the device runs behind its host.
    """
    clean = in_groups(steps.clean, group)
    if len(clean) >= max(1, min_samples):
        spread = spread_of(clean)
        if asynchronous and spread is not None:
            spread = _of_usual_steps(steps, spread, group)
        elif spread is not None:
            spread = steps.collecting.added_to(spread)
        if steps.known or spread is None or spread.relative_half_width <= WIDE_SPREAD:
            return spread, "clean steps" if steps.known else "all steps"
    working_s = steps.working_s
    every = in_groups(working_s, group) or working_s
    if not every:
        return None, "all steps"
    alone = [
        max(LEAST * seconds, seconds - lost)
        for seconds, lost in zip(working_s, steps.lost_s, strict=True)
    ]
    spread = quantile_spread(every, QUARTILE)
    assert spread is not None
    least = min(spread.low, quantile(in_groups(alone, group) or alone, BOUND))
    low = max(LEAST * spread.median, least)
    return steps.collecting.added_to(msgspec.structs.replace(spread, low=low)), "low quantile"


def wait_time(
    steps: Judged, waits: Sequence[float], method: StepMethod, *, group: int = 1
) -> Spread | None:
    """Seconds that a step waited for data, of the very steps that the step time is made of.

    Args:
        waits: seconds that each step waited, a part of its time.
        method: how the step time was taken from the steps.
        group: steps that were averaged into one sample.
    """
    if method == "low quantile":
        numbers, group = _quick_groups(steps, group)
        waits = in_groups(waits, group)
        return spread_of([waits[number] for number in numbers])
    clean = [wait for wait, lost in zip(waits, steps.lost_s, strict=True) if not lost]
    return spread_of(in_groups(clean, group))


def stood_for(steps: Judged, method: StepMethod, *, group: int = 1) -> list[int]:
    """Places of the steps that the step time is made of.

    Args:
        method: how the step time was taken from the steps.
        group: steps that were averaged into one sample.
    """
    if method != "low quantile":
        return [place for place, lost in enumerate(steps.lost_s) if not lost]
    numbers, group = _quick_groups(steps, group)
    return [number * group + place for number in numbers for place in range(group)]


def _quick_groups(steps: Judged, group: int) -> tuple[list[int], int]:
    """Numbers of the groups of steps up to the first quartile, and the steps of each.

    Where all steps together are no group, each is one.
    """
    every = in_groups(steps.seconds, group)
    if not every:
        every, group = list(steps.seconds), 1
    most_s = quantile(every, QUARTILE) if every else 0.0
    return [number for number, seconds in enumerate(every) if seconds <= most_s], group


def _of_usual_steps(steps: Judged, spread: Spread, group: int) -> Spread:
    """The mean of the usual clean steps in place of their median, where the two are apart: a wait
    for the device lengthens one step and shortens none of the others.
    """
    slow = rarely_slow(steps)
    usual = [
        seconds
        for seconds, lost, is_slow in zip(steps.seconds, steps.lost_s, slow, strict=True)
        if not lost and not is_slow
    ]
    mean = sum(usual) / len(usual)
    if around_mean(spread, mean) is spread:
        return spread
    stretch = group * max(1, len(usual) // (STRETCHES * group))
    stretches = spread_of(in_groups(usual, stretch) or [mean])
    assert stretches is not None
    low, high = min(stretches.low, mean), max(stretches.high, mean)
    return msgspec.structs.replace(stretches, median=mean, low=low, high=high)


def quality_of(
    steps: Judged,
    method: StepMethod,
    unavailable: dict[str, str] | None = None,
    step_s: Spread | None = None,
) -> StepQuality | None:
    """How many steps were disturbed and what that cost; `None` where no step was timed.

    Args:
        step_s: the step time, which holds slow steps already where they come often.
    """
    if not steps.seconds:
        return None
    usual_s = quantile(steps.clean or steps.seconds, 0.5 if steps.clean else QUARTILE)
    disturbed = [seconds for seconds, lost in zip(steps.seconds, steps.lost_s, strict=True) if lost]
    stalls = [max(0.0, seconds - usual_s) for seconds in disturbed]
    pairs = zip(steps.computing_s, steps.lost_s, strict=True)
    alone = [seconds for seconds, lost in pairs if not lost]
    usual_alone_s = quantile(alone, 0.5) if alone else 0.0
    slow = [seconds - usual_alone_s for seconds in alone if seconds > SLOW * usual_alone_s]
    slow_s = sum(slow)
    if step_s is not None and method != "low quantile":
        each_s = step_s.median - steps.collecting.seconds
        slow_s = min(slow_s, max(0.0, sum(alone) - len(alone) * each_s))
    return StepQuality(
        num_steps=len(steps.seconds),
        num_clean=len(steps.clean) if steps.known else 0,
        num_disturbed=len(disturbed),
        stalled_s=sum(stalls),
        longest_stall_s=max(stalls, default=0.0),
        num_slow=len(slow),
        slow_s=slow_s,
        longest_slow_s=max(slow, default=0.0),
        num_collections=round(steps.collecting.num),
        collected_s=steps.collecting.seconds,
        method=method,
        unavailable=unavailable or {},
    )


def with_stops(trial: Trial) -> Trial:
    """The trial of a process that was stopped meanwhile.

    Where the process itself could not count that, slow steps were not the script's own.
    """
    cause = Cause(
        kind="stopped",
        message="the script's process was stopped and continued (SIGSTOP, SIGCONT)",
        remedy="let nothing stop the script's process while it is measured.",
    )
    quality = trial.quality
    if quality is not None and "stops" in quality.unavailable:
        quality = msgspec.structs.replace(
            quality,
            num_clean=quality.num_clean - min(quality.num_clean, quality.num_slow),
            num_disturbed=quality.num_disturbed + quality.num_slow,
            stalled_s=quality.stalled_s + quality.slow_s,
            longest_stall_s=max(quality.longest_stall_s, quality.longest_slow_s),
            num_slow=0,
            slow_s=0.0,
            longest_slow_s=0.0,
        )
    return msgspec.structs.replace(trial, quality=quality, causes=(*trial.causes, cause))


def quantile(values: Sequence[float], share: float) -> float:
    """The value below which at least `share` of the values lie, one of them."""
    ordered = sorted(values)
    return ordered[max(0, ceil(share * len(ordered)) - 1)]
