"""Which sizes take turns, and for how long; measured/speeds.py compares what they measured.

On a CPU every size near the best is compared with its neighbours and with the best as soon as it
was measured once. A GPU's clock is steadier, and throttling is seen. Where a size costs more than
asking the loader for it (a call of `fit`, a step built anew) nothing takes turns, nor in a script
that ends too soon. Where it costs a process see at_once.py.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import ceil

import msgspec

from ...records import Purpose, Spread, TrialRequest, TurnsPlan
from ...spread import CONFIDENCE
from ..measured.measurements import Measurements
from ..measured.speeds import SURE
from ..measured.turn_sizes import (
    MIN_ROUNDS,
    OWN_COMPARISON_SHARE,
    comparison_share,
    field,
    filled_after,
    have_met,
    long_pair,
    timed_beside_others,
    warmup_steps,
)
from .cost import turns_s

ROUNDS = 6
"""Rounds of one comparison; what they leave open is asked again."""
ROUNDS_OF_LENGTHS = 12
"""Rounds where they differ in what their batches hold: few would miss the longest samples."""
ALL_SHARE = 0.5
"""All together may cost this share."""
TURN_S = 0.02
"""Short steps are repeated until a turn takes about so long, so that it is not all jitter."""
TURN_OF_LENGTHS_S = 0.1
"""Seconds of a turn whose steps differ in length."""
TURN_OF_WORKERS_S = 0.2
"""Seconds of a turn where data workers hand over batches in bursts."""
MAX_TURN_STEPS = 50
LONG_TURN = 2.0
"""Beside others a turn ends after so many times the seconds that it was to take."""


def in_turn(
    measurements: Measurements, size: int, other: int, confidence: float = CONFIDENCE
) -> Spread | None:
    """How two sizes compare; `None` where no round of the search had both."""
    speeds = measurements.searched_speeds
    return speeds.compare(size, other, confidence) if speeds.num_rounds(size, other) else None


def next_comparison(measurements: Measurements) -> TrialRequest | None:
    """Sizes that have not taken turns yet, with their neighbours and the best."""
    steps = field(measurements)
    met = {size for turns in measurements.search_turns for size in turns.sizes}
    new = [size for size in steps if size not in met]
    if not new:
        return _beside_own(measurements)
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
        return _beside_own(measurements)
    return comparison(measurements, together, f"{', '.join(map(str, together))} in turn")


def _beside_own(measurements: Measurements) -> TrialRequest | None:
    """A larger size of long steps in turn with the script's own, once, unless it surely loses."""
    steps = long_pair(measurements)
    if not steps or any(steps.keys() <= set(turns.sizes) for turns in measurements.search_turns):
        return None
    own, size = steps
    known = measurements.searched_speeds.compare(size, own, SURE)
    surely_loses = known is not None and known.high < 1
    return None if surely_loses else _long_turns(measurements, steps)


def long_pair_again(measurements: Measurements) -> TrialRequest | None:
    """These two in turn in the fresh process, where it is still open which of them is faster."""
    steps = long_pair(measurements)
    if not steps or have_met(measurements, steps.keys()):
        return None
    own, size = steps
    known = measurements.speeds.compare(size, own, SURE)
    is_open = known is None or known.low <= 1 <= known.high
    return _long_turns(measurements, steps, "confirm") if is_open else None


def _long_turns(
    measurements: Measurements, steps: dict[int, float], purpose: Purpose = "search"
) -> TrialRequest:
    reason = f"{max(steps)} in turn with the script's own"
    return _comparison(measurements, steps, OWN_COMPARISON_SHARE, reason, purpose)


def more_rounds(
    measurements: Measurements,
    sizes: Iterable[int],
    size: int,
    best: int,
    precision: float,
    *,
    all_share: float = ALL_SHARE,
) -> TrialRequest | None:
    """Another comparison of sizes that met before, while it is worth it.

    Args:
        size, best: their ratio is what has to be known.
        precision: of the ratio, half-width of its interval, at which it is known.
        all_share: of the budget, that all comparisons together may cost.
    """
    if size == best or not ({size, best} <= set(field(measurements))):
        return None
    known = in_turn(measurements, size, best)
    if known is not None and known.relative_half_width <= precision:
        return None
    met = [turns for turns in measurements.search_turns if {size, best} <= set(turns.sizes)]
    if met and not any(any(row) for turns in met for row in turns.step_s):
        return None  # nothing could be read from them, and more would say no more
    spent_s = sum(trial.elapsed_s for trial in measurements.record.trials if trial.kind == "turns")
    request = comparison(measurements, sizes, f"{size} and {best} once more, in turn")
    if request is None or request.turns is None:
        return None
    cost_s = turns_s(request.turns, field(measurements).__getitem__)
    return request if spent_s + cost_s <= all_share * measurements.goal.budget_s else None


def comparison(
    measurements: Measurements, sizes: Iterable[int], reason: str, purpose: Purpose = "search"
) -> TrialRequest | None:
    """A comparison of these sizes, as far as they may take turns; `None` if that is no two."""
    steps = {size: seconds for size, seconds in field(measurements).items() if size in set(sizes)}
    if len(steps) < 2:
        return None
    return _comparison(measurements, steps, comparison_share(measurements), reason, purpose)


def _comparison(
    measurements: Measurements,
    steps: dict[int, float],
    share: float,
    reason: str,
    purpose: Purpose = "search",
) -> TrialRequest:
    """A comparison of these sizes that costs about this share of the budget."""
    turn_s = TURN_OF_LENGTHS_S if measurements.rated_by_tokens else TURN_S
    turn_s = TURN_OF_WORKERS_S if measurements.script.num_workers else turn_s
    wanted = ROUNDS_OF_LENGTHS if measurements.rated_by_tokens else ROUNDS
    plan = turns_of(measurements, steps, turn_s, wanted, share * measurements.goal.budget_s)
    return asking(plan, reason, purpose)


def turns_of(
    measurements: Measurements,
    steps: dict[int, float],
    turn_s: float,
    wanted: int,
    most_s: float,
) -> TurnsPlan:
    """Turns of a length.

    Args:
        steps: seconds of a step, by size, ascending.
        wanted: rounds, where they take no more than `most_s` seconds.
    """
    burst = max(1, measurements.script.num_workers or 0)
    if filled_after(measurements) is not None:
        burst = 1
    plan = TurnsPlan(
        sizes=tuple(steps),
        num_steps=tuple(
            burst * max(1, ceil(min(MAX_TURN_STEPS, turn_s / seconds) / burst))
            for seconds in steps.values()
        ),
        num_warmup_steps=warmup_steps(measurements),
        most_s=LONG_TURN * turn_s if timed_beside_others(measurements) else None,
    )
    most = int(most_s / turns_s(plan, steps.__getitem__))
    return msgspec.structs.replace(plan, num_rounds=max(MIN_ROUNDS, min(wanted, most)))


def asking(plan: TurnsPlan, reason: str, purpose: Purpose) -> TrialRequest:
    """The request for these turns."""
    return TrialRequest(
        batch_size=max(plan.sizes), kind="turns", purpose=purpose, turns=plan, reason=reason
    )
