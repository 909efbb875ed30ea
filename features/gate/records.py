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
        before, after: medians over the runs and their smallest and largest: seconds, samples per
            second or bytes.
        ratio: after over before, with the interval that holds what changes from process to process
            and from run to run.
        enough_runs: runs of each side that should tell, if these vary as the ones at hand do;
            `None` where the runs tell already, or even 100 would not.
    """

    measure: Measure
    condition: Condition | None = None
    before: Spread
    after: Spread
    ratio: Spread
    outcome: Outcome
    enough_runs: int | None = None


class Gate(Record, frozen=True, kw_only=True):
    """The answer of the gate.

    Attributes:
        verdict: `compared` where no condition was given.
        exit_code: 0, 1 where a condition is surely broken, 3 where nothing can be compared.
        reasons: why nothing can be compared, one line each.
        batch_size: that is compared; `None` where no size is in all runs.
        runs_before, runs_after: how many runs of each side there are.
        rounds: runs of one side that a run of the other followed at once, or the other way round.
        in_turns: whether the runs took turns, so that a slow spell of the machine hit both sides.
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
    in_turns: bool = False
    differs: tuple[tuple[str, str, str], ...] = ()
    results: tuple[Result, ...] = ()
