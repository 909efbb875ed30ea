"""Which sizes take turns, and for how long; what they measured is compared in rounds.py.

On a CPU every size near the best is compared with its neighbours and with the best as soon as it
was measured once. A GPU's clock is steadier, and throttling is seen. Where a size costs more than
asking the loader for it (a process, a call of `fit`, a step built anew) nothing takes turns, nor in
a script that ends too soon.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import ceil

import msgspec

from ..records import Purpose, RunRecord, TrialRequest, TurnsPlan
from .cost import turns_s
from .facts import (
    fastest_of,
    searched_trials,
    throughput,
    too_short_for_turns,
    turns_of,
    usable,
)
from .rounds import ratio

FIELD = 0.5
"""Sizes from this share of the best throughput on are compared."""
ROUNDS = 12
"""Rounds of one comparison."""
MIN_ROUNDS = 4
COMPARISON_SHARE = 0.1
"""One comparison may cost this share of the budget."""
ALL_SHARE = 0.5
"""All together may cost this share."""
TURN_S = 0.02
"""Short steps are repeated until a turn takes about so long, so that it is not all jitter."""
MAX_TURN_STEPS = 50
WARMUP_STEPS = 1
"""The first step after another size finds memory of another shape."""
WORKERS_WARMUP_STEPS = 3
"""Data workers have batches of the old size under way, which are dropped."""


def next_comparison(record: RunRecord) -> TrialRequest | None:
    """Sizes that have not taken turns yet, with their neighbours and the best."""
    steps = field(record)
    met = {size for one in turns_of(record, "search") for size in one.sizes}
    new = [size for size in steps if size not in met]
    if not new:
        return None
    ordered = list(steps)
    beside = {
        ordered[other]
        for size in new
        for other in range(len(ordered))
        if abs(other - ordered.index(size)) <= 1
    }
    best = max(ordered, key=lambda size: size / steps[size])
    together = sorted({*beside, best})
    if len(together) < 2:
        return None
    return comparison(record, together, f"{', '.join(map(str, together))} in turn")


def more_rounds(
    record: RunRecord, sizes: Iterable[int], size: int, best: int, precision: float
) -> TrialRequest | None:
    """Another comparison of sizes that met before, while it is worth it.

    Args:
        size, best: their ratio is what has to be known.
        precision: of the ratio, half-width of its interval, at which it is known.
    """
    if size == best or not ({size, best} <= set(field(record))):
        return None
    known = ratio(turns_of(record, "search"), size, best)
    if known is not None and known.relative_half_width <= precision:
        return None
    spent_s = sum(one.elapsed_s for one in record.trials if one.kind == "turns")
    request = comparison(record, sizes, f"{size} and {best} once more, in turn")
    if request is None or request.turns is None:
        return None
    cost_s = turns_s(request.turns, field(record).__getitem__)
    return request if spent_s + cost_s <= ALL_SHARE * record.goal.budget_s else None


def comparison(
    record: RunRecord, sizes: Iterable[int], reason: str, purpose: Purpose = "search"
) -> TrialRequest | None:
    """A comparison of these sizes, as far as they may take turns; `None` if that is no two."""
    steps = {size: seconds for size, seconds in field(record).items() if size in set(sizes)}
    if len(steps) < 2:
        return None
    plan = TurnsPlan(
        sizes=tuple(steps),
        num_steps=tuple(
            max(1, min(MAX_TURN_STEPS, ceil(TURN_S / seconds))) for seconds in steps.values()
        ),
        num_warmup_steps=_warmup_steps(record),
    )
    most = int(COMPARISON_SHARE * record.goal.budget_s / turns_s(plan, steps.__getitem__))
    rounds = max(MIN_ROUNDS, min(ROUNDS, most))
    return TrialRequest(
        batch_size=max(steps),
        kind="turns",
        purpose=purpose,
        turns=msgspec.structs.replace(plan, num_rounds=rounds),
        reason=reason,
    )


def field(record: RunRecord) -> dict[int, float]:
    """The sizes that may take turns, ascending, with the seconds of a counted step.

    Where batches are fetched in pools, that is as many optimizer steps as a pool has batches for.
    """
    if record.device is None or record.device.kind != "cpu":
        return {}
    if record.discovery is None or record.discovery.door != "loader":
        return {}
    if too_short_for_turns(record):
        return {}
    measured = {
        size: one
        for size, one in fastest_of(searched_trials(record)).items()
        if usable(record, size)
    }
    floor = FIELD * max(map(throughput, measured.values()), default=0.0)
    most_s = COMPARISON_SHARE * record.goal.budget_s / 2 / MIN_ROUNDS / (1 + _warmup_steps(record))
    pool = record.discovery.pool
    return {
        size: pool * one.step_s.median
        for size, one in measured.items()
        if one.step_s is not None
        and throughput(one) >= floor
        and pool * one.step_s.median <= most_s
    }


def _warmup_steps(record: RunRecord) -> int:
    assert record.discovery is not None
    return WORKERS_WARMUP_STEPS if record.discovery.primary.num_workers else WARMUP_STEPS
