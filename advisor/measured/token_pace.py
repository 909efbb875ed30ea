"""Real tokens per second, which the sizes of a job with lengths are compared by.

Where samples are drawn at random, a sample has as many tokens at every size in the long run: real
tokens per second are samples per second times one factor, the mean over all trials, and how many
tokens the few steps of one trial had is luck that decides nothing. Where the script groups samples
by length, packs them, or fills a budget of tokens, the batches of a few steps are not those of an
epoch, and samples per second are luck: there a trial counts by its real tokens per second. Both are
put on the same scale, that of samples with the mean number of tokens.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from ...records import LoaderInfo, RunRecord, Spread, Tokens, Trial, Turns
from ...spread import inverse, scaled

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
        total += num * tokens.real_per_step / _samples_a_step(trial)
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
    if draws_at_random(discovery.primary):
        return False
    return tokens_a_sample(record.trials) is not None


def at_token_pace(record: RunRecord) -> RunRecord:
    """The record with each trial's rate by its real tokens, where these decide.

    Samples per second and seconds per step are then those of samples with the mean number of
    tokens. Comparisons in turn that counted no tokens say nothing.
    """
    if not rated_by_tokens(record):
        return record
    mean = tokens_a_sample(record.trials)
    assert mean is not None
    trials = tuple(_by_tokens(trial, mean) for trial in record.trials)
    return msgspec.structs.replace(record, trials=trials)


def real_rate(samples_per_s: Spread | None, mean: float | None) -> Spread | None:
    """Real tokens per second at a rate of samples with so many tokens on average."""
    return None if samples_per_s is None or mean is None else scaled(samples_per_s, mean)


def _by_tokens(trial: Trial, mean: float) -> Trial:
    if trial.turns is not None:
        return msgspec.structs.replace(trial, turns=_turns(trial, trial.turns, mean))
    rate = _rate(trial.tokens)
    if rate is None or trial.samples_per_s is None:
        return trial
    samples_per_s = scaled(rate, 1 / mean)
    if samples_per_s.low <= 0:  # so few steps that nothing bounds it
        samples_per_s = msgspec.structs.replace(samples_per_s, low=samples_per_s.median / 100)
    step_s = inverse(samples_per_s, _samples_a_step(trial))
    return msgspec.structs.replace(trial, samples_per_s=samples_per_s, step_s=step_s)


def _rate(tokens: Tokens | None) -> Spread | None:
    if tokens is None or tokens.real_per_s is None or tokens.real_per_s.median <= 0:
        return None
    return tokens.real_per_s


def _turns(trial: Trial, turns: Turns, mean: float) -> Turns:
    """Seconds of each turn as if its steps had held the mean number of tokens.

    Of turns that counted none there are no times; that these sizes met stays known, or they would
    be asked to meet again, to no end.
    """
    if not turns.real:
        nothing = tuple((None,) * len(turns.sizes) for _ in turns.step_s)
        return Turns(sizes=turns.sizes, step_s=nothing)
    micro = trial.micro_batches or 1
    usual = [size * micro * mean for size in turns.sizes]

    def factor(real: float | None, column: int) -> float | None:
        return usual[column] / real if real else None

    rows = []
    lost = []
    for number, row in enumerate(turns.step_s):
        factors = [factor(real, column) for column, real in enumerate(turns.real[number])]
        rows.append(
            tuple(
                None if seconds is None or by is None else seconds * by
                for seconds, by in zip(row, factors, strict=True)
            )
        )
        if turns.lost_s:
            pairs = zip(turns.lost_s[number], factors, strict=True)
            lost.append(tuple(seconds * (by or 1.0) for seconds, by in pairs))
    mean_real = tuple(
        tuple(None if real is None else each for real, each in zip(row, usual, strict=True))
        for row in turns.real
    )
    return Turns(sizes=turns.sizes, step_s=tuple(rows), lost_s=tuple(lost), real=mean_real)


def _samples_a_step(trial: Trial) -> float:
    """Samples that reached the loop in a step."""
    return trial.batch_size * (trial.micro_batches or 1) * trial.arrived_share
