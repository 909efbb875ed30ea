"""The sizes that were tried, one row each: which trials speak for a size, and what they say."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeVar

from ..records import Advice, Choice, Counters, Outcome, Profile, RunRecord, Spread, Trial

_T = TypeVar("_T")

OUTCOMES: dict[Outcome, tuple[str, str]] = {
    "ok": ("ok", "ok"),
    "out_of_memory": ("out of memory", "OOM"),
    "crashed": ("crashed", "crash"),
    "hung": ("hung", "hung"),
    "exception": ("exception", "error"),
    "wrong_size": ("wrong size", "size"),
    "no_step": ("no optimizer step", "no step"),
    "script_ended": ("script ended", "ended"),
    "interrupted": ("interrupted", "stop"),
}
"""Outcomes in words: with room and without."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SizeRow:
    """One size.

    Attributes:
        trial: the trial that speaks for it: confirmed before searched, timed before fit only,
            anything before a failure.
        failed_later: a failure of the same size after that trial.
        profile: of the latest trial of this size that has one.
        counters: of the latest trial of this size that has them.
        watts: mean power of the GPU in the trial's window.
        samples_per_joule: as the advice uses it, else of the trial.
        peak_bytes, step_s, samples_per_s: as the advice uses them, else of the trials.
    """

    trial: Trial
    failed_later: Trial | None
    profile: Profile | None
    counters: Counters | None
    watts: float | None
    samples_per_joule: float | None
    peak_bytes: int | None
    step_s: Spread | None
    samples_per_s: Spread | None
    marks: tuple[str, ...]
    unavailable: dict[str, str]

    @property
    def batch_size(self) -> int:
        """Samples per micro-batch."""
        return self.trial.batch_size

    @property
    def input_pct(self) -> float | None:
        """Share of the step spent waiting for the loader, unprofiled where that is known."""
        wait, step = self.trial.input_wait_s, self.trial.step_s
        if wait is not None and step is not None and step.median > 0:
            return min(100.0, 100 * wait.median / step.median)
        return self.profile.input_wait_pct if self.profile is not None else None

    def profiled(self, field: str) -> float | None:
        """A field of the profile."""
        value: float | None = None if self.profile is None else getattr(self.profile, field)
        return value


def size_rows(record: RunRecord, advice: Advice) -> list[SizeRow]:
    """One row for each size that was tried, smallest first. Tails have no row."""
    by_size: dict[int, list[Trial]] = {}
    for trial in record.trials:
        if trial.purpose != "tail" and not trial.cut_short:
            by_size.setdefault(trial.batch_size, []).append(trial)
    return [_row(by_size[size], advice) for size in sorted(by_size)]


def outcome_words(row: SizeRow, *, short: bool) -> str:
    """How the size went."""
    trial = row.trial
    if not trial.ran:
        if trial.outcome == "ok":
            return f"{trial.arrived_batch_size or 'nothing'} arrived"
        return OUTCOMES[trial.outcome][short]
    words = "ok" if trial.kind != "fit" else "fit" if short else "fit only"
    if row.failed_later is None:
        return words
    return f"{words}, then {OUTCOMES[row.failed_later.outcome][short]}"


def _row(trials: list[Trial], advice: Advice) -> SizeRow:
    best = max(trials, key=_rank)
    choice = next((one for one in _choices(advice) if one.batch_size == best.batch_size), None)
    later = [
        one
        for one in trials
        if best.ran and not one.ran and one.outcome != "interrupted" and one.ordinal > best.ordinal
    ]
    good = [one for one in trials if one.ran]
    counters = _latest(good, lambda one: one.counters)
    return SizeRow(
        trial=best,
        failed_later=later[-1] if later else None,
        profile=_latest(good, lambda one: one.profile),
        counters=counters,
        watts=_watts(counters),
        samples_per_joule=(choice and choice.samples_per_joule)
        or _latest(good, lambda one: one.samples_per_joule),
        peak_bytes=_peak(best, choice, good),
        step_s=(choice and choice.step_s) or best.step_s,
        samples_per_s=(choice and choice.samples_per_s) or best.samples_per_s,
        marks=_marks(best.batch_size, advice),
        unavailable=_reasons(best, good),
    )


def _watts(counters: Counters | None) -> float | None:
    if counters is None:
        return None
    if counters.energy_j is not None and counters.window_s:
        return counters.energy_j / counters.window_s
    return counters.power_w


def _rank(trial: Trial) -> tuple[bool, bool, bool, bool, float, int]:
    """Which trial speaks for a size: as in the advice, the fastest that nothing disturbed."""
    timed = trial.kind == "timed" and trial.step_s is not None
    speed = trial.samples_per_s.median if trial.samples_per_s is not None else 0.0
    confirmed = trial.purpose == "confirm"
    return trial.ran, timed, confirmed, not trial.doubts, speed, trial.ordinal


def _choices(advice: Advice) -> Iterable[Choice]:
    every = advice.sizes or (advice.recommended, advice.fastest, advice.largest, advice.native)
    return (one for one in every if one is not None)


def _peak(best: Trial, choice: Choice | None, good: list[Trial]) -> int | None:
    if choice is not None and choice.peak_bytes is not None:
        return choice.peak_bytes
    memory = best.memory or _latest(good, lambda one: one.memory)
    return memory.peak_bytes if memory is not None else None


def _latest(trials: list[Trial], field: Callable[[Trial], _T | None]) -> _T | None:
    return next((one for one in map(field, reversed(trials)) if one is not None), None)


def _marks(size: int, advice: Advice) -> tuple[str, ...]:
    marks = {
        "recommended": advice.recommended,
        "fastest": advice.fastest,
        "largest": advice.largest,
        "yours": advice.native,
    }
    return tuple(mark for mark, one in marks.items() if one and one.batch_size == size)


def _reasons(best: Trial, good: list[Trial]) -> dict[str, str]:
    reasons: dict[str, str] = {}
    for trial in [*good, best]:
        reasons |= trial.unavailable
        if trial.memory is not None:
            reasons |= trial.memory.unavailable
        if trial.profile is not None:
            reasons |= trial.profile.unavailable
    return reasons
