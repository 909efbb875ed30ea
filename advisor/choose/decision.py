"""The decision: one size by one goal under constraints, and the rule that chose it.

Only sizes that ran are chosen, and of these one that a fresh process confirmed comes first. Another
size than the script's own is chosen only where it was compared with that.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import msgspec

from ...records import Goal, RunRecord, Spread, Standing
from ..measured.energy import samples_per_joule, thriftiest, why_not
from ..measured.measurements import Measurements
from ..measured.scaling import input_share
from ..measured.sizes import largest_allowed, smallest_sound
from ..measured.speeds import SURE
from ..measured.thresholds import BUDGET_SPENT, INPUT_SHARE
from ..measured.trials import throughput, undisturbed
from . import clean_size
from .finalists import finalists, passed_over
from .knee import (
    fastest,
    gains_little,
    knee,
    met_again,
    never_met,
    tail_avoided,
    uncompared,
)
from .own_size import against_own, at_most, is_hardly_faster, standing, surely_faster

MUCH_FASTER = 1.15
"""A size whose interval says it may be so many times as fast leaves the answer open."""

OfTheGoal = Literal[
    "only timed",  # no other size was timed
    "largest",  # the largest size that ran and may be used
    "next to the largest",  # whose epochs end badly; `numbers`: what a clean end may cost, 0..1
    "next to the thriftiest",  # the same; then samples per joule of both, 0 where unknown
    "next to the fastest",  # the same, without these
    "loader sets the pace",  # the own size; `numbers`: the share of a step that waits, 0..1
    "thriftiest",  # most samples per joule; `other`: the fastest, `numbers`: its samples per joule
    "fastest",
    "faster again",  # than `other`, the fastest of the search, in the fresh process
    "fastest confirmed",  # of those in the fresh process; `other` was faster in the search
    "within the tolerance",  # the smallest such size
    "worth a change",  # the same; `other` is smaller, and gains too little over the own size
    "within the tolerance and fastest",  # where some took no turns: `why`; `sizes` read faster
    "highest of the search",  # the same; another size may be faster, for all that the noise tells
    "highest until measured again",  # the same; that size now reads faster
    "clean beside the smallest",  # `other` is within the tolerance, and ends its epochs badly
    "clean beside the fastest",
    "large enough for BatchNorm",  # `other` is the fastest, and too small for that
    "faster than the fastest",  # of the search, once both were measured again
    "in place of the fastest",  # which was turned down when it was measured again
]
"""Rules by which the goal chooses a size."""
OfTheOwnSize = Literal[
    "asked for",  # `other`, the own size, was not; `among`: what chose among those that were
    "not better",  # the script keeps its size: compared with it, that of the goal is no gain
    "hardly faster",  # the script keeps its size: that of the goal is surely no faster to speak of
    "too noisy",  # the script keeps its size; `numbers`: no other is more times as fast
    "not compared",  # no size: `other`, the own one, was not timed; `sizes` ran
    "surely faster",  # than the own size, which is not told of `other`, the one of the goal
    "nothing larger",  # no size yet: time was over before one above `other`, the own; `sizes` timed
]
"""Rules by which the script's own size has a say."""
OfNothing = Literal[
    "no energy",  # energy decides, and none was measured: `why`
    "too large",  # each that ran takes too much memory; `other`: the smallest, `numbers`: its bytes
    "never delivered",  # the loader has `numbers` samples, fewer than `other`, the smallest
    "never timed",  # the goal needs times; `other` is the largest that ran
    "too early",  # the same, as time was over; `other` is `None` where nothing ran either
    "out of memory",  # even `other`, the smallest that was tried
    "failed",  # even `other`, the smallest that was tried: `why`
    "nothing ran",  # `why`
]
"""Why there is no size."""
Rule = OfTheGoal | OfTheOwnSize | OfNothing


class Because(msgspec.Struct, frozen=True):
    """Why a size is recommended, or none.

    Attributes:
        rule: that chose.
        other: the size that the rule names besides the chosen one.
        ratio: throughput of the chosen size over that of `rival`, where they were measured again.
        numbers, sizes, why: what the rule goes by.
        among: the rule that chose among the sizes that were asked for.
    """

    rule: Rule
    other: int | None = None
    ratio: Spread | None = None
    rival: int | None = None
    numbers: tuple[float, ...] = ()
    sizes: tuple[int, ...] = ()
    why: str = ""
    among: Because | None = None


class Rival(NamedTuple):
    """A size that may be much faster, for all that the noise tells.

    Attributes:
        ratio: its throughput over that of the recommended size.
    """

    size: int
    ratio: Spread


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """The size that is recommended, and what speaks for it and against it.

    Attributes:
        size: `None` where none can be recommended.
        standing: what is known of the size that the goal chose beside the script's own.
        because: the rule that chose.
        against: a size that may be much faster, for all that the noise tells.
        considered: the size of the goal, where the script's own stays in its place.
        ratio: throughput of that size, else of the recommended one, over that of the script's own.
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
        because = _why_none(measurements)
        standing: Standing = "not compared" if because.rule == "too early" else "own"
        return Decision(size=None, standing=standing, because=because)
    if measurements.record.observed is not None:  # a callback compares nothing
        return Decision(size=wanted, standing="own", because=_why(measurements, wanted))
    return _beside_own(measurements, wanted)


def _of_the_goal(measurements: Measurements) -> int | None:
    """The objective under its constraints: ran, fits, and not refused by the confirmation."""
    confirmed = measurements.confirmed_sizes
    if measurements.is_another_goal:
        confirmed = frozenset()  # its size was measured once
    proposed = finalists(measurements)
    usable = measurements.usable_sizes
    if measurements.goal.kind != "memory":  # one that ran, and was not timed, is no answer
        usable = usable.intersection(measurements.best_timed)
    for size in proposed:
        if size in usable and (size in confirmed or not confirmed):
            return size
    for size in proposed:  # of sizes that none compared, the search's own choice
        if size in usable and size in measurements.sizes_that_ran:
            return size
    if measurements.goal.kind == "energy" and not proposed:
        return None
    if measurements.goal.kind == "memory":
        return max(usable, default=None)
    timed = {size: trial for size, trial in measurements.best_timed.items() if size in usable}
    return max(timed, key=lambda size: throughput(timed[size]), default=None)


# the script's own size -----------------------------------------------------------------------


def _beside_own(measurements: Measurements, wanted: int) -> Decision:
    """Whether the size of the goal may be recommended over the script's own."""
    decision = _against_own(measurements, wanted)
    own = measurements.own_size
    if own is None or decision.size != own or not _nothing_larger(measurements, own):
        return decision
    timed = tuple(sorted(measurements.best_timed))
    because = Because("nothing larger", own, sizes=timed)
    return Decision(size=None, standing="not compared", because=because, considered=own)


def _nothing_larger(measurements: Measurements, own: int) -> bool:
    """Whether the time was over before any size above the script's own was tried."""
    record, goal = measurements.record, measurements.goal
    if not _is_cut(record) or goal.kind not in ("knee", "throughput") or goal.sizes:
        return False
    tried = (trial.batch_size for trial in record.trials if trial.outcome != "interrupted")
    return max(tried, default=own) <= own < largest_allowed(measurements)


def _is_cut(record: RunRecord) -> bool:
    """Whether the time was over before the search was."""
    return record.stop_reason == BUDGET_SPENT or record.state == "interrupted"


def _against_own(measurements: Measurements, wanted: int) -> Decision:
    """Whether the size of the goal may be recommended, by what was compared with the own one."""
    wanted_standing, own = standing(measurements, wanted), measurements.own_size
    if own is not None and wanted_standing == "not compared":
        because = Because("not compared", own, sizes=tuple(sorted(measurements.sizes_that_ran)))
        return Decision(size=None, standing=wanted_standing, because=because, considered=wanted)
    certain = surely_faster(measurements) if wanted_standing == "too noisy" else None
    if certain is not None:
        return Decision(
            size=certain,
            standing="better",
            because=Because("surely faster", wanted),
            against=open_rival(measurements, certain),
            ratio=against_own(measurements, certain),
        )
    told = own is not None and measurements.speeds.tells(wanted, own)
    ratio = against_own(measurements, wanted) if told else None
    if own is not None and wanted_standing in ("worse", "no gain", "too noisy"):
        by_joules = measurements.goal.kind == "energy"
        rule: Rule = "too noisy" if wanted_standing == "too noisy" else "not better"
        if wanted_standing == "no gain" and ratio and is_hardly_faster(measurements, wanted, ratio):
            rule = "hardly faster"
        most = at_most(measurements) if rule == "too noisy" else None
        why = "samples per joule" if by_joules else ""
        because = Because(rule, numbers=() if most is None else (most,), why=why)
        return Decision(
            size=own,
            standing=wanted_standing,
            because=because,
            against=open_rival(measurements, own),
            considered=None if wanted == own else wanted,
            ratio=None if by_joules else ratio,  # of throughput, which did not decide
        )
    because = _why(measurements, wanted)
    if own is not None and wanted_standing == "asked for":
        because = Because("asked for", own, among=because)
    return Decision(
        size=wanted,
        standing=wanted_standing,
        because=because,
        against=open_rival(measurements, wanted),
        ratio=ratio,
    )


def open_rival(measurements: Measurements, size: int) -> Rival | None:
    """The size that may be the fastest beside this one by what was measured, if it may be much."""
    if measurements.goal.kind not in ("knee", "throughput"):
        return None
    speeds = measurements.speeds
    rivals = [
        Rival(other, sure)
        for other in measurements.searched
        if other != size
        and (compared := speeds.compare(other, size)) is not None
        and compared.high > MUCH_FASTER
        # "Is faster" is said on the same grounds as a size is recommended.
        and (sure := speeds.compare(other, size, SURE)) is not None
        and (sure.low <= 1 or speeds.tells(other, size))
    ]
    return max(rivals, key=lambda rival: rival.ratio.high, default=None)


def fastest_is_open(measurements: Measurements, decision: Decision) -> bool:
    """Whether no size can be called the fastest, though the search has one that reads so.

    The recommended size or its rival met it again and was faster: the search says one thing, and
    all together another. Or the noise does not even tell it from the script's own.
    """
    best, size = fastest(measurements), decision.size
    if size is None or best is None:
        return False
    if decision.because.rule in ("surely faster", "highest until measured again"):
        return True
    return any(
        met_again(measurements, other, best)
        and (compared := measurements.speeds.compare(other, best)) is not None
        and compared.median > 1
        for other in {size, *finalists(measurements)} - {best}
    )


# by which rule -------------------------------------------------------------------------------


def _why(measurements: Measurements, size: int) -> Because:
    """The rule by which the goal chose a size."""
    kind = measurements.goal.kind
    avoided = passed_over(measurements)
    if avoided is not None and avoided != size:
        return _instead_of(measurements, size, avoided)
    if kind == "memory":
        return Because("largest")
    if len(measurements.best_timed) == 1:
        return Because("only timed")
    if kind == "energy":
        return _thriftiest(measurements, size)
    if kind == "throughput":
        return _fastest(measurements, size)
    share = _waiting(measurements, size)
    if share is not None:
        return Because("loader sets the pace", numbers=(share,))
    return _of_the_knee(measurements, size)


def _instead_of(measurements: Measurements, size: int, avoided: int) -> Because:
    """A clean size came before the best one of its goal."""
    cost = clean_size.cost_of(measurements)
    if measurements.goal.kind == "memory":
        return Because("next to the largest", avoided, numbers=(cost,))
    if measurements.goal.kind == "energy":
        timed = measurements.best_timed
        mine, theirs = (samples_per_joule(timed[batch_size]) or 0 for batch_size in (size, avoided))
        return Because("next to the thriftiest", avoided, numbers=(cost, mine, theirs))
    because = Because("next to the fastest", avoided, numbers=(cost,))
    return _with_ratio(because, measurements, size, avoided)


def _thriftiest(measurements: Measurements, size: int) -> Because:
    best = fastest(measurements)
    if best is None or best == size:
        return Because("thriftiest")
    theirs = samples_per_joule(measurements.best_timed[best])
    return Because("thriftiest", best, numbers=() if theirs is None else (theirs,))


def _fastest(measurements: Measurements, size: int) -> Because:
    """The fastest, or what came before the fastest of the search."""
    best = fastest(measurements)
    if best is None or best == size:
        return Because("fastest")
    again = _with_ratio(Because("faster again", best), measurements, size, best)
    if again.ratio is not None:
        return again
    confirmed = measurements.confirmed_sizes
    if size in confirmed and best not in confirmed:
        return Because("fastest confirmed", best)
    return Because("fastest")


def _waiting(measurements: Measurements, size: int) -> float | None:
    """The share of a step that waits for the loader, where that keeps the script's own size."""
    sizes = measurements.searched
    if size != measurements.own_size or size not in sizes:
        return None
    again = undisturbed([trial for trial in measurements.confirmations if trial.batch_size == size])
    # The trial that speaks for a size in the table too: the fresh process, where it ran there.
    share = input_share(max(again, key=throughput, default=sizes[size]))
    return None if share < INPUT_SHARE or _surely_slower(measurements, size) else share


def _surely_slower(measurements: Measurements, size: int) -> bool:
    """Whether another size that ran is faster by more than the tolerance, fit to use or not."""
    rates = {other: trial.samples_per_s for other, trial in measurements.best_timed.items()}
    mine, floor = rates.get(size), 1 - measurements.goal.tolerance
    return mine is not None and any(
        rate is not None and mine.high < floor * rate.low for rate in rates.values()
    )


def _of_the_knee(measurements: Measurements, size: int) -> Because:
    """Which size of the knee it is, and how it fared beside its rival once measured again."""
    best = fastest(measurements)
    because = _knee_rule(measurements, size, best)
    for rival in (*finalists(measurements), best):
        if rival is not None and rival != size:
            known = _with_ratio(because, measurements, size, rival)
            if known.ratio is not None:
                return known
    return because


def _knee_rule(measurements: Measurements, size: int, best: int | None) -> Because:
    """The rule, and the size that the chosen one stands next to, or was taken for."""
    avoided = tail_avoided(measurements)
    if best is not None and size > best and size != knee(measurements):
        compared = measurements.speeds.compare(size, best)
        faster = compared is not None and compared.low > 1
        return Because("faster than the fastest" if faster else "in place of the fastest", best)
    if best is not None and best < smallest_sound(measurements) <= size:
        return Because("large enough for BatchNorm", best)
    if best is not None and size > best and measurements.harmful(best):
        return Because("clean beside the fastest", best)
    little = gains_little(measurements)
    if little is not None and little < size:
        return Because("worth a change", little)
    if best == size:
        rule: Rule = "within the tolerance and fastest"
        rival, unmet = open_rival(measurements, size), uncompared(measurements)
        if rival is not None:
            # What reads faster and took no turns is said as such.
            slower = rival.size not in unmet and _fell_behind(measurements, size, rival.size)
            rule = "highest until measured again" if slower else "highest of the search"
        apart = tuple(never_met(measurements, size))
        return Because(rule, sizes=apart, why="some took no turns" if unmet else "")
    if avoided is not None and avoided < size:
        return Because("clean beside the smallest", avoided)
    return Because("within the tolerance")


def _fell_behind(measurements: Measurements, size: int, rival: int) -> bool:
    """Whether a size was measured again, and stands beside its rival with less since."""
    if size not in measurements.confirmed_sizes:
        return False
    shown, other = (measurements.shown(each, "samples_per_s") for each in (size, rival))
    return shown is not None and other is not None and shown.median < other.median


def _with_ratio(because: Because, measurements: Measurements, size: int, other: int) -> Because:
    """The rule with how two sizes compare, where they were measured again beside each other."""
    if not met_again(measurements, size, other):
        return because
    ratio = measurements.speeds.compare(size, other)
    return msgspec.structs.replace(because, ratio=ratio, rival=other)


def _why_none(measurements: Measurements) -> Because:
    """Why no size can be recommended."""
    kind, timed = measurements.goal.kind, measurements.best_timed
    if kind == "energy" and timed and thriftiest(measurements) is None:
        return Because("no energy", why=why_not(measurements))
    target, memory = measurements.target_bytes, measurements.trusted_memory
    if target is not None and memory and all(map(measurements.over_target, memory)):
        smallest = min(memory)
        why = "lengths" if measurements.fits_but_for_lengths(smallest) else ""
        return Because("too large", smallest, numbers=(memory[smallest].peak_bytes,), why=why)
    ran, num_samples = measurements.sizes_that_ran, measurements.script.num_samples
    if ran and num_samples is not None and not any(map(measurements.can_be_delivered, ran)):
        return Because("never delivered", min(ran), numbers=(num_samples,))
    fit = [size for size in ran - timed.keys() if not measurements.known_bad(size)]
    is_early = _is_cut(measurements.record) and not measurements.is_another_goal
    if fit and kind != "memory":
        return Because("too early" if is_early else "never timed", max(fit))
    if measurements.smallest_bad is not None:
        worst = min(measurements.failed, key=lambda trial: trial.batch_size)
        if worst.outcome == "out_of_memory":
            return Because("out of memory", worst.batch_size)
        return Because("failed", worst.batch_size, why=worst.detail)
    record = measurements.record
    if record.faults:
        return Because("nothing ran", why=record.faults[-1].detail)
    if is_early:
        return Because("too early")
    return Because("nothing ran", why=record.stop_reason or "Nothing was measured.")
