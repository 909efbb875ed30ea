"""The samples of a script in another order: what is predicted of it."""

from __future__ import annotations

from typing import Literal

from .base import Record

BatchOrder = Literal["random", "grouped", "token budget", "packed"]
"""How sequences become batches: drawn at random; of like length; as many as fit a budget of
positions, of like length; laid end to end in rows."""


class OrderEstimate(Record, frozen=True, kw_only=True):
    """Estimated rate of one order, by the law of the run's own steps.

    Attributes:
        real_per_s: real tokens per second.
        padding_share: of its positions, 0..1.
    """

    order: BatchOrder
    real_per_s: float
    padding_share: float


class OrderEstimates(Record, frozen=True, kw_only=True):
    """Every order at one size, the random one first.

    Attributes:
        positions: that a batch holds on average in the random order, which the others keep to.
        misses_by: how far the law is from what was measured of the random order, as a share.
        fixed_s, position_s, square_s: of the law: seconds of a step = fixed + position x positions
            + square x rows x length².
        residual: usual relative distance of a step from the law.
        num_steps: that it was fitted to.
    """

    batch_size: int
    orders: tuple[OrderEstimate, ...]
    positions: float
    misses_by: float
    fixed_s: float
    position_s: float
    square_s: float
    residual: float
    num_steps: int

    @property
    def random(self) -> OrderEstimate:
        """The order that the script has."""
        return self.orders[0]

    def gain(self, order: OrderEstimate) -> float:
        """Its real tokens per second over those of the random order."""
        return order.real_per_s / self.random.real_per_s
