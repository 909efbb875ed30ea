"""The mean step of a size over an epoch, whatever the few steps of a trial held.

Two ways. Where batches hold as many positions as samples drawn at random would need, from the
lengths that all trials saw: each batch is as wide as the longest of its samples. Else (grouped,
packed, filled up to a budget) from all batches of that size that were counted; how sure that is,
says the spread of their real tokens around what the law of the steps makes of them, less where most
of an epoch was seen (Cochran, Sampling Techniques, 3rd ed., sections 2.6 and 6.4).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from math import fsum, sqrt
from typing import NamedTuple

from ...records import CountedTokens, RunRecord, TokenLengths, TokenStep, Trial
from .epoch_end import own_samples
from .position_law import MAX_RESIDUAL, PositionLaw, any_law

AT_RANDOM = (0.85, 1.2)
"""Positions that were counted over those of samples drawn at random: so near they are such."""
TELLING_RANGE = 2.0
"""Steps whose positions differ by less do not tell what fewer or more would take."""
MIN_SEEN_STEPS = 8
NUM_LENGTHS = 1000


class UsualStep(NamedTuple):
    """The mean step of a size.

    Attributes:
        real, positions: tokens, and places in the batches, padding included.
        law_s: seconds by the law of the steps.
        unsure: standard error of real tokens per second by the law, a share.
    """

    real: float
    positions: float
    law_s: float
    unsure: float = 0.0


class Usual(NamedTuple):
    """The law of the steps, and the mean step of each size.

    Attributes:
        range: positions that one step in ten exceeds, over those that nine in ten do.
    """

    law: PositionLaw
    steps: dict[int, UsualStep]
    range: float


def foreseen(
    record: RunRecord, sizes: Iterable[int], *, closely: bool = False
) -> dict[int, float] | None:
    """Real tokens per second of sizes by the law; `None` where it does not tell.

    Neither of batches that are not random ones, nor from steps that all hold about as much.

    Args:
        closely: only by a law that steps usually follow.
    """
    usual = usual_steps(record, tuple(sizes))
    if usual is None or usual.range < TELLING_RANGE:
        return None
    if closely and usual.law.residual > MAX_RESIDUAL:
        return None
    if not all(size in usual.steps for size in sizes):
        return None
    return {size: usual.steps[size].real / usual.steps[size].law_s for size in sizes}


def padding_of_an_epoch(record: RunRecord) -> dict[int, float]:
    """Share of the positions of an epoch that hold padding, 0..1, by size as far as it is known."""
    usual = usual_steps(record)
    if usual is None:
        return {}
    return {size: max(0.0, 1 - step.real / step.positions) for size, step in usual.steps.items()}


def usual_steps(record: RunRecord, more: Iterable[int] = ()) -> Usual | None:
    """Finds the mean step of each size that was counted; `None` where too little was.

    Args:
        more: sizes that did not run, known only where samples are drawn at random.
    """
    timed = [trial for trial in record.trials if trial.kind == "timed" and trial.ran]
    seen = [step for trial in timed if trial.tokens for step in trial.tokens.steps]
    counted = _counted(record.trials)
    if len(seen) < MIN_SEEN_STEPS or not counted:
        return None
    law = any_law(seen)
    if law is None:
        return None
    places = sorted(step.positions for step in seen if step.positions)
    widest = places[int(0.9 * len(places))] / places[int(0.1 * len(places))]
    micro = next((trial.micro_batches or 1 for trial in timed), 1)
    drawn = _drawn(record, law, counted, micro, more)
    if drawn is not None:
        return Usual(law, drawn, widest)
    steps: dict[int, UsualStep] = {}
    for size, sums in counted.items():
        num_steps = sums.num_batches / micro
        law_s = law.step_s(sums.positions / num_steps, sums.squares / num_steps)
        if sums.real > 0 and law_s > 0:
            mine = [
                step
                for trial in timed
                if trial.batch_size == size and trial.tokens
                for step in trial.tokens.steps
            ]
            unsure = _unsure(mine or seen, law, sums.real / num_steps / law_s)
            unsure *= sqrt(_unseen(record, size, sums.num_batches) / num_steps)
            positions = sums.positions / num_steps
            steps[size] = UsualStep(sums.real / num_steps, positions, law_s, unsure)
    return Usual(law, steps, widest)


def random_step(lengths: Sequence[int], size: int, micro: int) -> tuple[float, float]:
    """Positions and squares of a step whose samples are drawn at random, on average.

    Every batch is as wide as the longest of `size` draws.

    Args:
        lengths: that stand for all, ascending.
    """
    num = len(lengths)
    chances = [((place + 1) / num) ** size - (place / num) ** size for place in range(num)]
    width = fsum(length * chance for length, chance in zip(lengths, chances, strict=True))
    square = fsum(length**2 * chance for length, chance in zip(lengths, chances, strict=True))
    return micro * size * width, micro * size * square


def pooled(known: Iterable[TokenLengths]) -> list[int]:
    """Lengths that stand for those of several trials, ascending: each weighs what it counted."""
    weighed = sorted(
        (length, each.num_sequences / len(each.ordered))
        for each in known
        for length in each.ordered
    )
    total = fsum(weight for _, weight in weighed)
    lengths: list[int] = []
    below = 0.0
    for length, weight in weighed:
        below += weight
        while len(lengths) < NUM_LENGTHS and (len(lengths) + 0.5) * total < below * NUM_LENGTHS:
            lengths.append(length)
    return lengths


def lengths_of(trials: Iterable[Trial]) -> list[int]:
    """Lengths that stand for those that all trials counted; empty where one does not tell them."""
    tokens = [trial.tokens for trial in trials if trial.tokens is not None]
    known = [each.lengths for each in tokens if each.lengths is not None and each.lengths.ordered]
    return pooled(known) if len(known) == len(tokens) else []


def _drawn(
    record: RunRecord,
    law: PositionLaw,
    counted: dict[int, CountedTokens],
    micro: int,
    more: Iterable[int],
) -> dict[int, UsualStep] | None:
    """The mean steps of samples drawn at random; `None` where the batches are no such."""
    discovery = record.discovery
    if discovery is None or discovery.axis != "samples":
        return None
    lengths = lengths_of(trial for trial in record.trials if trial.kind == "timed" and trial.ran)
    if not lengths:
        return None
    expected = {size: random_step(lengths, size, micro) for size in {*counted, *more}}
    # A collate function may round widths up: all sizes alike.
    share = fsum(sums.positions for sums in counted.values()) / fsum(
        expected[size][0] * sums.num_batches / micro for size, sums in counted.items()
    )
    if not AT_RANDOM[0] <= share <= AT_RANDOM[1]:
        return None
    real = fsum(lengths) / len(lengths)
    return {
        size: UsualStep(
            micro * size * real,
            share * positions,
            law.step_s(share * positions, share**2 * squares),
        )
        for size, (positions, squares) in expected.items()
    }


def _counted(trials: Iterable[Trial]) -> dict[int, CountedTokens]:
    """Sums over all counted batches of each size, as far as trials counted them."""
    parts: defaultdict[int, list[CountedTokens]] = defaultdict(list)
    for trial in trials:
        if not trial.ran:
            continue
        if trial.turns is not None:
            for size, sums in zip(trial.turns.sizes, trial.turns.counted, strict=False):
                parts[size].append(sums)
        elif trial.kind == "timed" and trial.tokens is not None and trial.tokens.counted:
            parts[trial.batch_size].append(trial.tokens.counted)
    return {
        size: CountedTokens(
            num_batches=sum(each.num_batches for each in sums),
            real=sum(each.real for each in sums),
            positions=sum(each.positions for each in sums),
            squares=sum(each.squares for each in sums),
        )
        for size, sums in sorted(parts.items())
        if sum(each.num_batches for each in sums)
    }


def _unsure(steps: Sequence[TokenStep], law: PositionLaw, rate: float) -> float:
    """Standard deviation of a step's real tokens around what its law makes of them, a share."""
    pairs = [
        (step.real, rate * law.step_s(step.positions, step.squares or 0))
        for step in steps
        if step.real is not None and step.positions is not None
    ]
    if len(pairs) < 2:
        return 1.0
    mean = fsum(real for real, _ in pairs) / len(pairs)
    squares = fsum((real - made) ** 2 for real, made in pairs)
    return sqrt(squares / (len(pairs) - 1)) / mean if mean else 1.0


def _unseen(record: RunRecord, size: int, num_batches: int) -> float:
    """The share of an epoch's batches that were not seen, where how many it has is known."""
    discovery = record.discovery
    if discovery is None or discovery.primary.iterable:
        return 1.0
    whole = discovery.primary.num_units
    if discovery.axis == "samples":
        whole = own_samples(discovery)
    return 1.0 if not whole else max(0.0, 1 - num_batches * size / whole)
