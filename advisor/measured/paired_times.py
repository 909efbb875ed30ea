"""Steps of several ranks in pairs: what computing takes, what synchronising adds, who is slow."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean, median

import msgspec

from ...records import Communication, RankPairs, Spread
from ...spread import spread_of

LEAST_PAIRS = 5
"""Fewer have no 90 % interval."""
STRAGGLER = 0.10
"""A rank that computes longer than the median rank by this share holds the others up."""


class PairedTimes(msgspec.Struct, frozen=True):
    """Tcomp with all ranks at work, whole steps, their difference; Tcomp of one process.

    Attributes:
        cost: what a step of several ranks takes longer than one of one process: Tsync, and what
            the ranks' sharing of a host takes from each.
        rounds: seconds alone, of Tcomp and of the whole step, measured one after the other.
    """

    compute: Spread
    step: Spread
    sync: Spread
    alone: Spread | None = None
    cost_alone: Spread | None = None
    rounds: tuple[tuple[float, float, float], ...] = ()

    @property
    def single(self) -> Spread:
        """A step on one device: measured by itself, else with all ranks at work."""
        return self.alone or self.compute

    @property
    def cost(self) -> Spread:
        return self.cost_alone or self.sync


def paired_times(communication: Communication) -> PairedTimes | None:
    """The job's times.

    Without synchronisation the slowest rank counts: the others would wait for it. With it they
    have waited: their steps take as long in the mean, and single ones differ by where they end.
    """
    good = [rank for rank in communication.ranks if rank.compute_s and rank.step_s]
    if not good or len(good) < len(communication.ranks):
        return None
    compute = [max(values) for values in zip(*(rank.compute_s for rank in good), strict=False)]
    step = [fmean(values) for values in zip(*(rank.step_s for rank in good), strict=False)]
    num = min(len(compute), len(step))
    sync = [two - first for first, two in zip(compute[:num], step[:num], strict=True)]
    spreads = spread_of(compute[:num]), spread_of(step[:num]), spread_of(sync)
    if num < LEAST_PAIRS or any(spread is None for spread in spreads):
        return None
    rounds = tuple(zip(_alone(good), compute, step, strict=False))
    if len(rounds) < LEAST_PAIRS:
        return PairedTimes(*spreads)  # type: ignore[arg-type]
    return PairedTimes(
        *spreads,  # type: ignore[arg-type]
        spread_of([alone for alone, _, _ in rounds]),
        spread_of([whole - alone for alone, _, whole in rounds]),
        rounds,
    )


def _alone(ranks: Sequence[RankPairs]) -> list[float]:
    """Seconds of the median rank in each step: equal devices differ by noise, and none waits."""
    steps = zip(*(rank.alone_s for rank in ranks), strict=False)
    return [median(values) for values in steps]


def why_not_alone(ranks: Sequence[RankPairs]) -> str:
    reasons = (rank.unavailable.get("alone_s") for rank in ranks)
    return next((reason for reason in reasons if reason), "not measured by this version")


def wire_time(ranks: Sequence[RankPairs]) -> Spread | None:
    """The rank that comes last to a collective waits for nobody: the least over the ranks."""
    if not ranks or any(not rank.exposed_s for rank in ranks):
        return None
    return spread_of(
        [min(values) for values in zip(*(rank.exposed_s for rank in ranks), strict=False)]
    )


def straggler_of(ranks: Sequence[RankPairs]) -> tuple[int | None, tuple[float, ...]]:
    """The rank that computes longest, if it stands out, and what each waits for the slowest."""
    slowest = [max(values) for values in zip(*(rank.compute_s for rank in ranks), strict=False)]
    waits = tuple(
        median(worst - own for worst, own in zip(slowest, rank.compute_s, strict=False))
        for rank in ranks
    )
    own = {rank.rank: spread_of(rank.compute_s) for rank in ranks}
    last = max(own, key=lambda rank: own[rank].median)  # type: ignore[union-attr]
    others = [spread for rank, spread in own.items() if rank != last and spread is not None]
    mine = own[last]
    assert mine is not None
    typical = median([spread.median for spread in others])
    stands_out = mine.low > max(spread.high for spread in others)
    return (last if stands_out and mine.median > (1 + STRAGGLER) * typical else None), waits
