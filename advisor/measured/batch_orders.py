"""Real tokens per second of a size under other orders of its samples, by the law of its steps.

From the lengths that were seen: drawn at random, in batches of like length, as many of like length
as a budget of positions holds, and packed end to end. All keep to the positions that a random batch
holds on average, so that they take about the same memory. The law must first say what was measured
of the random order.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator, Sequence
from math import fsum
from statistics import fmean
from typing import NamedTuple

from ...records import BatchOrder, OrderEstimate, OrderEstimates, Tokens, Trial
from .measurements import Measurements
from .position_law import PositionLaw, position_law
from .token_pace import draws_at_random
from .trials import undisturbed
from .usual_steps import random_step

GROUP_BATCHES = 50
"""Samples of so many batches are sorted together, as Hugging Face's Trainer does it."""
MAX_MISS = 0.20
"""A law that misses what was measured of the random order by more predicts nothing."""
MAX_SEQUENCES = 20_000
"""Sequences that are laid into batches one by one, at most."""


class Sums(NamedTuple):
    """Means over the steps of one order of batches: places for tokens, real tokens, seconds."""

    positions: float
    squares: float
    real: float
    seconds: float


def order_estimates(measurements: Measurements, size: int) -> OrderEstimates | str:
    """Estimates the rate of each order at a size; a text says why nothing is predicted."""
    discovery = measurements.record.discovery
    if discovery is None or not draws_at_random(discovery.primary):
        return "the script's batches are not drawn at random"
    trials = [
        trial
        for trial in undisturbed(measurements.timed)
        if trial.tokens is not None and not trial.tokens.inferred
    ]
    counted = [trial for trial in trials if trial.batch_size == size]
    lengths, shortest, longest = _lengths(trials)
    if not counted or not lengths:
        return "the lengths of the sequences are not surely known"
    if shortest < 1:
        return "some sequences are empty, and no order of these is predicted"
    law = position_law([step for trial in trials for step in (trial.tokens or _NONE).steps])
    if isinstance(law, str):
        return law
    micro = counted[-1].micro_batches or 1
    drawn = _random(law, lengths, size, micro)
    measured = _measured(counted)
    misses_by = abs(drawn.real / drawn.seconds / measured - 1) if measured else None
    if misses_by is None or misses_by > MAX_MISS:
        how = "was not measured" if misses_by is None else f"is missed by {misses_by:.0%}"
        return f"the random order {how}, so that the law predicts no other"
    budget = drawn.positions / micro
    orders: list[tuple[BatchOrder, Sums]] = [
        ("random", drawn),
        ("grouped", _laid(law, _grouped(lengths, size), micro)),
        ("token budget", _laid(law, _by_budget(lengths, size, budget), micro)),
        ("packed", _laid(law, _packed(lengths, longest, size, budget), micro)),
    ]
    return OrderEstimates(
        batch_size=size,
        orders=tuple(
            OrderEstimate(
                order=name,
                real_per_s=sums.real / sums.seconds,
                padding_share=max(0.0, 1 - sums.real / sums.positions),
            )
            for name, sums in orders
        ),
        positions=budget,
        misses_by=misses_by,
        fixed_s=law.fixed_s,
        position_s=law.position_s,
        square_s=law.square_s,
        residual=law.residual,
        num_steps=law.num_steps,
    )


_NONE = Tokens(num_batches=0, evidence="shape")


def _lengths(trials: Sequence[Trial]) -> tuple[list[int], int, int]:
    """Lengths that stand for all, ascending, of the trial that counted the most.

    Returns:
        These, and the shortest and the longest of all.
    """
    known = [
        trial.tokens.lengths
        for trial in trials
        if trial.tokens is not None and trial.tokens.lengths is not None
    ]
    most = max(known, key=lambda lengths: lengths.num_sequences, default=None)
    shortest = min((lengths.shortest for lengths in known), default=0)
    longest = max((lengths.longest for lengths in known), default=0)
    return ([] if most is None else sorted(most.ordered)), shortest, longest


def _measured(trials: Sequence[Trial]) -> float | None:
    """Real tokens per second of the random order: those of all its steps."""
    steps = [step for trial in trials for step in (trial.tokens or _NONE).steps]
    seconds = fsum(step.step_s for step in steps)
    return fsum(step.real or 0 for step in steps) / seconds if seconds else None


def _random(law: PositionLaw, lengths: Sequence[int], size: int, micro: int) -> Sums:
    """Every batch as wide as the longest of `size` draws: the means of that and of its square."""
    positions, squares = random_step(lengths, size, micro)
    seconds = law.step_s(positions, squares)
    return Sums(positions, squares, micro * size * fmean(lengths), seconds)


class Batch(NamedTuple):
    """One batch: its places, rows x length², and its real tokens."""

    positions: float
    squares: float
    real: float


def _pool(lengths: Sequence[int], size: int) -> list[int]:
    """The sequences of one group, ascending; each length as often as it was seen."""
    num = min(MAX_SEQUENCES, GROUP_BATCHES * size)
    return [lengths[place * len(lengths) // num] for place in range(num)]


def _grouped(lengths: Sequence[int], size: int) -> Iterator[Batch]:
    pool = _pool(lengths, size)
    for start in range(0, len(pool), size):
        rows = pool[start : start + size]
        yield Batch(len(rows) * rows[-1], len(rows) * rows[-1] ** 2, sum(rows))


def _by_budget(lengths: Sequence[int], size: int, budget: float) -> Iterator[Batch]:
    rows: list[int] = []
    for length in _pool(lengths, size):
        if rows and (len(rows) + 1) * length > budget:
            yield Batch(len(rows) * rows[-1], len(rows) * rows[-1] ** 2, sum(rows))
            rows = []
        rows.append(length)
    yield Batch(len(rows) * rows[-1], len(rows) * rows[-1] ** 2, sum(rows))


def _packed(lengths: Sequence[int], width: int, size: int, budget: float) -> Iterator[Batch]:
    """Best fit, the longest first, into rows of that width; attention stays within each
    sequence, as packing collators have it.
    """
    rows: list[tuple[int, int]] = []  # tokens and squares
    rooms: list[tuple[int, int]] = []  # left in rows, ascending, and their places
    for length in reversed(_pool(lengths, size)):
        at = bisect_left(rooms, (length, 0))
        if at == len(rooms):
            rows.append((0, 0))
            place, room = len(rows) - 1, width
        else:
            room, place = rooms.pop(at)
        tokens, squares = rows[place]
        rows[place] = tokens + length, squares + length**2
        if room > length:
            insort(rooms, (room - length, place))
    at_once = max(1, int(budget // width))
    for start in range(0, len(rows), at_once):
        some = rows[start : start + at_once]
        real, squares = (sum(parts) for parts in zip(*some, strict=True))
        yield Batch(len(some) * width, squares, real)


def _laid(law: PositionLaw, batches: Iterator[Batch], micro: int) -> Sums:
    """The means of a step over all of these batches."""
    every = list(batches)
    positions, squares, real = (micro * fmean(parts) for parts in zip(*every, strict=True))
    return Sums(positions, squares, real, law.step_s(positions, squares))
