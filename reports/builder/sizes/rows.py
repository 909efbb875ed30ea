"""The sizes that were tried, one row each: which trials speak for a size, and what they say."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

from ....records import Advice, Choice, RunRecord, Spread, Trial
from ....spread import scaled
from ...sizes import SizeRow

_T = TypeVar("_T")
AS_GOOD = 0.01
"""Sizes this close in speed are as good; of these the advice calls the smallest the fastest."""
FAR_ABOVE = 1.15
"""A size that reads so many times as fast and was not compared leaves open which is the fastest."""


def size_rows(record: RunRecord, advice: Advice) -> list[SizeRow]:
    """One row for each size that was tried, smallest first. Tails have no row."""
    by_size: dict[int, list[Trial]] = {}
    for trial in record.trials:
        if trial.says_of_size and not trial.cut_short:
            by_size.setdefault(trial.batch_size, []).append(trial)
    return [_row(by_size[size], advice) for size in sorted(by_size)]


def _row(trials: list[Trial], advice: Advice) -> SizeRow:
    best = max(trials, key=_rank)
    choice = next(
        (choice for choice in _choices(advice) if choice.batch_size == best.batch_size), None
    )
    later = [
        trial
        for trial in trials
        if best.ran
        and not trial.ran
        and trial.outcome != "interrupted"
        and trial.ordinal > best.ordinal
    ]
    good = [trial for trial in trials if trial.ran]
    counters = _latest(good, lambda trial: trial.counters)
    samples_per_s = (choice and choice.samples_per_s) or best.samples_per_s
    counted = best if best.tokens is not None else _latest(good, _with_tokens)
    tokens = None if counted is None else counted.tokens
    return SizeRow(
        trial=best,
        failed_later=later[-1] if later else None,
        profile=_latest(good, lambda trial: trial.profile),
        counters=counters,
        watts=None if counters is None else counters.mean_w,
        samples_per_joule=(choice and choice.samples_per_joule)
        or _latest(good, lambda trial: trial.samples_per_joule),
        peak_bytes=_peak(best, choice, good),
        step_s=(choice and choice.step_s) or best.step_s,
        samples_per_s=samples_per_s,
        marks=_marks(best.batch_size, advice),
        unavailable=_reasons(best, good, choice),
        predicted_bytes=trials[0].predicted_bytes,  # later ones know its own peak
        tokens=tokens,
        padding_share=_padding(good, choice),
        padding_of_an_epoch=choice is not None and choice.epoch_padding is not None,
        real_tokens_per_s=(choice and choice.real_tokens_per_s)
        or _at_pace(samples_per_s, counted, tokens.real_per_s if tokens else None),
        positions_per_s=_at_pace(
            samples_per_s, counted, tokens.positions_per_s if tokens else None
        ),
        flops=choice.flops if choice is not None else None,
    )


def _padding(trials: list[Trial], choice: Choice | None) -> float | None:
    """The share of an epoch, else of all that was counted: a short trial alone has few batches."""
    if choice is not None and choice.epoch_padding is not None:
        return choice.epoch_padding
    padded = positions = 0.0
    for trial in trials:
        tokens = trial.tokens
        if tokens is None or tokens.padding_share is None or not tokens.positions_per_step:
            continue
        counted = tokens.num_batches * tokens.positions_per_step / (trial.micro_batches or 1)
        padded += tokens.padding_share * counted
        positions += counted
    return padded / positions if positions else None


def _with_tokens(trial: Trial) -> Trial | None:
    return trial if trial.tokens is not None else None


def _at_pace(
    samples_per_s: Spread | None, counted: Trial | None, rate: Spread | None
) -> Spread | None:
    """A rate of tokens of one trial at the pace that is shown for its size."""
    if samples_per_s is None or counted is None or rate is None:
        return None
    its_own = counted.samples_per_s
    if its_own is None or its_own.median <= 0:
        return rate
    return scaled(samples_per_s, rate.median / its_own.median)


def _rank(trial: Trial) -> tuple[bool, bool, bool, bool, float, int]:
    """Which trial speaks for a size: as in the advice, the fastest that nothing disturbed."""
    timed = trial.kind == "timed" and trial.step_s is not None
    speed = trial.samples_per_s.median if trial.samples_per_s is not None else 0.0
    confirmed = trial.purpose == "confirm"
    return trial.ran, timed, confirmed, not trial.doubtful, speed, trial.ordinal


def _choices(advice: Advice) -> Iterable[Choice]:
    every = advice.sizes or (advice.recommended, advice.fastest, advice.largest, advice.native)
    return (choice for choice in every if choice is not None)


def _peak(best: Trial, choice: Choice | None, good: list[Trial]) -> int | None:
    if choice is not None and choice.peak_bytes is not None:
        return choice.peak_bytes
    memory = best.memory or _latest(good, lambda trial: trial.memory)
    return memory.peak_bytes if memory is not None else None


def _latest(trials: list[Trial], field: Callable[[Trial], _T | None]) -> _T | None:
    return next((value for value in map(field, reversed(trials)) if value is not None), None)


def _marks(size: int, advice: Advice) -> tuple[str, ...]:
    is_open = advice.fastest_is_open or advice.standing == "too noisy"
    marks = {
        "recommended": advice.recommended,
        "fastest": None if is_open else _fastest(advice),
        "largest": advice.largest,
        "yours": advice.native,
    }
    return tuple(mark for mark, choice in marks.items() if choice and choice.batch_size == size)


def _fastest(advice: Advice) -> Choice | None:
    """The size of the highest rate among those that are as good as the fastest.

    The fastest is the smallest of sizes that noise cannot tell apart; where another one reads
    higher beside it, the word stands there. Not so where the recommended size is the fastest: the
    reason calls it that, and the other took no turns with it.
    """
    fastest = advice.fastest
    if fastest is None or fastest.samples_per_s is None:
        return fastest
    least = fastest.samples_per_s.median
    same = [
        (choice.samples_per_s.median, choice)
        for choice in advice.sizes
        if choice.samples_per_s is not None
        and least <= choice.samples_per_s.median <= (1 + AS_GOOD) * least
    ]
    top = max(
        (choice.samples_per_s.median for choice in advice.sizes if choice.samples_per_s),
        default=least,
    )
    if top > FAR_ABOVE * least:
        return None  # it took no turns with the others: nothing here is called the fastest
    if advice.recommended is not None and advice.recommended.batch_size == fastest.batch_size:
        return fastest
    return max(same, key=lambda each: each[0], default=(least, fastest))[1]


def _reasons(best: Trial, good: list[Trial], choice: Choice | None) -> dict[str, str]:
    reasons: dict[str, str] = {} if choice is None else dict(choice.unavailable)
    for trial in [*good, best]:
        reasons |= trial.unavailable
        if trial.memory is not None:
            reasons |= trial.memory.unavailable
        if trial.profile is not None:
            reasons |= trial.profile.unavailable
    return reasons
