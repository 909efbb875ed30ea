"""The next trial: one size, or several in turn."""

from __future__ import annotations

from typing import Literal

from .base import Record
from .tokens import LengthChoice

TrialKind = Literal["fit", "timed", "turns"]

Purpose = Literal["search", "confirm", "tail", "lengths"]

USUAL_TIMED_STEPS = 6
"""The fewest steps that a trial times where they are not long against the budget."""


class TurnsPlan(Record, frozen=True, kw_only=True):
    """How sizes take turns, so that what the machine does meanwhile hits all of them alike.

    Attributes:
        sizes: ascending; each has one turn a round.
        num_steps: optimizer steps of a turn that count, by size.
        num_warmup_steps: steps before them that do not.
        num_rounds: of all sizes.
        most_s: seconds of counted steps after which a turn ends, whatever its steps were to be;
            `None` for no end. Beside others a step may suddenly take fifty times as long.
    """

    sizes: tuple[int, ...]
    num_steps: tuple[int, ...]
    num_warmup_steps: int = 1
    num_rounds: int = 1
    most_s: float | None = None


class TrialRequest(Record, frozen=True, kw_only=True):
    """One size to run, or several in turn.

    Attributes:
        batch_size: samples per micro-batch of the primary loader; the largest of several.
        kind: `fit` (two optimizer steps, memory only), `timed`, or `turns`.
        purpose: why it runs; only `confirm` trials decide the recommendation; those for `lengths`
            and the `tail` say nothing of their size.
        fresh_process: start a new worker for it.
        profile: whether a profiled window follows the timed one.
        min_warmup_steps, min_timed_steps: of a timed trial; fewer where steps are long against
            the budget.
        turns: the sizes and their turns, where the kind says so.
        length: the samples that the trial begins with, if any are to be chosen.
        beside: sizes whose processes stay, where each size has one of its own: they are to take
            turns with this one.
        reason: one line for people.
    """

    batch_size: int
    kind: TrialKind
    purpose: Purpose = "search"
    fresh_process: bool = False
    profile: bool = False
    min_warmup_steps: int = 3
    min_timed_steps: int = USUAL_TIMED_STEPS
    turns: TurnsPlan | None = None
    length: LengthChoice = ""
    beside: tuple[int, ...] = ()
    reason: str = ""
