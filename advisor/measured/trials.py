"""Facts that several trials show together, of one size or of many."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from ...records import Memory, Spread, Trial
from ...spread import inverse, scaled
from .speeds import Speeds

NO_ANSWER = 0.5
"""Relative half-width from which on a number says nothing."""


def undisturbed(trials: Sequence[Trial]) -> Sequence[Trial]:
    """Those that nothing seems to have disturbed, or all where there are none."""
    return [trial for trial in trials if not trial.doubtful] or trials


def fastest_of(trials: Iterable[Trial]) -> dict[int, Trial]:
    """For each size its fastest undisturbed trial, in order of size.

    What disturbs a measurement only ever slows it down, so of two the faster is nearer the truth.
    """
    by_size: dict[int, list[Trial]] = {}
    for trial in trials:
        by_size.setdefault(trial.batch_size, []).append(trial)
    return {size: max(undisturbed(by_size[size]), key=throughput) for size in sorted(by_size)}


def throughput(trial: Trial) -> float:
    """Samples per second, 0 where no time was measured."""
    return trial.samples_per_s.median if trial.samples_per_s is not None else 0.0


def says_nothing(rate: Spread | None) -> bool:
    """Whether an interval is so wide that its number is no answer."""
    return rate is not None and rate.is_interval and rate.relative_half_width > NO_ANSWER


def compared(trials: Sequence[Trial], speeds: Speeds, *, alone: bool) -> dict[int, Trial]:
    """`fastest_of` the trials of one size; where sizes took turns, with the times of these.

    Args:
        alone: as for `Speeds.rate`.
    """
    fastest = fastest_of(trials)
    for size, trial in fastest.items():
        if speeds.took_turns(size):
            fastest[size] = at_rate(trial, speeds.rate(size, alone=alone))
    return fastest


def at_rate(trial: Trial, samples_per_s: Spread) -> Trial:
    """The trial at another rate: its step waits for the loader for the share that was measured."""
    step_s, wait_s = inverse(samples_per_s, samples_a_step(trial)), trial.input_wait_s
    if wait_s is not None and trial.step_s is not None and trial.step_s.median > 0:
        wait_s = scaled(wait_s, step_s.median / trial.step_s.median)
    return msgspec.structs.replace(
        trial, samples_per_s=samples_per_s, step_s=step_s, input_wait_s=wait_s
    )


def samples_a_step(trial: Trial) -> float:
    """Samples that reached the loop in a step."""
    return trial.batch_size * (trial.micro_batches or 1) * trial.arrived_share


def pooled(trials: Iterable[Trial], field: str) -> Spread | None:
    """One spread for several trials of one size: mean of the medians, envelope of intervals."""
    spreads = [
        spread for spread in (getattr(trial, field) for trial in trials) if spread is not None
    ]
    if not spreads:
        return None
    return Spread(
        median=sum(spread.median for spread in spreads) / len(spreads),
        low=min(spread.low for spread in spreads),
        high=max(spread.high for spread in spreads),
        num_samples=sum(spread.num_samples for spread in spreads),
        confidence=min(spread.confidence for spread in spreads),
    )


def peaks_of(trials: Iterable[Trial]) -> dict[int, Memory]:
    """Peak memory by size, in order of size.

    In one process a size that comes after a larger one sees what that one left behind (heap,
    cached blocks), so readings without such a predecessor are preferred, and of these the ones with
    the least in graphs of sizes before. A backend without counters reads 0; that is no reading.
    """
    clean: dict[int, Memory] = {}
    other: dict[int, Memory] = {}
    largest: dict[int, int] = {}

    def rank(memory: Memory) -> tuple[int, int]:
        return -(memory.earlier_pools_bytes or 0), memory.peak_bytes

    for trial in trials:
        before = largest.get(trial.worker, 0)
        largest[trial.worker] = max(before, trial.batch_size)
        if not trial.ran or trial.memory is None or not trial.says_of_size:
            continue
        if trial.memory.peak_bytes <= 0:
            continue
        if trial.batch_size < before:
            other[trial.batch_size] = trial.memory
        elif trial.batch_size not in clean or rank(clean[trial.batch_size]) < rank(trial.memory):
            clean[trial.batch_size] = trial.memory
    return dict(sorted({**other, **clean}.items()))


def latest_confirmation(trials: Iterable[Trial], *, apart: bool) -> list[Trial]:
    """The latest series of confirm trials that ran in one process, in order.

    Args:
        apart: each size has a process of its own, and all of them are the series.
    """
    series: list[Trial] = []
    for trial in trials:
        if trial.purpose != "confirm" or not trial.ran or trial.kind == "turns":
            continue
        if series and series[-1].worker != trial.worker and not apart:
            series = []
        series.append(trial)
    return series
