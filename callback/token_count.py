"""Tokens of the batches of a watched training, counted now and then so that it costs little.

A batch is counted on its way to the loop. How long that took says when the next one is: of the time
of the training it takes `MAX_SHARE` at most. What is said rests on the batches that were counted.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..records import Spread, Tokens
from ..spread import scaled

if TYPE_CHECKING:
    from ..probes.loader.token_meter import TokenMeter

MAX_SHARE = 0.002
"""Share of the training time that counting may take: the five-hundredth that docs/tokens.md
promises."""
FIRST_BATCHES = 4
"""Batches that are counted first, whatever that costs."""
MAX_COUNTED_SIZES = 16
NEVER = 1 << 62


class TokenCount:
    """Counts the tokens in batches of one training, by their size.

    Attributes:
        due_ns: from then on a batch is to be counted.
        num_seen: batches that were counted, or tried.
    """

    def __init__(self, clock: Callable[[], int] = time.perf_counter_ns) -> None:
        self._clock = clock
        self._meters: dict[int, TokenMeter] = {}
        self._sums: dict[int, list[int]] = {}
        self.due_ns = 0
        self.num_seen = 0

    def note(self, batch: Any, num_samples: int | None, now_ns: int | None = None) -> None:
        """A batch goes to the loop.

        Args:
            now_ns: the time, where it is known.
        """
        if "torch" not in sys.modules:  # tokens are found in its tensors; its import takes seconds
            return
        start = self._clock() if now_ns is None else now_ns
        if start < self.due_ns or not num_samples:
            return
        if num_samples not in self._meters and len(self._meters) >= MAX_COUNTED_SIZES:
            return
        start = self._clock()
        self._count(batch, num_samples)
        end = self._clock()
        self.num_seen += 1
        if self.num_seen >= FIRST_BATCHES:
            told = any(meter.evidence is not None for meter in self._meters.values())
            self.due_ns = end + int((end - start) / MAX_SHARE) if told else NEVER

    def of_size(self, size: int, micro_batches: int, samples_per_s: Spread | None) -> Tokens | None:
        """The record of one size; `None` where its batches show no tokens.

        Args:
            micro_batches: of a step.
            samples_per_s: of this size.
        """
        meter = self._meters.get(size)
        if meter is None or meter.evidence is None:
            return None
        positions = self._mean(size, 0, meter.why_no_positions)
        real = self._mean(size, 1, meter.why_no_real)
        return Tokens(
            num_batches=meter.num_batches,
            evidence=meter.evidence,
            unit=meter.unit,
            positions_per_step=None if positions is None else positions * micro_batches,
            real_per_step=None if real is None else real * micro_batches,
            padding_share=meter.padding_share,
            lengths=meter.lengths,
            real_per_s=_rate(samples_per_s, real, size),
            positions_per_s=_rate(samples_per_s, positions, size),
            unavailable=meter.reasons(real=real is not None, positions=positions is not None),
        )

    # inside ----------------------------------------------------------------------------------

    def _count(self, batch: Any, num_samples: int) -> None:
        if num_samples not in self._meters:
            from ..probes.loader.token_meter import TokenMeter

            self._meters[num_samples] = TokenMeter()
            self._sums[num_samples] = [0, 0]
        meter = self._meters[num_samples]
        meter.begin_step()
        meter.note(batch)
        counted = meter.end_step()
        if counted is not None:
            sums = self._sums[num_samples]
            sums[0] += counted.positions or 0
            sums[1] += counted.real or 0

    def _mean(self, size: int, which: int, why_not: str) -> float | None:
        """Mean of one of the sums per batch of a size; `None` where unknown."""
        num = self._meters[size].num_batches
        return None if why_not or not num else self._sums[size][which] / num


def _rate(samples_per_s: Spread | None, per_batch: float | None, size: int) -> Spread | None:
    """Tokens per second at the pace of the samples, each with the mean number of tokens."""
    if samples_per_s is None or per_batch is None:
        return None
    return scaled(samples_per_s, per_batch / size)
