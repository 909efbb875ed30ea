"""The tokens of a trial, from those of its timed steps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from ...records import Spread, Tokens, TokenStep
from ...spread import mean_of_all, rate_of_sums
from .timed_step import Step

if TYPE_CHECKING:
    from ..loader.token_meter import TokenMeter


MAX_TOKEN_STEPS = 48
"""Steps of one trial that are kept with what their batches held, at most."""


class StepMeans(NamedTuple):
    """Tokens of one optimizer step; `None` where unknown."""

    positions: float | None
    real: float | None
    trained: float | None
    squares: float | None = None
    rows: float | None = None
    step_s: float = 0.0


def means_of(step: Step) -> StepMeans | None:
    """Tokens of each of the equal steps that were timed together."""
    if step.tokens is None:
        return None
    positions, real, trained, squares, rows = (
        None if total is None else total / step.parts for total in step.tokens
    )
    return StepMeans(positions, real, trained, squares, rows, step.elapsed_s or 0.0)


def tokens_of(
    meter: TokenMeter, steps: Sequence[StepMeans | None], step_s: Spread | None
) -> Tokens | None:
    """The record of a trial's tokens; `None` where its batches are no sequences.

    Args:
        meter: counted the batches.
        steps: those that the step time is made of.
        step_s: seconds of a step.
    """
    evidence = meter.evidence
    if evidence is None or step_s is None or not steps:
        return None
    known = [step for step in steps if step is not None]
    if len(known) < len(steps):
        return None
    real = None if meter.why_no_real else mean_of_all([step.real for step in known])
    positions = mean_of_all([step.positions for step in known])
    return Tokens(
        num_batches=meter.num_batches,
        evidence=evidence,
        unit=meter.unit,
        positions_per_step=positions,
        real_per_step=real,
        padding_share=meter.padding_share,
        squares_per_step=mean_of_all([step.squares for step in known]),
        trained_per_step=mean_of_all([step.trained for step in known]),
        lengths=meter.lengths,
        steps=_shown(known),
        real_per_s=None if real is None else _rate([step.real for step in known], known),
        positions_per_s=_rate([step.positions for step in known], known),
        counted=meter.counted,
        unavailable=meter.reasons(real=real is not None, positions=positions is not None),
    )


def _shown(steps: Sequence[StepMeans]) -> tuple[TokenStep, ...]:
    """Some of the steps with their times, evenly spaced where they are many."""
    stride = -(-len(steps) // MAX_TOKEN_STEPS) or 1
    return tuple(
        TokenStep(
            step_s=step.step_s,
            positions=_whole(step.positions),
            real=_whole(step.real),
            rows=_whole(step.rows),
            squares=_whole(step.squares),
        )
        for step in steps[::stride]
        if step.step_s > 0
    )


def _whole(value: float | None) -> int | None:
    return None if value is None else round(value)


def _rate(counts: Sequence[float | None], steps: Sequence[StepMeans]) -> Spread | None:
    """Counts per second over all of the steps; the interval has what they differ by in both."""
    known = [count for count in counts if count is not None]
    if len(known) < len(counts):
        return None
    return rate_of_sums(known, [step.step_s for step in steps])
