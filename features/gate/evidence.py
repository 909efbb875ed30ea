"""What runs say of one size: a value for each run, and the ratio of the two sides.

Two processes of one script may differ by several per cent for all their life, and a machine may be
slow for minutes. So each run counts once, however many steps it timed, and times are compared in
rounds: a run of each side, one right after the other. If nothing changed, chance alone decides
which of the two is faster; the interval of the ratio, `spread.paired_spread`, assumes no more.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from itertools import pairwise
from math import ceil, exp, inf, log
from pathlib import Path
from statistics import median

import msgspec

from ...advisor.compare import MEMORY_NOISE
from ...advisor.measured.measurements import Measurements
from ...advisor.measured.speeds import SURE, readings_of
from ...records import RunRecord, Spread, Trial
from ...spread import paired_spread, spread_of
from .records import ROUNDS_NEEDED, Measure

AT_ONCE_S = 120.0
"""A run that begins so soon after another ended met the machine in the same state."""
MOST_PROPOSED = 100
"""More rounds than that are not proposed."""


class Run(msgspec.Struct, frozen=True):
    """One run, and where it stands."""

    record: RunRecord
    path: Path


class Taken(msgspec.Struct, frozen=True):
    """Both sides.

    Attributes:
        rounds: runs of both sides that were taken one right after the other, by their places in
            the two sides.
    """

    before: tuple[Run, ...]
    after: tuple[Run, ...]
    rounds: tuple[tuple[int, int], ...]


def taken(before: Sequence[Run], after: Sequence[Run]) -> Taken:
    """Finds the rounds, by the times at which the runs began and ended; each run is in one."""
    sides = (tuple(before), tuple(after))
    order = sorted(
        (_began_s(run.record), side, place)
        for side, runs in enumerate(sides)
        for place, run in enumerate(runs)
    )
    rounds: list[tuple[int, int]] = []
    last_is_free = True
    for (began_s, side, place), (next_s, next_side, next_place) in pairwise(order):
        ended_s = began_s + sides[side][place].record.elapsed_s
        if last_is_free and side != next_side and next_s - ended_s <= AT_ONCE_S:
            rounds.append((place, next_place) if side == 0 else (next_place, place))
            last_is_free = False
        else:
            last_is_free = True
    return Taken(sides[0], sides[1], tuple(rounds))


def _began_s(record: RunRecord) -> float:
    """Where a record does not say when, the run took no turn with any other."""
    try:
        return datetime.fromisoformat(record.started_at).timestamp()
    except ValueError:
        return -inf


def known_sizes(record: RunRecord, *, timed: bool) -> set[int]:
    """The sizes at which a run timed steps, or read the peak of the memory."""
    if not timed:
        return set(Measurements.of(record).trusted_memory)
    return {each.size for each in readings_of(_ran(record))}


def _ran(record: RunRecord) -> list[Trial]:
    return [trial for trial in record.trials if trial.ran and trial.says_of_size]


class Values(msgspec.Struct, frozen=True):
    """What both sides say of a measure.

    Attributes:
        before, after: middle of the runs, with the smallest and the largest.
        ratio: after over before.
        has_interval: whether there are rounds enough for the ends of `ratio` to tell something.
    """

    before: Spread
    after: Spread
    ratio: Spread
    has_interval: bool

    def enough_rounds(self, limit: float) -> int | None:
        """Rounds that should tell on which side of a limit the ratio lies.

        The interval narrows with the root of their number. `None` where even a hundred would not.

        Args:
            limit: a ratio.
        """
        half = log(self.ratio.high / self.ratio.low) / 2
        room = abs(log(self.ratio.median / limit))
        num = self.ratio.num_samples
        if room * (MOST_PROPOSED / max(1, num)) ** 0.5 <= half:
            return None
        return max(ROUNDS_NEEDED, num + 1, ceil(num * (half / room) ** 2))


def values_of(measure: Measure, runs: Taken, size: int) -> Values | str:
    """The values of a measure at a size; why there are none."""
    sides = (runs.before, runs.after)
    values = [[_value(measure, run.record, size) for run in side] for side in sides]
    for side, its in zip(sides, values, strict=True):
        for run, value in zip(side, its, strict=True):
            if value is None:
                return f"{run.path} has no {measure} at batch size {size}"
    known = [[value for value in side if value is not None] for side in values]
    before, after = (spread_of(side, confidence=1.0) for side in known)
    assert before is not None  # both sides have runs
    assert after is not None
    if measure == "peak_memory":
        return Values(before, after, _of_peaks(before, after), True)
    logs = [log(known[1][second] / known[0][first]) for first, second in runs.rounds]
    pairs = paired_spread(logs, SURE)
    if pairs is None:
        return Values(before, after, _unpaired(before, after), False)
    return Values(before, after, _exp(pairs), pairs.confidence >= SURE)


def _of_peaks(before: Spread, after: Spread) -> Spread:
    """Peaks hang on no spell of the machine: every run of one side beside every one of the other.

    They are told apart beyond `MEMORY_NOISE` at the least.
    """
    ratio = after.median / before.median
    return Spread(
        median=ratio,
        low=min(after.low / before.high, ratio / (1 + MEMORY_NOISE)),
        high=max(after.high / before.low, ratio * (1 + MEMORY_NOISE)),
        num_samples=min(before.num_samples, after.num_samples),
        confidence=min(before.confidence, after.confidence),
    )


def _unpaired(before: Spread, after: Spread) -> Spread:
    """Times that took no turns: what they seem to say, with no confidence at all."""
    ratio = after.median / before.median
    return Spread(median=ratio, low=ratio, high=ratio, num_samples=0, confidence=0.0)


def _exp(logs: Spread) -> Spread:
    return msgspec.structs.replace(
        logs, median=exp(logs.median), low=exp(logs.low), high=exp(logs.high)
    )


def _value(measure: Measure, record: RunRecord, size: int) -> float | None:
    """A measure of one run: seconds, samples per second or bytes."""
    if measure == "peak_memory":
        memory = Measurements.of(record).trusted_memory.get(size)
        return None if memory is None else float(memory.peak_bytes)
    trials = _ran(record)
    rates = [each.rate for each in readings_of(trials) if each.size == size]
    if not rates:
        return None
    rate = exp(median(rates))
    if measure == "throughput":
        return rate
    one = next(trial for trial in trials if trial.batch_size == size)
    return size * (one.micro_batches or 1) * one.arrived_share / rate
