"""One answer from those of all ranks; of a trial, one from its parts."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from operator import mul
from statistics import median
from typing import Any, TypeVar, cast

import msgspec

from ...records import RankTrial, Spread, TokenLengths, Tokens, Trial, Turns
from ...spread import inverse, mean_of_all
from ..process.messages import Message, PairsResult, Result
from ..process.orders import AnswerT


def of_all_ranks(answers: Sequence[AnswerT]) -> AnswerT:
    """The answer of a job to an order that each rank has answered.

    Args:
        answers: one a rank, in order. The single steps of a trial are those of rank 0.
    """
    answer: Message = answers[0]
    if isinstance(answer, Result):
        trials = [each.trial for each in answers if isinstance(each, Result)]
        answer = msgspec.structs.replace(answer, trial=merged(trials))
    if isinstance(answer, PairsResult):
        ranks = (each.ranks for each in answers if isinstance(each, PairsResult))
        answer = PairsResult(ranks=tuple(itertools.chain.from_iterable(ranks)))
    return cast("AnswerT", answer)


def merged(parts: Sequence[Trial]) -> Trial:
    """Rank 0's trial with the times of the slowest rank and the memory of the fullest.

    A rank whose part did not run makes the whole trial fail.

    Args:
        parts: one a rank, in order.
    """
    first = parts[0]
    if len(parts) == 1:
        return first
    bad = next((number for number, part in enumerate(parts) if not part.ran), None)
    slowest = max(parts, key=lambda part: part.step_s.median if part.step_s else 0.0)
    fullest = max(parts, key=lambda part: part.memory.peak_bytes if part.memory else 0)
    changes: dict[str, Any] = {
        "step_s": slowest.step_s,
        "samples_per_s": slowest.samples_per_s,
        "tokens": _tokens_of_ranks([part.tokens for part in parts], slowest.step_s),
        "input_wait_s": max(
            (part.input_wait_s for part in parts if part.input_wait_s),
            key=lambda wait_s: wait_s.median,
            default=None,
        ),
        "filled_after": _most([part.filled_after for part in parts]),
        "memory": fullest.memory,
        "doubts": tuple(dict.fromkeys(doubt for part in parts for doubt in part.doubts)),
        "ranks": tuple(rank_trial(number, part) for number, part in enumerate(parts)),
    }
    if first.turns is not None:
        changes["turns"] = _slowest_turns([part.turns for part in parts if part.turns is not None])
    if bad is not None:
        failed = parts[bad]
        changes |= {
            "outcome": failed.outcome,
            "detail": f"rank {bad}: {failed.detail}",
            "arrived_batch_size": failed.arrived_batch_size,
        }
    broken = next((part for part in parts if part.tail and part.tail.num_non_finite), None)
    if broken is not None:
        changes["tail"] = broken.tail
    return msgspec.structs.replace(first, **changes)


NumberT = TypeVar("NumberT", int, float)


def _most(values: Sequence[NumberT | None]) -> NumberT | None:
    """The largest of the values of all ranks; `None` unless each has one."""
    known = [value for value in values if value is not None]
    return max(known) if len(known) == len(values) else None


def _slowest_turns(parts: Sequence[Turns]) -> Turns:
    """Each turn took as long as on the slowest rank."""

    rows = zip(*(part.step_s for part in parts), strict=False)  # ranks end at the same round
    return Turns(
        sizes=parts[0].sizes,
        step_s=tuple(tuple(map(_most, zip(*row, strict=True))) for row in rows),
        real=_mean_real(parts),
    )


def _mean_real(parts: Sequence[Turns]) -> tuple[tuple[float | None, ...], ...]:
    """Real tokens of a rank's step on average; empty unless all ranks count them."""
    if not all(part.real for part in parts):
        return ()
    rows = zip(*(part.real for part in parts), strict=False)
    return tuple(tuple(mean_of_all(cells) for cells in zip(*row, strict=True)) for row in rows)


def _tokens_of_ranks(parts: Sequence[Tokens | None], step_s: Spread | None) -> Tokens | None:
    """Mean tokens of a rank, at the pace of the slowest; `None` unless all ranks count."""
    known = [part for part in parts if part is not None]
    if len(known) < len(parts) or len({(part.evidence, part.unit) for part in known}) > 1:
        return None
    positions = mean_of_all([part.positions_per_step for part in known])
    real = mean_of_all([part.real_per_step for part in known])
    reasons: dict[str, str] = {}
    for part in known:
        reasons |= part.unavailable
    share = mean_of_all([part.padding_share for part in known])
    if share is not None:
        # Ranks count as many batches: a rank weighs what its positions weigh.
        weights = [part.positions_per_step or 0.0 for part in known]
        shares = [part.padding_share or 0.0 for part in known]
        total = sum(weights)
        share = sum(map(mul, weights, shares)) / total if total else None
    lengths = [part.lengths for part in known if part.lengths is not None]
    return Tokens(
        num_batches=sum(part.num_batches for part in known),
        evidence=known[0].evidence,
        unit=known[0].unit,
        positions_per_step=positions,
        real_per_step=real,
        padding_share=share,
        trained_per_step=mean_of_all([part.trained_per_step for part in known]),
        steps=known[0].steps,
        lengths=TokenLengths(
            num_sequences=sum(part.num_sequences for part in lengths),
            shortest=min(part.shortest for part in lengths),
            # Near that of all sequences: ranks share them out at random.
            median=median(part.median for part in lengths),
            longest=max(part.longest for part in lengths),
            ordered=lengths[0].ordered,
        )
        if len(lengths) == len(known)
        else None,
        real_per_s=_rate(step_s, real, [part.real_per_s for part in known]),
        positions_per_s=_rate(step_s, positions, [part.positions_per_s for part in known]),
        unavailable=reasons,
    )


def _rate(
    step_s: Spread | None, per_step: float | None, own: Sequence[Spread | None]
) -> Spread | None:
    """The mean of the ranks at the pace of the slowest; as wide as the widest of their own."""
    if step_s is None or per_step is None or step_s.low <= 0:
        return None
    rate = inverse(step_s, per_step)
    half = max((rate.median * spread.relative_half_width for spread in own if spread), default=0.0)
    low, high = max(0.0, rate.median - half), rate.median + half
    return msgspec.structs.replace(rate, low=min(low, rate.low), high=max(high, rate.high))


def rank_trial(rank: int, part: Trial) -> RankTrial:
    """Keeps the few numbers of one rank's trial that the record holds."""
    return RankTrial(
        rank=rank,
        outcome=part.outcome,
        detail=part.detail,
        step_s=part.step_s,
        input_wait_s=part.input_wait_s,
        peak_bytes=part.memory.peak_bytes if part.memory else None,
    )
