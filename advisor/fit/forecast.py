"""Which sizes to look at on fake tensors, and what fits on a GPU that is not there. Pure.

The peak of a step is the largest of several lines in the batch size, one for each place in the step
where it may lie. So it is convex: between two sizes that were looked at, the straight line between
them is at most too high, and no size is foretold beyond the largest that was looked at. Once three
sizes lie on one line, the next that is looked at is the last: the one that fills the largest GPU.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import pairwise

from ...records import FakeTrial, FittedGpu, Forecast, Variant
from .caching_allocator import fits

SMALLEST = 2
"""A batch norm in training refuses a batch of 1."""
GROWTH = 4
MAX_TRIALS = 12
LEAST_CONTEXT_BYTES = 300 << 20
MOST_CONTEXT_BYTES = 650 << 20
"""What CUDA's context, its libraries and their workspaces take beside torch's allocator."""
PRECISION = 0.005
"""To this share the size is looked for whose segments fit."""
STRAIGHT = 0.005
"""Three sizes lie on one line if the middle one is off it by no larger share of its peak."""
BEYOND = 1.02
"""How much more than the largest GPU has a step should take that is to fill it."""

Requests = Sequence[int]


def next_size(
    trials: Sequence[FakeTrial], own: int, most_bytes: int, num_samples: int | None
) -> int | None:
    """The size to look at next; `None` when the largest GPU is full, or the epoch a batch.

    Args:
        trials: so far, ascending.
        own: the script's size.
        most_bytes: memory of the largest GPU.
        num_samples: of an epoch, if known.
    """
    if not trials:
        return min(own, SMALLEST)
    last = trials[-1]
    if last.batch_size < own:
        return own if last.batch_size >= own // 8 else own // 8
    larger = last.batch_size * GROWTH
    if num_samples is not None:
        larger = min(larger, num_samples)
    if larger <= last.batch_size or last.peak_bytes >= most_bytes or len(trials) >= MAX_TRIALS:
        return None
    if _is_straight(trials):
        filling = max(larger, _filling(trials[-2], last, most_bytes))
        return filling if num_samples is None else min(filling, num_samples)
    return larger


def _is_straight(trials: Sequence[FakeTrial]) -> bool:
    """Whether the last three lie on one line that rises.

    The optimizer's step is left out: while the peak lies in it, a larger batch adds little.
    """
    if len(trials) < 3:
        return False
    first, middle, last = trials[-3:]
    share = (middle.batch_size - first.batch_size) / (last.batch_size - first.batch_size)
    between = first.working_bytes + share * (last.working_bytes - first.working_bytes)
    off = abs(between - middle.working_bytes)
    return last.working_bytes > middle.working_bytes and off <= STRAIGHT * middle.working_bytes


def _filling(small: FakeTrial, large: FakeTrial, most_bytes: int) -> int:
    """The size whose step takes a little more than the largest GPU has, by the line of both."""
    growth = large.working_bytes - small.working_bytes
    sample = growth / (large.batch_size - small.batch_size)
    missing = BEYOND * most_bytes - large.working_bytes
    return large.batch_size + int(missing / sample) + 1


def forecast(
    variant: Variant,
    trials: Sequence[FakeTrial],
    requests: Sequence[Requests],
    gpus: Sequence[tuple[str, int]],
    *,
    expandable: bool = False,
) -> Forecast:
    """What the trials say of these GPUs, by name and memory in bytes.

    Args:
        variant: of the steps.
        trials: ascending, at least two.
        requests: of each trial, for memory; see `caching_allocator.fits`.
        expandable: torch's allocator has expandable segments.
    """
    between = [
        Between(*pair, *asked, expandable=expandable)
        for pair, asked in zip(pairwise(trials), pairwise(requests), strict=True)
    ]
    return Forecast(
        variant=variant,
        trials=tuple(trials),
        fixed_bytes=between[-1].fixed_bytes,
        sample_bytes=between[-1].sample_bytes,
        gpus=tuple(_fitted(name, memory, between) for name, memory in gpus),
    )


def _fitted(name: str, memory: int, between: Sequence[Between]) -> FittedGpu:
    """Two ends of a range: with all that torch's allocator asks for, and with the tensors alone."""
    with_segments, alone = memory - MOST_CONTEXT_BYTES, memory - LEAST_CONTEXT_BYTES
    high = max((part.largest_by_tensors(alone) for part in between), default=0)
    low: int | None = 0
    for part in reversed(between):  # the first that holds a size that fits
        if part.small.batch_size <= high:
            low = part.largest_by_segments(with_segments, high)
            if low is None or low:
                break
    return FittedGpu(
        name=name,
        memory_bytes=memory,
        low=low,
        high=high,
        is_bounded=high < between[-1].large.batch_size,
    )


class Between:
    """The sizes from one trial to the next.

    Args:
        small, large: the trials at its ends.
        fewer, more: their requests.
        expandable: see `forecast`.
    """

    def __init__(
        self,
        small: FakeTrial,
        large: FakeTrial,
        fewer: Requests,
        more: Requests,
        *,
        expandable: bool = False,
    ) -> None:
        self._expandable = expandable
        self.small, self.large = small, large
        self._fewer, self._more = fewer, more
        num = large.batch_size - small.batch_size
        self.sample_bytes = (large.peak_bytes - small.peak_bytes) / num
        self.fixed_bytes = large.peak_bytes - self.sample_bytes * large.batch_size

    def largest_by_tensors(self, capacity: int) -> int:
        """The largest of these sizes whose tensors fit; 0 if none does."""
        if self.large.peak_bytes <= capacity:
            return self.large.batch_size
        if self.small.peak_bytes > capacity:
            return 0
        low, too_large = self.small.batch_size, self.large.batch_size
        while too_large - low > 1:
            middle = (low + too_large) // 2
            if self.peak_bytes(middle) <= capacity:
                low = middle
            else:
                too_large = middle
        return low

    def peak_bytes(self, size: int) -> float:
        """What tensors of a size take at most, one between these sizes or beyond them.

        Each request is a line in the batch size. Where those of both ends do not come in the same
        order, the peak is taken to be one, which between these sizes is at most too high.
        """
        if not self._alike:
            return self.fixed_bytes + self.sample_bytes * size
        sizes: list[int] = []
        live = most = 0
        for request in self._requests(size):
            if request > 0:
                sizes.append(request)
            live += request if request > 0 else -sizes[-request - 1]
            most = max(most, live)
        return most

    def largest_by_segments(self, capacity: int, high: int) -> int | None:
        """The largest of these sizes up to `high` whose segments fit; 0 if none does.

        `None` where the requests at both ends do not come in the same order.
        """
        low, too_large = self.small.batch_size, min(self.large.batch_size, high)
        if too_large < low:
            return 0
        if not self._alike:
            return None
        if not self._fits(low, capacity):
            return 0
        if self._fits(too_large, capacity):
            return too_large
        while too_large - low > max(1, low * PRECISION):
            middle = (low + too_large) // 2
            if self._fits(middle, capacity):
                low = middle
            else:
                too_large = middle
        return low

    # inside ----------------------------------------------------------------------------------

    @cached_property
    def _alike(self) -> bool:
        return (
            len(self._fewer) > 0
            and len(self._fewer) == len(self._more)
            and all(
                (less > 0) == (more > 0) and (less > 0 or less == more)
                for less, more in zip(self._fewer, self._more, strict=True)
            )
        )

    def _fits(self, size: int, capacity: int) -> bool:
        return fits(self._requests(size), capacity, expandable=self._expandable)

    def _requests(self, size: int) -> Iterator[int]:
        """Of a size, by the line through both of each."""
        share = (size - self.small.batch_size) / (self.large.batch_size - self.small.batch_size)
        for less, more in zip(self._fewer, self._more, strict=True):
            yield more if more < 0 else max(1, round(less + (more - less) * share))
