"""The samples of a script in another order: what was predicted of it, and what was tried."""

from __future__ import annotations

from typing import Literal

from .base import Record, Spread

BatchOrder = Literal["random", "grouped", "token budget", "packed"]
"""How sequences become batches: drawn at random; of like length; as many as fit a budget of
positions, of like length; laid end to end in rows."""


class OrderTrial(Record, frozen=True, kw_only=True):
    """The same samples in batches as the script draws them and in batches of like length, in turn.

    Attributes:
        num_batches: of each order.
        drawn_per_s, grouped_per_s: real tokens per second.
        drawn_padding, grouped_padding: share of the positions that hold padding, 0..1.
        gain: `grouped_per_s` over `drawn_per_s`.
        options: how the frameworks that the script uses do it: order, and what to set.
        reason: why nothing was measured; empty where it was.
    """

    batch_size: int
    num_batches: int = 0
    drawn_per_s: Spread | None = None
    grouped_per_s: Spread | None = None
    drawn_padding: float | None = None
    grouped_padding: float | None = None
    gain: Spread | None = None
    options: tuple[tuple[BatchOrder, str], ...] = ()
    reason: str = ""


class OrderEstimate(Record, frozen=True, kw_only=True):
    """What one order would reach, by the law of the run's own steps; an estimate.

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
