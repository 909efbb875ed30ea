"""The collectives of one job, rank against rank: transferring, or waiting for a slow rank.

A communication kernel runs from when its rank is ready until all are done. The rank that comes
last waits for nobody, so that its time is the transfer, and what the others took longer they
waited. Clocks of different machines need not agree: only durations are compared.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from typing import TypeAlias

import numpy as np

from ...records import Collectives, RankTimes
from . import kineto_names as vocabulary
from .metrics import Analysis
from .steps import UNKNOWN

STANDS_OUT = 0.4
"""Share of all waiting that a rank must have caused to be named ..."""
TIMES_FAIR = 1.5
"""... and how many times its fair share that must be."""
WORTH_NAMING = 0.25
"""Waiting below this share of the communication needs no name."""

TIE_NS = 1_000
TIE_SHARE = 0.05
"""Ranks whose kernels differ by no more than this, or by this part of the shortest, came together:
none of them was the last, and what the others waited is theirs in equal parts."""

Key: TypeAlias = tuple[str, str, int]
"""(step, kernel, position among those of the same name in the step)."""


def collectives_of(analysis: Analysis) -> dict[Key, int]:
    """The communication kernels of a trace: which one of the job it is -> nanoseconds.

    Of kernels launched before the trace began nobody knows which they are; they are left out
    where the trace has steps.
    """
    gpu, steps = analysis.trace.gpu, analysis.steps
    rows = np.flatnonzero((gpu.kind == vocabulary.KERNEL) & analysis.flags.communication[gpu.name])
    rows = rows[np.lexsort((gpu.start_ns[rows], gpu.device[rows]))]
    counts: Counter[tuple[str, str]] = Counter()
    collectives: dict[Key, int] = {}
    for row in rows.tolist():
        step = ""
        if len(steps):
            launched = int(analysis.launched[row])
            index = int(np.searchsorted(steps.start_ns, launched, side="right")) - 1
            if launched == UNKNOWN or index < 0 or launched > steps.end_ns[index]:
                continue
            step = steps.names[index]
        name = analysis.trace.names[gpu.name[row]].partition("(")[0]
        collectives[step, name, counts[step, name]] = int(gpu.end_ns[row] - gpu.start_ns[row])
        counts[step, name] += 1
    return collectives


def compare(
    ranks: Mapping[int, Mapping[Key, int]], world_size: int | None = None
) -> Collectives | str:
    """Splits the communication of each rank; the reason where that cannot be done.

    Args:
        ranks: `collectives_of` each rank's trace.
        world_size: ranks of the whole job, if known.
    """
    if len(ranks) < 2:
        return "the traces of two or more ranks are needed"
    common = _common(ranks)
    if not common:
        return "no collective is in the traces of all ranks"
    times: dict[int, defaultdict[str, float]] = {rank: defaultdict(float) for rank in ranks}
    last: Counter[int] = Counter()
    for key in common:
        durations = {rank: own[key] for rank, own in ranks.items()}
        transfer = min(durations.values())
        tie = transfer + max(TIE_NS, TIE_SHARE * transfer)
        slowest = [rank for rank, duration in durations.items() if duration <= tie]
        if len(slowest) == 1:
            last[slowest[0]] += 1
        for rank, duration in durations.items():
            times[rank]["transfer"] += transfer
            times[rank]["wait"] += duration - transfer
        waiting = sum(durations.values()) - transfer * len(durations)
        for rank in slowest:
            times[rank]["caused"] += waiting / len(slowest)
    waited = sum(own["wait"] for own in times.values())
    moved = sum(own["transfer"] for own in times.values())
    worst = max(times, key=lambda rank: (times[rank]["caused"], -rank))
    share = times[worst]["caused"] / waited if waited else 0.0
    named = (
        waited >= WORTH_NAMING * (waited + moved)
        and share >= max(STANDS_OUT, min(TIMES_FAIR / len(ranks), 0.9))
        and waited > 0
    )
    return Collectives(
        ranks=tuple(
            RankTimes(
                rank=rank,
                communication_s=(parts["transfer"] + parts["wait"]) / 1e9,
                transfer_s=parts["transfer"] / 1e9,
                wait_s=parts["wait"] / 1e9,
                caused_s=parts["caused"] / 1e9,
                num_last=last[rank],
            )
            for rank, parts in sorted(times.items())
        ),
        world_size=world_size,
        num_matched=len(common),
        num_unmatched=sum(len(own) - len(common) for own in ranks.values()),
        straggler=worst if named else None,
        straggler_share=share if named else None,
    )


def _common(ranks: Mapping[int, Mapping[Key, int]]) -> list[Key]:
    """Collectives that all ranks have, of steps and kernels that all have equally often."""
    counts = [Counter((step, name) for step, name, _ in own) for own in ranks.values()]
    first = next(iter(ranks.values()))
    return [key for key in first if len({count[key[0], key[1]] for count in counts}) == 1]
