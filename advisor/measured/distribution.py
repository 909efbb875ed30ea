"""What distribution costs and brings: Tcomp, Tsync, the epoch law, the break-even batch.

Synchronous data-parallel training on R devices with B samples each takes per epoch of N samples
`N / (R B) * (Tcomp + Tsync)`, on one device `N / B * Tcomp`; it pays if and only if
`Tsync < (R - 1) Tcomp`. Tsync is the exposed part: what synchronisation adds to a step. Ranks on
one host share its memory and caches, so that Tcomp is longer while all of them compute: where one
process was measured by itself too, its Tcomp is that of one device.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import ceil
from statistics import fmean, median

import msgspec

from ...records import (
    Advice,
    Communication,
    Discovery,
    RankPairs,
    RunRecord,
    Scaling,
    ScalingPoint,
    Spread,
)
from ...spread import scaled, spread_of
from .measurements import Measurements

WORLD_SIZES = (1, 2, 4, 8, 16, 32, 64)
LARGEST_BATCH = 1 << 20
"""A break-even beyond this is none."""
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


def sizes_to_pair(record: RunRecord, advice: Advice) -> tuple[int, ...]:
    """Sizes for paired steps: the recommended one, and another that ran for the law of Tcomp."""
    if advice.recommended is None:
        return ()
    size = advice.recommended.batch_size
    measurements = Measurements.of(record)
    others = {trial.batch_size for trial in measurements.ran if trial.purpose == "search"} - {size}
    far = [candidate for candidate in others if candidate >= 2 * size or 2 * candidate <= size]
    if not far:
        return (size,)
    own = measurements.own_size
    other = (
        own
        if own is not None and own in far
        else min(far, key=lambda candidate: (abs(candidate - size / 4), candidate))
    )
    return tuple(sorted({size, other}))


def scaling_of(record: RunRecord, batch_size: int | None = None) -> Scaling | None:
    """The costs and the law at the recommended size, `None` where no pairs were made.

    Args:
        batch_size: the size; the largest that was paired where there are none of this one.
    """
    distribution = record.distribution
    if distribution is None or distribution.world_size < 2:
        return None
    # Of a job some of whose ranks are missing nobody knows which was the slowest.
    whole = [
        communication
        for communication in distribution.communication
        if len(communication.ranks) == distribution.world_size
    ]
    usable = [communication for communication in whole if paired_times(communication) is not None]
    if not usable:
        return None
    chosen = next(
        (communication for communication in usable if communication.batch_size == batch_size),
        max(usable, key=lambda communication: communication.batch_size),
    )
    return _scaling(record.discovery, distribution.world_size, chosen, usable)


def num_ranks(record: RunRecord) -> int:
    """Ranks that take part in each optimizer step: those of the script's process group."""
    seen = record.distribution.parallelism if record.distribution is not None else None
    return (seen.world_size if seen is not None else None) or 1


def epoch_samples(discovery: Discovery, world_size: int) -> tuple[int | None, str]:
    """Samples of one epoch over all ranks, and why they are unknown.

    A distributed sampler has the length of one rank's part. Other samplers have that of the whole
    data set: accelerate's shards divide it, anything else gives it whole to every rank.
    """
    loader = discovery.primary
    if loader.num_samples is None:
        return None, discovery.why_epoch_unknown or "the dataset has no length"
    if not loader.num_samples:
        return None, "the dataset is empty"
    if "Distributed" in loader.sampler:
        return loader.num_samples * world_size, ""
    if "Shard" in loader.sampler:
        return loader.num_samples, ""
    return None, "the ranks do not share the data: no distributed sampler"


def verdict_of(
    sync: Spread, compute: Spread, world_size: int, *, alone: bool = False
) -> tuple[str, str]:
    """Whether R devices are faster than one, as far as the intervals tell.

    Args:
        sync: what a step of R devices takes longer than one of a single device.
        compute: a step on a single device.
        alone: whether one device was measured by itself: then the ranks' sharing of a host is in
            what their step takes longer, and that is more than Tsync.
    """
    others = world_size - 1
    longer = f"a step takes {_ms(sync)} longer than one alone" if alone else f"Tsync {_ms(sync)}"
    single = "Tcomp of one" if alone else "Tcomp"
    have = f"{longer}, {others} x {single} {_ms(scaled(compute, others))}"
    what = "it" if alone else "synchronisation"
    if sync.high < others * compute.low:
        return "pays", f"{have}: {what} costs less than the other ranks save"
    if sync.low > others * compute.high:
        return "does not pay", f"{have}: {what} costs more than the other ranks save"
    return "cannot tell", f"{have}: the intervals overlap"


def ring_share(num_ranks: int) -> float:
    """Share of twice the reduced bytes that each of R ranks sends in a ring all-reduce: (R - 1) /
    R.

    >>> ring_share(2), ring_share(4)
    (0.5, 0.75)
    """
    return (num_ranks - 1) / num_ranks


def law(
    compute: Spread, sync: Spread, measured: int, world_size: int
) -> tuple[float, float, float]:
    """Seconds a step on `world_size` ranks: median, low, high.

    Tsync grows with (R - 1) / R, as the bytes that each rank sends in a ring all-reduce do
    (Patarasuk and Yuan 2009, JPDC 69); latency and slower links between hosts come on top.
    """
    ring = ring_share(world_size) / ring_share(measured)
    return (
        compute.median + ring * max(0.0, sync.median),
        compute.low + ring * max(0.0, sync.low),
        compute.high + ring * max(0.0, sync.high),
    )


# inside --------------------------------------------------------------------------------------


def _scaling(
    discovery: Discovery | None,
    world_size: int,
    chosen: Communication,
    usable: Sequence[Communication],
) -> Scaling:
    pairs = paired_times(chosen)
    assert pairs is not None
    unavailable: dict[str, str] = {}
    alone = pairs.alone is not None
    verdict, message = verdict_of(pairs.cost, pairs.single, world_size, alone=alone)
    num_samples, why = (None, "no discovery")
    if discovery is not None:
        num_samples, why = epoch_samples(discovery, world_size)
    if num_samples is None:
        unavailable["epoch_s"] = why
    wire = wire_time(chosen.ranks)
    if wire is None:
        unavailable["wire_s"] = "DDP's own clock was not read on every rank"
    straggler, waits = straggler_of(chosen.ranks)
    even = _break_even(pairs.cost, usable, world_size)
    if isinstance(even, str):
        unavailable["break_even_batch"] = even
    at, low, high = (None, None, None) if isinstance(even, str) else even
    per_step = chosen.batch_size * chosen.micro_batches
    if pairs.alone is None:
        unavailable["alone_s"] = why_not_alone(chosen.ranks)
    return Scaling(
        batch_size=chosen.batch_size,
        world_size=world_size,
        compute_s=pairs.compute,
        step_s=pairs.step,
        sync_s=pairs.sync,
        alone_s=pairs.alone,
        wire_s=wire,
        waits_s=waits,
        straggler=straggler,
        verdict=verdict,  # type: ignore[arg-type]
        message=message,
        break_even_batch=at,
        break_even_low=low,
        break_even_high=high,
        points=tuple(
            _point(pairs, world_size, number, num_samples, per_step)
            for number in sorted({*WORLD_SIZES, world_size})
        ),
        unavailable=unavailable,
    )


def _break_even(
    sync: Spread, usable: Sequence[Communication], world_size: int
) -> tuple[int, int, int] | str:
    """The size from which on Tsync < (R - 1) (a + c B), with Tcomp = a + c B."""
    points = sorted(
        (communication.batch_size, pairs.single.median)
        for communication in usable
        if (pairs := paired_times(communication)) is not None
    )
    if len(points) < 2:
        return "steps were paired at one size only"
    (small, first), (large, second) = points[0], points[-1]
    slope = (second - first) / (large - small)
    if slope <= 0 or any(next_point[1] < point[1] for point, next_point in pairwise(points)):
        return "Tcomp does not grow with the batch between the sizes that were paired"
    fixed = first - slope * small

    def at(cost_s: float) -> int:
        return max(1, ceil((max(0.0, cost_s) / (world_size - 1) - fixed) / slope))

    sizes = at(sync.median), at(sync.low), at(sync.high)
    if sizes[0] > LARGEST_BATCH:
        return "beyond every size that makes sense"
    return sizes


def _point(
    pairs: PairedTimes, measured: int, world_size: int, num_samples: int | None, per_step: int
) -> ScalingPoint:
    compute = pairs.single if world_size == 1 else pairs.compute
    # By the law for every number of devices, the measured one among them: its step is
    # Tcomp + Tsync there, so that the epochs and the speed-ups of all rows fit together.
    step, low, high = law(compute, pairs.sync, measured, world_size)
    shape = {"num_samples": compute.num_samples, "confidence": compute.confidence}
    epoch = None
    fewer = float(world_size)
    if num_samples is not None:
        # Whole steps: where the ranks share out little data, more of them save no step.
        steps = ceil(num_samples / (world_size * per_step))
        fewer = ceil(num_samples / per_step) / steps
        epoch = Spread(median=steps * step, low=steps * low, high=steps * high, **shape)  # type: ignore[arg-type]
    return ScalingPoint(
        world_size=world_size,
        epoch_s=epoch,
        speedup=_speedup(pairs, measured, world_size, fewer),
        confidence="measured" if world_size == measured else "estimate",
    )


def _speedup(pairs: PairedTimes, measured: int, world_size: int, fewer: float) -> Spread:
    """One device's epoch over theirs, which has `fewer` times less steps.

    From rounds in which one process was measured beside all of them, where there are any. Else
    both steps hold the same Tcomp: the interval is Tsync's, at the median Tcomp.
    """
    ring = ring_share(world_size) / ring_share(measured)
    if pairs.rounds and world_size > 1:
        ratios = [
            fewer * alone / max(compute + ring * (whole - compute), alone * 1e-3)
            for alone, compute, whole in pairs.rounds
        ]
        spread = spread_of(ratios)
        assert spread is not None
        return spread

    def of(compute: float, sync: float) -> float:
        return fewer * compute / (compute + ring * max(0.0, sync))

    compute, sync = pairs.single, pairs.sync
    return Spread(
        median=of(compute.median, sync.median),
        low=of(compute.median, sync.high),
        high=of(compute.median, sync.low),
        num_samples=sync.num_samples,
        confidence=sync.confidence,
    )


def _ms(spread: Spread) -> str:
    return f"{spread.median * 1e3:.3g} ms ({spread.low * 1e3:.3g} to {spread.high * 1e3:.3g})"
