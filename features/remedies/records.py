"""What came of the remedies that were tried: `remedies.json` in the folder of a run."""

from __future__ import annotations

from typing import Literal

from ...records import Record, SourceLine, Spread

VERSION = "1.0"

Outcome = Literal[
    "gain",  # surely faster
    "no gain",  # as fast, or faster by less than matters
    "slower",  # surely slower
    "cannot tell",  # the noise is larger than the difference
    "wrong numbers",  # its losses are not finite, or no step counts
    "in use",  # the script does it already
    "not tried",  # it cannot help by its bound, or does not apply, or the time was over
    "failed",  # the script, torch or the device refused it
]


class Ceiling(Record, frozen=True, kw_only=True):
    """What the loader gives where nobody trains meanwhile.

    Attributes:
        samples_per_s: after its first batch; `None` where it could not be read.
        starts_s: seconds from asking for an iterator to its first batch, its workers started anew.
        persistent_s: the same with workers that persist.
        repeats: each worker gives all samples of the stream: an epoch has them as often.
    """

    num_workers: int
    samples_per_s: float | None = None
    starts_s: tuple[float, ...] = ()
    persistent_s: tuple[float, ...] = ()
    reason: str = ""
    repeats: bool = False


class NumbersChecked(Record, frozen=True, kw_only=True):
    """How the numbers of the same batches differ with a remedy.

    Attributes:
        num_steps: batches that both trained on.
        loss: largest relative difference of the loss, 0..1; `None` where none was seen.
        gradients: the same of gradients: the length of the difference over their own length.
        finite: whether all losses were finite that are finite without the remedy.
        note: what else has a part in the difference.
        reason: why there is nothing to compare; empty otherwise.
    """

    num_steps: int = 0
    loss: float | None = None
    gradients: float | None = None
    finite: bool = True
    note: str = ""
    reason: str = ""


class TriedRemedy(Record, frozen=True, kw_only=True):
    """One remedy, or two together.

    Attributes:
        name: as `--try` takes it; of two joined by `+`.
        change: in words.
        batch_size: with it, where it made room for a larger one; `None` where both have the same.
        gain: its throughput over that of the script as it is; `None` where it was not timed.
        bound: the factor on the throughput that it can reach at most; `None` where nothing bounds
            it.
        why_bound: what bounds it.
        rates: samples/s in each round, without the remedy and with it; empty where they ran one
            after the other.
        load: beside what it was compared, where one side was never timed without others on its
            cores; empty otherwise.
        peak_bytes, usual_bytes: peak memory with it and without.
        place: the line to change.
        code: what to write there.
        diff: of all its lines, for `git apply`; empty where there is none.
        no_diff: why there is none; empty where it was not asked for.
        reason: why it was not tried, or failed, or what was seen beside the times.
    """

    name: str
    change: str
    outcome: Outcome
    batch_size: int | None = None
    gain: Spread | None = None
    bound: float | None = None
    why_bound: str = ""
    rates: tuple[tuple[float, float], ...] = ()
    load: str = ""
    peak_bytes: int | None = None
    usual_bytes: int | None = None
    numbers: NumbersChecked = NumbersChecked(reason="it was not timed")
    place: SourceLine | None = None
    line: str = ""
    code: tuple[str, ...] = ()
    diff: str = ""
    no_diff: str = ""
    reason: str = ""


class Remedies(Record, frozen=True, kw_only=True):
    """All that was tried in one go.

    Attributes:
        asked: the names, `all` among them.
        batch_size: at which all of it was measured.
        samples_per_s: of the script as it is, in these comparisons.
        ceilings: what the loader gives alone.
        together: the best that do not exclude each other, in fresh processes; `None` where fewer
            than two gained.
        budget_s, spent_s: seconds.
        state: `running` in the file of a command that was killed.
        reason: why it ended before its end.
    """

    version: str = VERSION
    asked: tuple[str, ...]
    batch_size: int
    device: str
    samples_per_s: float | None = None
    tried: tuple[TriedRemedy, ...] = ()
    ceilings: tuple[Ceiling, ...] = ()
    together: TriedRemedy | None = None
    budget_s: float
    spent_s: float = 0.0
    state: Literal["running", "finished", "interrupted", "failed"] = "running"
    reason: str = ""
