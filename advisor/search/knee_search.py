"""The throughput search: grow until it no longer pays, then close in on the knee."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from math import sqrt

from ...records import Trial, TrialRequest
from ..choose.knee import (
    NEAR_RATIO,
    best_size,
    best_throughput,
    floor_above,
    inside,
    knee,
    knee_by_law,
    may_be_best,
)
from ..measured.energy import samples_per_joule
from ..measured.measurements import Measurements
from ..measured.memory_guard import LEAST_STEP, largest_safe, room_ends
from ..measured.multiples import REFUSALS
from ..measured.scaling import slower_than_larger
from ..measured.sizes import allowed, largest_allowed, smallest_allowed, smallest_sound
from ..measured.speeds import SURE
from ..measured.thresholds import BUDGET_SPENT
from ..measured.training import FAR
from ..measured.trials import throughput
from ..measured.turn_sizes import field, only_beside_others, waiting
from ..measured.usual_steps import foreseen
from .at_once import next_in_search
from .clean_search import next_to_knee
from .cost import Budget, has_long_steps
from .requests import timed_request
from .turns_plan import in_turn, more_rounds, next_comparison

LEAST_PADDING = 0.02
"""A smaller share of padding leaves nothing to gain."""
IN_REACH = 0.7
"""The smallest size reaches this share of the best rate, or smaller ones are not looked at."""
MISSED_BY = 0.05
"""The law may be off by so much: a smaller size that it puts no lower may be faster."""

KNEE_GROWTH, LEAST_KNEE_GROWTH = 4.0, 1.5
SMALLER_FACTOR = 8
LEAST_OWN = 4
"""An own size from which on one so many times smaller is timed, for the fixed cost of a step."""
SMALL_START = 0.05
"""The process of that small size, where it needs one, may take so much of the budget to begin."""
MOSTLY = 0.5
"""An own size that fills more of the memory is not followed by a small one: what a process kept of
the larger may be refused to the smaller, and that would say nothing of either."""
NO_GAIN = 0.01
"""Under the goal `throughput`, growth ends when a larger size gains less than this twice."""
CLEAR_LOSS = 0.1
"""A larger size this much slower than the best ends growth at once, or, for the knee, after one
more; one that the law puts so much lower is not tried."""
BESIDE = 2.0
"""The best size's neighbours are at most this far from it: everything is compared with it."""
TOLD_FROM = KNEE_GROWTH**2
"""Beside others, growth waits at so many times the script's own size until the gain is told."""
KNEE_BRACKET = 1.34
"""Ratio of the first size inside to the last outside at which refining ends."""
MAX_REFINEMENTS = 5
COSTLY = 0.1
"""Beyond a size that lost already, a trial may cost this share of the budget."""
TOO_COSTLY = 0.25
"""Share of the budget that no step up may cost: a smaller one leaves time to compare."""
ENOUGH = 0.5
"""The ratio of knee and best is known to this share of the tolerance: a size that is taken for one
inside falls short by no more than half of what is allowed."""
MAX_REFUSED_ABOVE = 3
"""Sizes above all that ran that a script may turn down, memory aside, before growth ends."""
DOUBTED_FALL = 1.05
"""A step that takes this many times as long as one of a larger size is doubted."""
DIP = 0.95
"""A size whose throughput is below this share of both its neighbours' is doubted, too."""
MAX_AGAIN = 4
"""Sizes of one search that are timed again."""
SPEED_GOALS = ("throughput", "energy")
"""Goals that grow until it no longer pays and look for no knee."""


def next_size(measurements: Measurements, budget: Budget) -> TrialRequest | str:
    """The next trial of the search, or why it is over."""
    return (
        (_again(measurements) if len(measurements.searched) > 1 else None)  # a second size first
        or next_comparison(measurements)
        or next_in_search(measurements)
        or _until_it_tells(measurements)
        or next_smaller(measurements)  # these cost the least
        or _first_larger(measurements, budget)
        or _first_smaller(measurements, budget)
        or _told_from_own(measurements)
        or _grow(measurements, budget)
        or _refine(measurements)
        or _sharpen(measurements)
        or next_to_knee(measurements)
        or _again(measurements)
        or _why_over(measurements)
    )


def _again(measurements: Measurements) -> TrialRequest | None:
    """A size that something seems to have disturbed is timed once more.

    It is when others used the machine meanwhile, when a larger size was faster a step, or when
    its throughput falls below that of both its neighbours. If it stays so, it is real. Where each
    size was timed beside others, it would be so again; and a process more is worth less than turns
    with the script's own size, whose process waits.
    """
    if only_beside_others(measurements) or waiting(measurements):
        return None
    sizes = measurements.searched
    counts = Counter(trial.batch_size for trial in measurements.searched_trials)
    suspects = [size for size, trial in sizes.items() if trial.doubtful]
    compared = field(measurements)
    for size in dict.fromkeys([*suspects, *slower_than_larger(sizes, DOUBTED_FALL), *_dips(sizes)]):
        if size in compared:
            continue
        if counts[size] == 1 and sum(counts.values()) - len(counts) < MAX_AGAIN:
            why = "timed again: something seems to have disturbed it"
            return timed_request(measurements, size, why)
    return None


def _until_it_tells(measurements: Measurements) -> TrialRequest | None:
    """More rounds of the best size and the script's own, where they took turns and threads of one
    spun in so many rounds that too few are left."""
    own, sizes = measurements.own_size, measurements.searched
    best = best_size(sizes) if sizes else None
    if own not in sizes or best is None or best == own:
        return None
    met = any({own, best} <= set(turns.sizes) for turns in measurements.search_turns)
    if not met or measurements.searched_speeds.tells(best, own):
        return None
    return more_rounds(measurements, (own, best), best, own, NO_GAIN)


def _dips(sizes: dict[int, Trial]) -> list[int]:
    """Sizes with clearly less throughput than the next smaller and the next larger one."""
    ordered = list(sizes)
    return [
        size
        for before, size, after in zip(ordered, ordered[1:], ordered[2:], strict=False)
        if throughput(sizes[size]) < DIP * min(throughput(sizes[before]), throughput(sizes[after]))
    ]


def _why_over(measurements: Measurements) -> str:
    """Why nothing is left to do, of what is affordable."""
    sizes = measurements.searched
    last, worth = max(sizes, default=0), _worth(measurements)
    paid = bool(sizes) and _growth_pays(measurements, sizes)
    if paid and worth(sizes[last]) >= max(map(worth, sizes.values())):
        ends = room_ends(measurements)
        if _steps_up(measurements):
            return BUDGET_SPENT
        if ends is not None and ends <= last * LEAST_STEP < largest_allowed(measurements):
            return "memory allows no larger size"
    return "the knee is bracketed"


def _first_larger(measurements: Measurements, budget: Budget) -> TrialRequest | None:
    """A much larger size than the one that was timed first, before anything else is asked."""
    return _grow(measurements, budget) if len(measurements.searched) == 1 else None


def _first_smaller(measurements: Measurements, budget: Budget) -> TrialRequest | None:
    """A much smaller size than the script's own, for the cost of a step that no batch changes.

    Beside others a step costs mostly these.
    """
    if only_beside_others(measurements):
        return None
    goal, own = measurements.goal, measurements.own_size
    if own is None or own < LEAST_OWN or goal.kind != "knee" or goal.start:
        return None
    tried = {trial.batch_size for trial in measurements.record.trials}
    small = allowed(measurements, max(smallest_allowed(measurements), own // SMALLER_FACTOR))
    if min(tried, default=own) < own or small >= own or measurements.ruled_out(small):
        return None
    target, memory = measurements.target_bytes, measurements.trusted_memory.get(own)
    script = measurements.script
    if script.process_per_size and script.setup_s > SMALL_START * goal.budget_s:
        return None
    filled = memory is not None and target is not None and memory.peak_bytes > MOSTLY * target
    if filled or has_long_steps(budget.step_s(own), goal.budget_s):
        return None
    return timed_request(measurements, small, "a small size, for the fixed cost")


def _grow(measurements: Measurements, budget: Budget) -> TrialRequest | None:
    """The longest step up that leaves time for what comes after it."""
    sizes = measurements.searched
    for request in _steps_up(measurements):
        # Not of the start of a process, which takes as long for a smaller step up.
        share = budget.steps_s(request) / measurements.goal.budget_s
        lost = throughput(sizes[max(sizes)]) < best_throughput(sizes)
        if share <= (COSTLY if lost else TOO_COSTLY) and budget.allows(request):
            return request
    return None


def _steps_up(measurements: Measurements) -> list[TrialRequest]:
    """Steps to larger sizes within memory and data, the longest first, while they pay."""
    sizes = measurements.searched
    if not sizes or not _growth_pays(measurements, sizes):
        return []
    last = max(sizes)
    refused = [failure for failure in measurements.failed if failure.outcome in REFUSALS]
    if sum(failure.batch_size > last for failure in refused) >= MAX_REFUSED_ABOVE:
        return []
    top, own = largest_allowed(measurements), measurements.own_size
    if own is not None and only_beside_others(measurements):
        # Where steps mostly wait a larger one always pays: no further than it can be told to train.
        top = min(top, FAR * own)
    limit = measurements.target_bytes
    if limit is not None:
        safe = largest_safe(measurements.trusted_memory, limit, measurements.smallest_bad)
        top = min(top, safe) if safe is not None else top
    steps = [
        allowed(measurements, min(top, last * factor))
        for factor in (KNEE_GROWTH, 2.0, LEAST_KNEE_GROWTH)
    ]
    return [
        timed_request(measurements, size, f"x{size / last:.1f}: does a larger batch still pay?")
        for size in steps
        if last * LEAST_STEP < size <= top
        and not measurements.ruled_out(size)
        and not surely_slower(measurements, size, last)
    ]


def _growth_pays(measurements: Measurements, sizes: dict[int, Trial]) -> bool:
    """Whether the last step up gained enough to go on."""
    worth = _worth(measurements)
    ladder = _ladder(sizes)
    gains = [
        worth(sizes[size]) / max(worth(sizes[smaller]) for smaller in sizes if smaller < size) - 1
        for size in ladder[1:]
    ]
    if not gains:
        return True
    if measurements.goal.kind in SPEED_GOALS:
        return gains[-1] > -CLEAR_LOSS and (len(gains) < 2 or max(gains[-2:]) >= NO_GAIN)
    if gains[-1] < -CLEAR_LOSS:
        # No law of a step lets throughput fall: caches, threads and the loader's workers do, and
        # the next size may have none of it. One more is looked at, where it costs little.
        return len(gains) < 2 or gains[-2] >= -CLEAR_LOSS
    # A gain below the tolerance puts the size before inside it. And with t(B) = a + b B all that
    # is left to gain is 1 / (r - 1) of what the last step up by r gained.
    tolerance = measurements.goal.tolerance
    left = gains[-1] / (ladder[-1] / ladder[-2] - 1)
    return gains[-1] >= tolerance / (1 - tolerance) and left >= tolerance / 2


def _refine(measurements: Measurements) -> TrialRequest | None:
    """A size between the last one outside the tolerance and the first one inside."""
    sizes = measurements.searched
    beside = _beside_the_best(measurements, sizes)
    if beside is not None or measurements.goal.kind in SPEED_GOALS:
        return beside
    if not sizes or len(sizes) - len(_ladder(sizes)) >= MAX_REFINEMENTS:
        return None
    first = min(inside(measurements, sizes))
    least = max(smallest_allowed(measurements), smallest_sound(measurements))
    outside = max((size for size in sizes if size < first), default=None)
    if outside is None:
        wanted = allowed(measurements, max(least, first // 4)) if first > least else first
    elif first <= outside * KNEE_BRACKET or first - outside <= 1:
        return None
    else:
        wanted = _between(measurements, sizes, outside, first)
        if not outside < wanted < first:
            return None
    if wanted in sizes or measurements.ruled_out(wanted):
        return None
    return timed_request(measurements, wanted, "close to the knee")


def _sharpen(measurements: Measurements) -> TrialRequest | None:
    """More rounds of the sizes that the knee follows from."""
    sizes = measurements.searched
    if not sizes:
        return None
    best = best_size(sizes)
    if measurements.goal.kind in SPEED_GOALS:
        return _told_apart(measurements, best) or _beside_own(measurements, best)
    size = knee(measurements)
    assert size is not None
    top = best_throughput(sizes)
    larger = [other for other in sizes if other > best and may_be_best(sizes[other], top)]
    # Which size is the best decides as much as how near to it the knee is.
    rival = max(larger, key=lambda each: throughput(sizes[each]), default=best)
    other = best if size < best else rival
    below = max((each for each in sizes if each < size), default=size)
    if _settled(measurements, size, other, below):
        return None
    precision = ENOUGH * measurements.goal.tolerance
    return more_rounds(measurements, {below, size, other, rival}, size, other, precision)


def _settled(measurements: Measurements, size: int, best: int, below: int) -> bool:
    """Whether further rounds cannot change the knee: it is surely inside, the one below is not."""
    floor = 1 - measurements.goal.tolerance
    known = in_turn(measurements, size, best)
    if known is None or known.low < floor:
        return False
    outside = measurements.searched_speeds.compare(below, best)
    return below == size or (outside is not None and outside.high < floor)


def _told_apart(measurements: Measurements, best: int) -> TrialRequest | None:
    """More rounds of two sizes that may be the fastest, in all the time that is left.

    Pairs, since rounds of many cost the more the larger the others are; the pair first that has
    met the least. A smaller size is taken for as good as the top one where it loses little, so it
    is a rival too.
    """
    sizes = measurements.searched
    ordered = sorted(sizes, key=lambda size: throughput(sizes[size]), reverse=True)
    top, slower = ordered[0], ordered[1:]
    rivals = [size for size in slower if size == best or _may_be_faster(measurements, size, top)]

    def num_rounds(size: int) -> int:
        compared = in_turn(measurements, size, top)
        return 0 if compared is None else compared.num_samples

    requests = (
        more_rounds(measurements, (rival, top), rival, top, NO_GAIN, all_share=1.0)
        for rival in sorted(rivals, key=num_rounds)
    )
    return next((request for request in requests if request is not None), None)


def _may_be_faster(measurements: Measurements, size: int, top: int) -> bool:
    """Whether the noise leaves it open that a size is faster than the top one."""
    compared = in_turn(measurements, size, top)
    if compared is not None:
        return compared.high >= 1
    sizes = measurements.searched
    return may_be_best(sizes[size], throughput(sizes[top]))


def _beside_own(measurements: Measurements, best: int) -> TrialRequest | None:
    """More rounds of the best size and the script's own, while noise hides which is faster."""
    own = measurements.own_size
    if own is None or own == best:
        return None
    known = in_turn(measurements, best, own, SURE)
    if known is None or known.low > 1 or known.high < 1:
        return None
    return more_rounds(measurements, (own, best), best, own, NO_GAIN)


def _told_from_own(measurements: Measurements) -> TrialRequest | None:
    """More rounds of the best size and the script's own before growth goes on, beside others.

    A size that is not surely faster is not recommended, so this is worth more than a still larger
    one. The first steps up come before it: a large gain takes fewer rounds than a small one.
    Threads that spin have two states, and further rounds of two sizes may meet only one of them.
    """
    own, sizes = measurements.own_size, measurements.searched
    sleep = bool(measurements.record.variables)  # the threads do while they wait
    if own not in sizes or not (sleep and only_beside_others(measurements)):
        return None
    best = best_size(sizes)
    known = measurements.searched_speeds.compare(best, own, SURE)
    if max(sizes) < TOLD_FROM * own or known is None or known.low > 1:
        return None
    if known.median * (1 - measurements.goal.tolerance) < 1:
        return None  # so small a gain would not be told in any time there is
    return more_rounds(measurements, (own, best), best, own, NO_GAIN)


def _beside_the_best(measurements: Measurements, sizes: dict[int, Trial]) -> TrialRequest | None:
    """A size between the best and its neighbours, where they are far apart."""
    if len(sizes) - len(_ladder(sizes)) >= MAX_REFINEMENTS or not sizes:
        return None
    worth = _worth(measurements)
    # The smallest of those that are as good: a flat curve is not searched to its far end.
    good = (1 - NO_GAIN) * max(map(worth, sizes.values()))
    best = min(size for size, trial in sizes.items() if worth(trial) >= good)
    smaller = [size for size in sizes if size < best][-1:]
    larger = [size for size in sizes if size > best][:1]
    for other in (*smaller, *larger):
        wanted = allowed(measurements, sqrt(other * best))
        apart = max(other, best) > BESIDE * min(other, best)
        if apart and wanted not in sizes and not measurements.ruled_out(wanted):
            return timed_request(
                measurements, wanted, f"between {min(other, best)} and {max(other, best)}"
            )
    return None


def _between(measurements: Measurements, sizes: dict[int, Trial], outside: int, inside: int) -> int:
    """Where a law puts the knee, if it agrees with the bracket; else the geometric middle."""
    by_law = knee_by_law(sizes, floor_above(measurements, sizes))
    if by_law is not None:
        proposal = allowed(measurements, by_law, up=True)
        if outside * NEAR_RATIO <= proposal <= inside / NEAR_RATIO:
            return proposal
    return allowed(measurements, sqrt(inside * outside))


def _ladder(sizes: dict[int, Trial]) -> list[int]:
    """The sizes of the growth phase: each at least 1.4 times the one before."""
    steps: list[int] = []
    for size in sorted(sizes):
        if not steps or size >= steps[-1] * 1.4:
            steps.append(size)
    return steps


def _worth(measurements: Measurements) -> Callable[[Trial], float]:
    """The quantity by which the goal compares sizes."""
    return _per_joule if measurements.goal.kind == "energy" else throughput


def _per_joule(trial: Trial) -> float:
    """Samples per joule; throughput where no energy was measured."""
    return samples_per_joule(trial) or throughput(trial)


def surely_slower(measurements: Measurements, size: int, last: int) -> bool:
    """Whether the law of the steps, where they follow it, says that a larger size clearly loses."""
    if not measurements.rated_by_tokens:
        return False
    law = foreseen(measurements.record, (size, last), closely=True)
    return law is not None and law[size] < (1 - CLEAR_LOSS) * law[last]


def next_smaller(measurements: Measurements) -> TrialRequest | None:
    """Half of the smallest size, while real tokens per second rise or the law says they may."""
    sizes = measurements.searched
    goal = measurements.goal
    if not sizes or goal.sizes or goal.kind == "energy" or not measurements.rated_by_tokens:
        return None
    smallest = min(sizes)
    tokens = sizes[smallest].tokens
    if tokens is None or (tokens.padding_share or 0.0) < LEAST_PADDING:
        return None
    half = allowed(measurements, smallest // 2)
    least = max(smallest_allowed(measurements), smallest_sound(measurements))
    if not least <= half < smallest or measurements.ruled_out(half):
        return None
    rates = {size: throughput(trial) for size, trial in sizes.items()}
    if rates[smallest] < IN_REACH * max(rates.values()):
        return None
    larger = min((size for size in sizes if size > smallest), default=smallest)
    rises = rates[smallest] > rates[larger] and smallest < (measurements.own_size or smallest)
    law = foreseen(measurements.record, (half, smallest))
    may_rise = law is None or law[half] >= (1 - MISSED_BY) * law[smallest]
    if not (rises or may_rise):
        return None
    return timed_request(measurements, half, "a smaller batch pads less: is it faster?")
