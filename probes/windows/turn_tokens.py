"""Contents of the batches of a turn, where sizes take turns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ...records import CountedTokens
from .timed_step import Step


class Held(NamedTuple):
    """Tokens of a step; `None` where unknown. Squares are 0 where rows hold no sequence each."""

    real: float | None = None
    positions: float | None = None
    squares: float | None = None

    @property
    def work(self) -> float | None:
        """The count by which a step's time grows at most: squares, else positions."""
        return self.squares or self.positions


NOTHING_HELD = Held()


def held_by(step: Step) -> Held:
    """Contents of each of the steps that were timed together."""
    tokens = step.tokens
    if tokens is None:
        return NOTHING_HELD
    real, positions = tokens.real, tokens.positions
    return Held(
        None if real is None else real / step.parts,
        None if positions is None else positions / step.parts,
        None if positions is None else (tokens.squares or 0) / step.parts,
    )


def mean_of(steps: Sequence[Held]) -> Held:
    """Mean of the steps of one turn; unknown as soon as one of them is."""
    return Held(*(_mean(values) for values in zip(*steps, strict=True))) if steps else NOTHING_HELD


def counted_in(steps: Sequence[Step]) -> CountedTokens | None:
    """The sums over all of these; `None` where one is unknown."""
    tokens = [step.tokens for step in steps]
    num_batches = sum(step.micro_batches * step.parts for step in steps)
    real = positions = squares = 0
    for counted in tokens:
        if counted is None or counted.real is None or counted.positions is None:
            return None
        real, positions = real + counted.real, positions + counted.positions
        squares += counted.squares or 0
    return CountedTokens(num_batches=num_batches, real=real, positions=positions, squares=squares)


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known and len(known) == len(values) else None
