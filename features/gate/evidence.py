"""What runs say of one size: a value for each process, and the ratio of the two sides.

The comparison is that of two sizes, `advisor/measured/speeds.py`: here its sizes are the sides, its
trials the rounds, its processes those of all runs. So the interval holds what changes from process
to process and from run to run, as large as the runs show it; with few of them, as large as it is
expected.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from itertools import pairwise
from math import exp, log, sqrt
from pathlib import Path
from statistics import median

import msgspec

from ...advisor.measured.measurements import Measurements
from ...advisor.measured.speeds import (
    SURE,
    Reading,
    Speeds,
    Wander,
    readings_of,
    wander_of,
)
from ...records import RunRecord, Spread
from ...spread import inverse, spread_of, student
from .records import Measure

AT_ONCE_S = 120.0
"""A run that begins so soon after another ended met the machine in the same state."""
PEAK_ERROR = 0.0005
"""Standard error of one reading of the peak: counters are exact, resident memory is in pages."""
OF_MEMORY = Wander(noise=0.01, process=0.005, trial=0.002, round=0.01, place=0.002, worth=3)
"""How far peaks are expected to wander from process to process on a CPU, where they are resident
memory: bench/results/gate-*."""
OF_MEMORY_ON_A_GPU = Wander(
    noise=0.001, process=0.0005, trial=0.0003, round=0.001, place=0.0003, worth=3
)
"""The same of an allocator that counts: libraries choose other algorithms, and little else."""
MOST_RUNS = 100
"""More runs than that are not proposed."""
BEFORE, AFTER = 0, 1


class Run(msgspec.Struct, frozen=True):
    """One run, and where it stands."""

    record: RunRecord
    path: Path


class Taken(msgspec.Struct, frozen=True):
    """Both sides, and the round of each run.

    Attributes:
        rounds: by side, the number of the round of each run; runs of both sides share a round that
            were taken one after the other.
        num_shared: rounds with both sides.
    """

    before: tuple[Run, ...]
    after: tuple[Run, ...]
    rounds: tuple[tuple[int, ...], tuple[int, ...]]
    num_shared: int

    @property
    def sides(self) -> tuple[tuple[Run, ...], tuple[Run, ...]]:
        """Runs before and after."""
        return self.before, self.after

    @property
    def in_turns(self) -> bool:
        """Whether each run of the side that has fewer was taken beside one of the other."""
        return self.num_shared == min(len(self.before), len(self.after))


def taken(before: Sequence[Run], after: Sequence[Run]) -> Taken:
    """Finds the rounds, by the times at which the runs began and ended."""
    order = sorted(
        (_began_s(run.record), side, place)
        for side, runs in enumerate((before, after))
        for place, run in enumerate(runs)
    )
    sides = (tuple(before), tuple(after))
    partner: dict[tuple[int, int], tuple[int, int]] = {}
    for (began_s, *first), (next_s, *second) in pairwise(order):
        one, two = (first[0], first[1]), (second[0], second[1])
        ended_s = began_s + sides[one[0]][one[1]].record.elapsed_s
        if one[0] != two[0] and one not in partner and next_s - ended_s <= AT_ONCE_S:
            partner[one] = partner[two] = one
    numbers: dict[tuple[int, int], int] = {}
    for _, side, place in order:
        numbers.setdefault(partner.get((side, place), (side, place)), len(numbers))
    rounds = [
        tuple(numbers[partner.get((side, place), (side, place))] for place in range(len(runs)))
        for side, runs in enumerate(sides)
    ]
    return Taken(sides[0], sides[1], (rounds[0], rounds[1]), len(partner) // 2)


def _began_s(record: RunRecord) -> float:
    return datetime.fromisoformat(record.started_at).timestamp()


def timed_sizes(record: RunRecord) -> set[int]:
    """The sizes at which a run timed steps."""
    readings = readings_of([trial for trial in record.trials if trial.ran and trial.says_of_size])
    return {each.size for each in readings}


class Values(msgspec.Struct, frozen=True):
    """What the processes of both sides say of a measure.

    Attributes:
        spreads: of the values of the runs of each side, in the measure's unit, smallest to largest.
        ratio: after over before.
        wander: what was expected.
        num_runs: of the side that has fewer.
        in_turns: whether they took turns.
    """

    spreads: tuple[Spread, Spread]
    ratio: Spread
    wander: Wander
    num_runs: int
    in_turns: bool

    def enough_runs(self, limit: float) -> int | None:
        """Runs of each side that should tell on which side of a limit the ratio lies.

        The interval narrows with the root of their number, and with what is known of their spread.

        Args:
            limit: a ratio.
        """
        room = abs(log(self.ratio.median / limit))
        half = log(self.ratio.high / self.ratio.low) / 2
        num = self.num_runs
        error = half / student(_free(self.wander, num), SURE) * sqrt(num)
        if not self.in_turns:
            return None  # a spell of the machine is as long as all of a side
        return next(
            (
                more
                for more in range(num + 1, MOST_RUNS + 1)
                if student(_free(self.wander, more), SURE) * error / sqrt(more) < room
            ),
            None,
        )


def _free(wander: Wander, num_runs: int) -> int:
    return max(1, round(wander.worth + num_runs - 2))


def values_of(measure: Measure, runs: Taken, size: int) -> Values | str:
    """The values of a measure at a size; why there are none."""
    readings: list[Reading] = []
    for side, (its, rounds) in enumerate(zip(runs.sides, runs.rounds, strict=True)):
        for run, number in zip(its, rounds, strict=True):
            found = (
                _peak(run.record, size) if measure == "peak_memory" else _rates(run.record, size)
            )
            if not found:
                return f"{run.path} has no {measure} at {size}: {_why_none(run.record, size)}"
            first = len(readings)
            readings += [
                each._replace(size=side, trial=number, process=first + process)
                for process, each in enumerate(found)
            ]
    wander = _wander(measure, [*runs.before, *runs.after])
    # A spell between runs that took no turns is as long as all of a side: no number of runs tells.
    spell = 0.0 if runs.in_turns else wander.trial
    speeds = Speeds(readings, {BEFORE: spell, AFTER: spell}, wander)
    ratio = speeds.compare(AFTER, BEFORE, SURE)
    assert ratio is not None  # both sides have readings
    num = min(len(runs.before), len(runs.after))
    ratio = msgspec.structs.replace(ratio, num_samples=num)
    spreads = tuple(
        _spread([each for each in readings if each.size == side]) for side in (BEFORE, AFTER)
    )
    if measure == "step_time":
        steps = [_per_step(its[0].record, size) for its in runs.sides]
        spreads = tuple(inverse(each, step) for each, step in zip(spreads, steps, strict=True))
        ratio = inverse(ratio, steps[1] / steps[0])
    return Values((spreads[0], spreads[1]), ratio, wander, num, runs.in_turns)


def _wander(measure: Measure, runs: Sequence[Run]) -> Wander:
    device = runs[0].record.device
    if measure == "peak_memory":
        return OF_MEMORY if device is None or device.kind == "cpu" else OF_MEMORY_ON_A_GPU
    return wander_of(device, [trial for run in runs for trial in run.record.trials])


def _rates(record: RunRecord, size: int) -> list[Reading]:
    """A reading for each process of a run: the middle of what it measured at the size."""
    trials = [trial for trial in record.trials if trial.ran and trial.says_of_size]
    at_size = [each for each in readings_of(trials) if each.size == size]
    middles = []
    for process in dict.fromkeys(each.process for each in at_size):
        own = [each for each in at_size if each.process == process]
        rate = median(each.rate for each in own)
        apart = [abs(each.rate - rate) for each in own]
        error = max(each.error or 0.0 for each in own) or median(apart)
        middles.append(
            Reading(
                size,
                rate,
                lost=median(each.lost for each in own),
                error=max(error / sqrt(len(own)), PEAK_ERROR),
                weight=0.0,
                clean=all(each.clean for each in own),
                trial=0,
                process=process,
                round=None,
            )
        )
    return middles


def _peak(record: RunRecord, size: int) -> list[Reading]:
    memory = Measurements.of(record).trusted_memory.get(size)
    if memory is None:
        return []
    rate = log(memory.peak_bytes)
    return [Reading(size, rate, 0.0, PEAK_ERROR, 0.0, True, trial=0, process=0, round=None)]


def _per_step(record: RunRecord, size: int) -> float:
    """Samples of an optimizer step."""
    trial = next(trial for trial in record.trials if trial.ran and trial.batch_size == size)
    return size * (trial.micro_batches or 1) * trial.arrived_share


def _spread(readings: Sequence[Reading]) -> Spread:
    """The middle of the values, with the smallest and the largest."""
    spread = spread_of([exp(each.rate) for each in readings], confidence=1.0)
    assert spread is not None  # each side has readings
    return spread


def _why_none(record: RunRecord, size: int) -> str:
    trials = [trial for trial in record.trials if trial.batch_size == size]
    if not trials:
        return record.stop_reason or "it was not tried"
    last = trials[-1]
    return last.detail or last.outcome.replace("_", " ") if not last.ran else "it was not measured"
