"""Two processes of the script beside each other: by the one comparison of the core.

    round 1:  as it is (warm-up, timed)   remedy (warm-up, timed)
    round 2:  remedy ...                  as it is ...

Each window is a reading of its side in its round, and of its process: what two processes differ by
for themselves makes their ratio less sure, as between two sizes.
The numbers of both are compared as well: losses and gradients of the same batches.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import hypot, isfinite, log, sqrt
from statistics import fmean, stdev
from typing import NamedTuple

import msgspec

from ...advisor.explain import disturbances
from ...advisor.measured.speeds import SURE, Reading, Speeds, Wander, readings_of
from ...records import Spread, Trial
from ...spread import student
from .catalogue import LEAST_GAIN
from .records import NumbersChecked, Outcome
from .settings import Kept, Step

AS_IT_IS, WITH_REMEDY = 1, 2
"""The sides, where the core's comparison has sizes."""
ROUNDS_TO_CLAIM = 5
"""With fewer nothing is said: what one process met in one turn would decide."""
LOOKS = (6, 9)
"""Rounds after which it is asked whether they are enough. Each look more is one more chance to be
wrong."""
MOST_ROUNDS = 12
WORTH_IT = 1.05
"""What surely gains less counts as no gain."""
PRECISE_RATIO = 0.01
"""Half-width of the ratio's interval at which no further round is made."""
MOST_SKIPPED = 0.5
"""A scaler that leaves out more of the steps than this does not train."""
FIRST_SCALES = 16
"""Steps that a scaler may leave out while it finds its scale, halved each time from 2 ** 16."""
OTHER_BATCHES = "no batch was the same in both processes"


class Turn(NamedTuple):
    """One window.

    Attributes:
        side: whose it is.
        process: number of its process.
        round: in which both sides had a turn; `None` where they ran one after the other.
    """

    side: int
    process: int
    round: int | None
    trial: Trial


def speeds(turns: Sequence[Turn], wander: Wander) -> Speeds:
    """The throughput of both sides beside each other."""
    return Speeds([each for turn in turns for each in _readings(turn)], {}, wander)


def _readings(turn: Turn) -> list[Reading]:
    """A window as a reading of its side; one in a round has no error of its own."""
    return [
        reading._replace(
            size=turn.side,
            error=reading.error if turn.round is None else None,
            trial=0 if turn.round is not None else turn.process,
            process=turn.process,
            round=turn.round,
        )
        for reading in readings_of([turn.trial])
    ]


def ratio(turns: Sequence[Turn], wander: Wander) -> Spread | None:
    """Throughput with the remedy over that without; `None` where a side has no reading."""
    return speeds(turns, wander).compare(WITH_REMEDY, AS_IT_IS, SURE)


def rates_of(turns: Sequence[Turn]) -> tuple[tuple[float, float], ...]:
    """Samples per second in each round that both sides had, without the remedy and with it."""
    rounds: dict[int, dict[int, float]] = {}
    for turn in turns:
        rate = turn.trial.samples_per_s
        if turn.round is not None and rate is not None:
            rounds.setdefault(turn.round, {})[turn.side] = rate.median
    return tuple(
        (sides[AS_IT_IS], sides[WITH_REMEDY])
        for sides in rounds.values()
        if {AS_IT_IS, WITH_REMEDY} <= set(sides)
    )


def load_of(turns: Sequence[Turn], wander: Wander) -> str:
    """Beside what both were timed; empty where each had a window that nothing held up."""
    if speeds(turns, wander).calm(WITH_REMEDY, AS_IT_IS):
        return ""
    causes = disturbances.worst([turn.trial for turn in turns])
    return "; ".join(cause.message for cause in causes) or disturbances.UNNAMED


def is_enough(turns: Sequence[Turn], wander: Wander) -> bool:
    """Whether another round would add nothing to what is said."""
    num_rounds = len({turn.round for turn in turns})
    sure = ratio(turns, wander)
    if num_rounds >= MOST_ROUNDS:
        return True
    if num_rounds not in LOOKS or sure is None:
        return False
    return said(turns, wander) in ("gain", "slower") or sure.relative_half_width <= PRECISE_RATIO


def said(turns: Sequence[Turn], wander: Wander) -> Outcome:
    """What the turns say.

    The fit expects windows to differ by some percent, and gives those that are far off little
    weight. Where they differ by tens, as on a machine that others use, few rounds would make it too
    sure: there the ratios of the rounds have to show the same by themselves, by Student's t.
    """
    sure = ratio(turns, wander)
    if sure is None:
        return "cannot tell"
    outcome = outcome_of(sure)
    logs = [log(remedy / usual) for usual, remedy in rates_of(turns)]
    if 0 < len(logs) < ROUNDS_TO_CLAIM:
        return "cannot tell"
    if outcome not in ("gain", "slower") or not logs:
        return outcome
    half = student(len(logs) - 1, SURE) * stdev(logs) / sqrt(len(logs))
    return outcome if abs(fmean(logs)) > half else "cannot tell"


def within(gain: Spread, bound: float) -> Spread:
    """What of a gain is possible that can be so large at most; its interval includes that.

    >>> gain = Spread(median=1.13, low=1.04, high=1.22, num_samples=9, confidence=0.98)
    >>> kept = within(gain, 1.05)
    >>> kept.low, kept.median, kept.high
    (1.04, 1.05, 1.05)
    """
    return msgspec.structs.replace(gain, median=min(gain.median, bound), high=min(gain.high, bound))


def outcome_of(sure: Spread) -> Outcome:
    """What a ratio says, by an interval that speaks for a change.

    >>> from batchadvisor.records import Spread
    >>> at = lambda low, mid, high: Spread(median=mid, low=low, high=high, num_samples=5,
    ...                                    confidence=0.98)
    >>> [outcome_of(at(*each)) for each in ((1.1, 1.2, 1.3), (0.98, 1.0, 1.01), (0.8, 1, 1.3))]
    ['gain', 'no gain', 'cannot tell']
    """
    if sure.low > 1 and sure.median >= LEAST_GAIN:
        return "gain"
    if sure.high < 1:
        return "slower"
    return "no gain" if sure.high < WORTH_IT else "cannot tell"


def checked(usual: Kept, remedy: Kept, *, begins_late: bool, drops: bool) -> NumbersChecked:
    """Losses and gradients of batches that both trained on, in the same order.

    Args:
        begins_late: the remedy was in force only once the loop was known.
        drops: the script drops activations at random.
    """
    pairs = [
        (one, other)
        for one, other in _pairs(usual.steps, remedy.steps)
        if (one.begun and other.begun) or not begins_late
    ]
    losses = [
        (one.loss, other.loss)
        for one, other in pairs
        if one.loss is not None and other.loss is not None and isfinite(one.loss)
    ]
    finite = all(isfinite(other) for _, other in losses) and _stays_finite(usual, remedy)
    note = ""
    if drops and pairs:
        note = "activations are dropped at random, which has a part in it"
    if _skips(remedy):
        finite = False
        note = f"the scaler left out {remedy.num_skipped} of {remedy.num_scaled} steps"
    elif remedy.num_skipped:
        note = f"the scaler left out {remedy.num_skipped} steps while it found its scale"
    return NumbersChecked(
        num_steps=len(pairs),
        loss=max((_apart(*pair) for pair in losses), default=None) if finite else None,
        gradients=max(
            (
                far
                for one, other in pairs
                if (far := gradients_apart(one.gradients, other.gradients)) is not None
            ),
            default=None,
        ),
        finite=finite,
        note=note,
        reason="" if pairs else OTHER_BATCHES,
    )


def _pairs(usual: Sequence[Step], remedy: Sequence[Step]) -> list[tuple[Step, Step]]:
    """Steps of the same place, as long as both got the same batches; anew where a part begins."""
    pairs: list[tuple[Step, Step]] = []
    for begun in (False, True):
        mine = [step for step in usual if step.begun == begun]
        its = [step for step in remedy if step.begun == begun]
        for one, other in zip(mine, its, strict=False):
            if one.digest != other.digest:
                break
            pairs.append((one, other))
    return pairs


def _stays_finite(usual: Kept, remedy: Kept) -> bool:
    """Whether the last loss is finite, unless it is not without the remedy either."""
    last, own = remedy.last_loss, usual.last_loss
    return last is None or isfinite(last) or (own is not None and not isfinite(own))


def _skips(kept: Kept) -> bool:
    usual = kept.num_skipped - FIRST_SCALES
    return usual > 0 and usual > MOST_SKIPPED * max(1, kept.num_scaled - FIRST_SCALES)


def _apart(one: float, other: float) -> float:
    return abs(other - one) / max(abs(one), 1e-12)


def gradients_apart(one: bytes, other: bytes) -> float | None:
    """The length of the difference of two gradients over that of the first, by their elements.

    `None` where one is missing, or not finite: a scaler leaves such a step out.
    """
    mine, its = (memoryview(each).cast("f") for each in (one, other))
    if not mine or len(mine) != len(its):
        return None
    length = hypot(*mine)
    far = hypot(*(b - a for a, b in zip(mine, its, strict=True)))
    return far / length if length > 0 and isfinite(far) else None
