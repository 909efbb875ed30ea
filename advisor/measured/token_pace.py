"""Real tokens per second, which the sizes of a job with lengths are compared by.

How long a step takes, and how many tokens it trains on, follows from the lengths of its samples;
the few steps of a trial are not those of an epoch. So each step is compared with what the law of
all steps (position_law.py) says of its batches, and the trial's pace is that of the mean step of an
epoch at its size (usual_steps.py): a regression estimate (Cochran, Sampling Techniques, 3rd ed.,
chapter 7). Records of older versions lack what that takes. There samples per second decide where
samples are drawn at random, as a sample has as many tokens at every size in the long run, and real
tokens per second where the script groups samples by length, packs them, or fills a budget.

All rates are put on the same scale, that of samples with the mean number of tokens.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import sqrt
from statistics import NormalDist

import msgspec

from ...records import LoaderInfo, RunRecord, Spread, Tokens, Trial, Turns
from ...spread import CONFIDENCE, rate_of_sums, scaled
from .trials import at_rate, samples_a_step
from .usual_steps import Usual, usual_steps

NORMAL = NormalDist()
RANDOM = ("RandomSampler", "DistributedSampler", "SubsetRandomSampler", "SeedableRandomSampler")
"""Samplers that draw every sample alike."""


def tokens_a_sample(trials: Iterable[Trial]) -> float | None:
    """Real tokens of a sample, mean over all trials; `None` where a trial does not tell them."""
    total = weight = 0.0
    for trial in trials:
        if trial.kind != "timed" or not trial.ran or trial.samples_per_s is None:
            continue
        tokens = trial.tokens
        if tokens is None or tokens.real_per_step is None or tokens.inferred:
            return None
        num = tokens.num_batches * trial.batch_size * trial.arrived_share
        total += num * tokens.real_per_step / samples_a_step(trial)
        weight += num
    return total / weight if weight and total else None


def draws_at_random(loader: LoaderInfo) -> bool:
    """Whether batches are samples drawn at random, and as many as the size says."""
    return loader.sampler in RANDOM and loader.steered == "exact" and not loader.iterable


def rated_by_tokens(record: RunRecord) -> bool:
    """Whether real tokens per second decide in place of samples per second."""
    discovery = record.discovery
    if discovery is None or record.observed is not None or not discovery.loaders:
        return False
    if tokens_a_sample(record.trials) is None:
        return False
    return not draws_at_random(discovery.primary) or _usual(record) is not None


def _usual(record: RunRecord) -> Usual | None:
    """The mean steps of an epoch, where every timed size has one; `None` for older records."""
    usual = usual_steps(record)
    timed = {trial.batch_size for trial in record.trials if trial.kind == "timed" and trial.ran}
    return usual if usual is not None and timed <= usual.steps.keys() else None


def at_token_pace(record: RunRecord) -> RunRecord:
    """The record with each trial's rate by its real tokens, where these decide.

    Samples per second and seconds per step are then those of samples with the mean number of
    tokens. Comparisons in turn that counted no tokens say nothing.
    """
    if not rated_by_tokens(record):
        return record
    mean = tokens_a_sample(record.trials)
    assert mean is not None
    usual = _usual(record)
    trials = tuple(
        _by_tokens(trial, mean) if usual is None else _by_law(trial, mean, usual)
        for trial in record.trials
    )
    return msgspec.structs.replace(record, trials=trials)


def real_rate(samples_per_s: Spread | None, mean: float | None) -> Spread | None:
    """Real tokens per second at a rate of samples with so many tokens on average."""
    return None if samples_per_s is None or mean is None else scaled(samples_per_s, mean)


def _by_law(trial: Trial, mean: float, usual: Usual) -> Trial:
    """The trial at the pace of the mean steps of an epoch."""
    if trial.turns is not None:
        return msgspec.structs.replace(
            trial, turns=_turns_by_law(trial.turns, usual, mean, trial.micro_batches or 1)
        )
    tokens, step = trial.tokens, usual.steps.get(trial.batch_size)
    if tokens is None or step is None or trial.samples_per_s is None:
        return trial
    speed = _speed(tokens, usual)
    if speed is None:
        return trial
    off = NORMAL.inv_cdf((1 + CONFIDENCE) / 2) * step.unsure
    samples_per_s = scaled(speed, step.real / mean / step.law_s)
    if trial.contended:  # what its steps took without the waiting is as open as it was
        reach = trial.samples_per_s.high / trial.samples_per_s.median
        high = max(samples_per_s.high, samples_per_s.median * reach)
        samples_per_s = msgspec.structs.replace(samples_per_s, high=high)
    samples_per_s = msgspec.structs.replace(
        samples_per_s,
        low=max(samples_per_s.low / (1 + off), samples_per_s.median / 100),
        high=samples_per_s.high * (1 + off),
    )
    return at_rate(trial, samples_per_s)


def _speed(tokens: Tokens, usual: Usual) -> Spread | None:
    """Seconds by the law that a trial's steps made in a second; some of them tell how surely."""
    pairs = [
        (usual.law.step_s(each.positions, each.squares or 0), each.step_s)
        for each in tokens.steps
        if each.positions and each.step_s > 0
    ]
    speed = rate_of_sums([law_s for law_s, _ in pairs], [seconds for _, seconds in pairs])
    rate = tokens.real_per_s
    if speed is None or speed.median <= 0 or rate is None or not tokens.real_per_step:
        return None
    whole_s = usual.law.step_s(tokens.positions_per_step or 0.0, tokens.squares_per_step or 0.0)
    middle = rate.median / tokens.real_per_step * whole_s
    num = max(rate.num_samples, len(pairs))
    half = middle * speed.relative_half_width * sqrt(len(pairs) / num)
    return msgspec.structs.replace(
        speed, median=middle, low=middle - half, high=middle + half, num_samples=num
    )


def _turns_by_law(turns: Turns, usual: Usual, mean: float, micro: int) -> Turns:
    """Seconds of each turn as if its steps had been the mean steps of an epoch.

    `real` then holds what a step counts for, in samples with the mean number of tokens.
    """
    known = [usual.steps.get(size) for size in turns.sizes]
    if turns.unsure:
        return turns  # at this pace already
    if not turns.positions or None in known:
        return _without_times(turns)

    def amount(row: int, column: int) -> float | None:
        positions, squares = turns.positions[row][column], turns.squares[row][column]
        step = known[column]
        if not positions or step is None:
            return None
        return step.real / mean * usual.law.step_s(positions, squares or 0) / step.law_s

    columns = range(len(turns.sizes))
    amounts = tuple(
        tuple(amount(row, column) for column in columns) for row in range(len(turns.step_s))
    )
    return msgspec.structs.replace(
        _rescaled(turns, [size * micro for size in turns.sizes], amounts),
        real=amounts,
        unsure=tuple(step.unsure for step in known if step is not None),
    )


def _rescaled(
    turns: Turns, usual: Sequence[float], held: Sequence[Sequence[float | None]]
) -> Turns:
    """Seconds of each turn as if its steps had held what is usual at their size.

    Args:
        usual: of a step, by size.
        held: of a step, by round and size, in the same unit; no time where it is not known.
    """
    rows, lost = [], []
    for number, row in enumerate(turns.step_s):
        factors = [
            whole / each if each else None for whole, each in zip(usual, held[number], strict=True)
        ]
        rows.append(
            tuple(
                None if seconds is None or by is None else seconds * by
                for seconds, by in zip(row, factors, strict=True)
            )
        )
        if turns.lost_s:
            pairs = zip(turns.lost_s[number], factors, strict=True)
            lost.append(tuple(seconds * (by or 1.0) for seconds, by in pairs))
    return msgspec.structs.replace(turns, step_s=tuple(rows), lost_s=tuple(lost))


def _by_tokens(trial: Trial, mean: float) -> Trial:
    if trial.turns is not None:
        return msgspec.structs.replace(trial, turns=_turns(trial, trial.turns, mean))
    rate = _rate(trial.tokens)
    if rate is None or trial.samples_per_s is None:
        return trial
    samples_per_s = scaled(rate, 1 / mean)
    if samples_per_s.low <= 0:  # so few steps that nothing bounds it
        samples_per_s = msgspec.structs.replace(samples_per_s, low=samples_per_s.median / 100)
    return at_rate(trial, samples_per_s)


def _rate(tokens: Tokens | None) -> Spread | None:
    if tokens is None or tokens.real_per_s is None or tokens.real_per_s.median <= 0:
        return None
    return tokens.real_per_s


def _turns(trial: Trial, turns: Turns, mean: float) -> Turns:
    """Seconds of each turn as if its steps had held the mean number of tokens."""
    if not turns.real:
        return _without_times(turns)
    micro = trial.micro_batches or 1
    usual = [size * micro * mean for size in turns.sizes]
    mean_real = tuple(
        tuple(None if real is None else each for real, each in zip(row, usual, strict=True))
        for row in turns.real
    )
    return msgspec.structs.replace(_rescaled(turns, usual, turns.real), real=mean_real)


def _without_times(turns: Turns) -> Turns:
    """Turns that tell no time; that these sizes met stays known, or they would be asked to meet
    again, to no end."""
    nothing = tuple((None,) * len(turns.sizes) for _ in turns.step_s)
    return Turns(sizes=turns.sizes, step_s=nothing)
