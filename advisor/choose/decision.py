"""The decision: one size by one goal under constraints, and the rule that chose it.

Only sizes that ran are chosen, and what a fresh process confirmed comes before what the search
saw. Another size than the script's own is chosen only where it was compared with that.
"""

from __future__ import annotations

import msgspec

from ...records import Goal, Spread, Standing
from ..measured.energy import thriftiest, why_not
from ..measured.measurements import Measurements
from ..measured.sizes import largest_allowed
from ..measured.thresholds import BUDGET_SPENT
from ..measured.trials import throughput
from .because import (
    AskedFor,
    Because,
    Failed,
    NeverDelivered,
    NeverTimed,
    NoEnergy,
    NotBetter,
    NotCompared,
    NothingLarger,
    NothingRan,
    OfNothing,
    OutOfMemory,
    Rival,
    TooLarge,
    TooNoisy,
)
from .finalists import finalists
from .goal_rules import rule_of
from .own_size import against_own, standing
from .rivals import open_rival


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """The size that is recommended, and what speaks for it and against it.

    Attributes:
        size: `None` where none can be recommended.
        standing: what is known of the size that the goal chose beside the script's own.
        because: the rule that chose.
        against: a size that may be much faster, for all that the noise tells.
        considered: the size of the goal, where it is not the one that is recommended.
        ratio: throughput of the goal's size over that of the script's own.
    """

    size: int | None
    standing: Standing
    because: Because
    against: Rival | None = None
    considered: int | None = None
    ratio: Spread | None = None


def choose(measurements: Measurements, goal: Goal) -> Decision:
    """The size to recommend, and why.

    Args:
        goal: another one than the record was measured for asks another question of it.
    """
    measurements = measurements.under(goal)
    wanted = _of_the_goal(measurements)
    if wanted is None:
        return Decision(size=None, standing="own", because=_why_none(measurements))
    if measurements.record.observed is not None:  # a callback compares nothing
        return Decision(size=wanted, standing="own", because=rule_of(measurements, wanted))
    return _beside_own(measurements, wanted)


def _of_the_goal(measurements: Measurements) -> int | None:
    """The objective under its constraints: ran, fits, and not refused by the confirmation."""
    confirmed = {trial.batch_size for trial in measurements.confirmations}
    if measurements.is_another_goal:
        confirmed = set()  # its size was measured once
    proposed = finalists(measurements)
    usable = measurements.usable_sizes
    for size in proposed:
        if size in usable and (size in confirmed or not confirmed):
            return size
    if measurements.goal.kind == "energy" and not proposed:
        return None
    if measurements.goal.kind == "memory":
        return max(usable, default=None)
    timed = {size: trial for size, trial in measurements.best_timed.items() if size in usable}
    return max(timed, key=lambda size: throughput(timed[size]), default=None)


def _beside_own(measurements: Measurements, wanted: int) -> Decision:
    """Whether the size of the goal may be recommended over the script's own."""
    decision = _against_own(measurements, wanted)
    own = measurements.own_size
    if own is None or decision.size != own or not _nothing_larger(measurements, own):
        return decision
    timed = tuple(sorted(measurements.best_timed))
    return Decision(
        size=None, standing="not compared", because=NothingLarger(own, timed), considered=own
    )


def _nothing_larger(measurements: Measurements, own: int) -> bool:
    """Whether the time was over before any size above the script's own was tried."""
    record, goal = measurements.record, measurements.goal
    cut = record.stop_reason == BUDGET_SPENT or record.state == "interrupted"
    if not cut or goal.kind not in ("knee", "throughput") or goal.sizes:
        return False
    tried = (trial.batch_size for trial in record.trials if trial.outcome != "interrupted")
    return max(tried, default=own) <= own < largest_allowed(measurements)


def _against_own(measurements: Measurements, wanted: int) -> Decision:
    """Whether the size of the goal may be recommended, by what was compared with the own one."""
    wanted_standing, own = standing(measurements, wanted), measurements.own_size
    if own is not None and wanted_standing == "not compared":
        ran = tuple(sorted(measurements.sizes_that_ran))
        because: Because = NotCompared(own, ran)
        return Decision(size=None, standing=wanted_standing, because=because, considered=wanted)
    compared = against_own(measurements, wanted)
    ratio = None if compared is None or compared.contended else compared.ratio
    if own is not None and wanted_standing in ("worse", "no gain", "too noisy"):
        return Decision(
            size=own,
            standing=wanted_standing,
            because=TooNoisy() if wanted_standing == "too noisy" else NotBetter(),
            against=open_rival(measurements, own),
            considered=None if wanted == own else wanted,
            ratio=ratio,
        )
    because = rule_of(measurements, wanted)
    if own is not None and wanted_standing == "asked for":
        because = AskedFor(own, because)
    against = open_rival(measurements, wanted)
    return Decision(
        size=wanted, standing=wanted_standing, because=because, against=against, ratio=ratio
    )


def _why_none(measurements: Measurements) -> OfNothing:
    """Why no size can be recommended."""
    kind, timed = measurements.goal.kind, measurements.best_timed
    if kind == "energy" and timed and thriftiest(measurements) is None:
        return NoEnergy(why_not(measurements))
    target, memory = measurements.target_bytes, measurements.trusted_memory
    if target is not None and memory and all(map(measurements.over_target, memory)):
        smallest = min(memory)
        return TooLarge(smallest, memory[smallest].peak_bytes)
    ran, num_samples = measurements.sizes_that_ran, measurements.script.num_samples
    if ran and num_samples is not None and not any(map(measurements.can_be_delivered, ran)):
        return NeverDelivered(num_samples, min(ran))
    fit = [size for size in ran - timed.keys() if not measurements.known_bad(size)]
    if fit and kind != "memory":
        return NeverTimed(max(fit))
    if measurements.smallest_bad is not None:
        worst = min(measurements.failed, key=lambda trial: trial.batch_size)
        if worst.outcome == "out_of_memory":
            return OutOfMemory(worst.batch_size)
        return Failed(worst.batch_size, worst.detail)
    record = measurements.record
    if record.faults:
        return NothingRan(record.faults[-1].detail)
    return NothingRan(record.stop_reason or "Nothing was measured.")
