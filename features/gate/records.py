"""What the gate takes and says, as data; its JSON is public: `features/gate/schema.json`."""

from __future__ import annotations

from typing import Literal

from ...records import Record, Spread

GATE_VERSION = "1.0"
"""Major.minor of the JSON: a minor version only adds fields."""

Measure = Literal["step_time", "throughput", "peak_memory"]

Outcome = Literal[
    "exceeded",  # the whole interval lies beyond the limit
    "kept",  # the whole interval lies within it
    "cannot tell",  # the limit lies in the interval
    "more",  # no limit was given, and the interval lies above no change
    "less",
]

Verdict = Literal["fails", "passes", "cannot tell", "compared", "cannot be compared"]

ROUNDS_NEEDED = 7
"""Fewer tell nothing at 98 %: all of six differ in one direction by chance in 1 of 32 cases, all of
seven in 1 of 64."""


class Condition(Record, frozen=True, kw_only=True):
    """A change that makes the gate fail.

    Attributes:
        text: as it was typed, without blanks.
        above: it fails where the change is larger than the limit, else where it is smaller.
        limit: the change, a share: 0.05 is five percent more.
    """

    text: str
    measure: Measure
    above: bool
    limit: float


class Result(Record, frozen=True, kw_only=True):
    """One measure before and after, and what that says of a condition.

    Attributes:
        condition: `None` where the measure is only compared.
        before, after: medians over the runs with their smallest and largest: seconds, samples per
            second or bytes.
        ratio: after over before, with the interval that holds what changes from process to process
            and from run to run; `num_samples` are rounds, of the peak runs.
        has_interval: whether there are rounds enough for it; else the ends of `ratio` say nothing.
        enough_rounds: that should tell, if further ones vary as those at hand do; `None` where
            they tell already, where even a hundred should not, and of the peak, which no round
            makes clearer.
    """

    measure: Measure
    condition: Condition | None = None
    before: Spread
    after: Spread
    ratio: Spread
    has_interval: bool
    outcome: Outcome
    enough_rounds: int | None = None


class Gate(Record, frozen=True, kw_only=True):
    """The answer of the gate.

    Attributes:
        verdict: `compared` where no condition was given.
        exit_code: 0, 1 where a condition is surely broken, 3 where nothing can be compared.
        reasons: why nothing can be compared, one line each.
        batch_size: that is compared; `None` where no size is in all runs.
        runs_before, runs_after: how many runs of each side there are.
        rounds: pairs of runs, one of each side, that were taken one right after the other; times
            are compared within them, and other runs do not count for times.
        differs: what else is not the same: label, before, after.
        device: of all runs.
    """

    kind: Literal["gate"] = "gate"
    gate_version: str = GATE_VERSION
    verdict: Verdict
    exit_code: int
    reasons: tuple[str, ...] = ()
    batch_size: int | None = None
    device: str = ""
    runs_before: int
    runs_after: int
    rounds: int = 0
    differs: tuple[tuple[str, str, str], ...] = ()
    results: tuple[Result, ...] = ()
