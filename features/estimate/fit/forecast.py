"""Which sizes to look at on fake tensors, and what fits on a GPU that is not there. Pure.

Between two sizes that were looked at, each request for memory is a line in the batch size. Where
the requests cannot be compared, the law of the step speaks (`measured/step_law.py`), which is also
the one that the search for memory goes by. No size is predicted beyond the largest that was looked
at. Once three sizes lie on one line, the next that is looked at is the last: the one that by the
law fills the largest GPU.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from itertools import pairwise, repeat

import msgspec

from ....advisor.gpu_memory.caching_allocator import (
    LEAST_CONTEXT_BYTES,
    MOST_CONTEXT_BYTES,
    CachingAllocator,
    NoMemoryError,
)
from ....advisor.gpu_memory.expandable_segments import ExpandableAllocator
from ....advisor.measured.step_law import GROWTH, SMALLEST, StepLaw, fit_step_law, law_of_trials
from ....records import FakeTrial, LivedBefore, Variant
from ....units import MIB
from ..records import FittedGpu, Forecast
from .first_steps import first_steps

MAX_TRIALS = 12
HOPPER = ("H20", "H100", "H200", "B200")
"""How names of Hopper cards begin. B200, of which nothing is known, is taken for one."""
HOPPER_BYTES = 256 << 20
"""Bytes that CUDA, its libraries and cuBLAS's workspaces take beyond that on a Hopper card. Five
trainings on one H100 (torch 2.11 for CUDA 13.0) took 619 to 795 MiB beside torch's allocator, and 2
x 32 MiB in it for workspaces (bench/results/gpu-probes_nvidia-h100-80gb-hbm3_2026-11-26.json and
tests/data/h100)."""
EAGER_BYTES = 1600 << 20
"""Bytes that the context takes beyond that where CUDA loads every kernel at its start instead of
those that run: with CUDA_MODULE_LOADING=EAGER, and always before CUDA 11.7. By the published sizes
of torch 1.12 with CUDA 11.3 on one kind of GPU (`docs/estimate-against-gpus.md`)."""
WORKSPACE_BYTES = 8_519_680
"""Bytes of cuBLAS's workspace for each thread: torch's default, :4096:2:16:8
(getChosenWorkspaceSize of aten/src/ATen/cuda/CublasHandlePool.cpp; Hopper has more). It is counted
with the context too, but may cut to pieces what a step would use."""
PRECISION = 0.005
"""Relative precision of the search for the largest size whose segments fit."""
STRAIGHT = 0.005
"""Three sizes lie on one line if the middle one is off it by no larger share of its peak."""
BEYOND = 1.02
"""How much more than the largest GPU has a step should take that is to fill it."""

Requests = Sequence[int]
DOUBT = 0.005
"""The fake steps that were compared with real ones, on a CPU, were off by less:
`bench/estimate_accuracy.py`. Chosen once those errors were known."""


def next_size(
    trials: Sequence[FakeTrial],
    own: int,
    most_bytes: int,
    num_samples: int | None,
    *,
    multiple_of: int = 1,
) -> int | None:
    """The size to look at next; `None` when the largest GPU is full, or the epoch a batch.

    Args:
        trials: so far, ascending.
        own: the script's size.
        most_bytes: memory of the largest GPU.
        num_samples: of an epoch, if known.
        multiple_of: every size but the script's own is a multiple of it.
    """
    size = _next_size(trials, own, most_bytes, num_samples)
    if size is None or size == own or multiple_of == 1:
        return size
    last = trials[-1].batch_size if trials else 0
    size = -(-size // multiple_of) * multiple_of
    if last < own < size:
        return own
    if num_samples is not None and size > num_samples and len(trials) > 1:
        size = num_samples // multiple_of * multiple_of
    return size if size > last else None


def _next_size(
    trials: Sequence[FakeTrial], own: int, most_bytes: int, num_samples: int | None
) -> int | None:
    if not trials:
        return min(own, SMALLEST)
    last = trials[-1]
    if last.batch_size < own:
        return own if last.batch_size >= own // 8 else own // 8
    larger = last.batch_size * GROWTH
    if len(trials) == 1:
        return larger  # one size alone tells of no other
    if num_samples is not None:
        larger = min(larger, num_samples)
    if larger <= last.batch_size or last.peak_bytes >= most_bytes or len(trials) >= MAX_TRIALS:
        return None
    line = _line(trials)
    if line is not None:
        filling = max(larger, line.largest_batch(BEYOND * most_bytes) + 1)
        return filling if num_samples is None else min(filling, num_samples)
    return larger


def _line(trials: Sequence[FakeTrial]) -> StepLaw | None:
    """The line of the last three, if they lie on one.

    The optimizer's step is left out: while the peak lies in it, a larger batch adds little.
    """
    if len(trials) < 3:
        return None
    first, middle, last = trials[-3:]
    line = fit_step_law({each.batch_size: each.working_bytes for each in (first, middle, last)})
    if isinstance(line, str):
        return None
    missed = abs(line.peak_bytes(first.batch_size) - first.working_bytes)
    share = (last.batch_size - middle.batch_size) / (last.batch_size - first.batch_size)
    return line if missed * share <= STRAIGHT * middle.working_bytes else None


def forecast(
    variant: Variant,
    trials: Sequence[FakeTrial],
    requests: Sequence[Requests],
    gpus: Sequence[tuple[str, int]],
    *,
    held: Sequence[LivedBefore] = (),
    expandable: bool = False,
    multiple_of: int = 1,
    own: int = 0,
    eager: bool = False,
) -> Forecast:
    """Forecasts from the trials what fits on these GPUs, given by name and memory in bytes.

    Args:
        variant: of the steps.
        trials: ascending, at least two.
        requests: of each trial, for memory; see `fits`.
        held: what lived before each; without it the steps find the allocator empty.
        expandable: torch's allocator has expandable segments.
        multiple_of: sizes that fit are multiples of it, or `own`.
        own: the script's size.
        eager: CUDA loads all kernels at its start; see `EAGER_BYTES`.
    """
    law = law_of_trials(trials)
    known = None if isinstance(law, str) else law
    between = [
        Between(*pair, *asked, law=known, held=lived, expandable=expandable)
        for pair, asked, lived in zip(
            pairwise(trials), pairwise(requests), held[1:] or repeat(LivedBefore()), strict=False
        )
    ]
    line = between[-1] if known is None else known
    # The law's is that of the largest update: rows of sparse gradients, and batches that a script
    # still names there, are fewer in smaller sizes.
    floor = 0.0 if known is None else min(known.floor_bytes, *(t.peak_bytes for t in trials))
    return Forecast(
        variant=variant,
        trials=tuple(trials),
        floor_bytes=floor,
        fixed_bytes=line.fixed_bytes,
        sample_bytes=line.sample_bytes,
        residual=None if known is None else known.residual,
        no_law=law if isinstance(law, str) else "",
        gpus=tuple(
            _to_multiple(_fitted(name, memory, between, eager=eager), multiple_of, own)
            for name, memory in gpus
        ),
    )


def _to_multiple(gpu: FittedGpu, step: int, own: int) -> FittedGpu:
    def down(size: int) -> int:
        multiple = size // step * step
        return max(multiple, own) if own <= size else multiple

    low = None if gpu.low is None else down(gpu.low)
    return msgspec.structs.replace(gpu, low=low, high=down(gpu.high))


def _fitted(name: str, memory: int, between: Sequence[Between], *, eager: bool) -> FittedGpu:
    """Two ends of a range: with all that torch's allocator asks for, and with the tensors alone."""
    left = memory - EAGER_BYTES if eager else memory
    with_segments, alone = left - most_beside(name), left - LEAST_CONTEXT_BYTES
    high = max((part.largest_by_tensors(alone) for part in between), default=0)
    low: int | None = 0
    for part in reversed(between):  # the first that holds a size that fits
        if part.small.batch_size <= high:
            low = part.largest_by_segments(with_segments, high)
            if low:
                break
    return FittedGpu(
        name=name,
        memory_bytes=memory,
        low=low,
        high=high,
        is_bounded=high < between[-1].large.batch_size,
    )


def most_beside(name: str) -> int:
    """Bytes that CUDA and its libraries take at most beside a training's tensors, on this card."""
    return MOST_CONTEXT_BYTES + (HOPPER_BYTES if name.startswith(HOPPER) else 0)


class Between:
    """The sizes from one trial to the next.

    Args:
        small, large: the trials at its ends.
        fewer, more: their requests.
        law: of all trials, if there is one.
        held: what lived before either; empty if the allocator was.
        expandable: see `forecast`.
    """

    def __init__(
        self,
        small: FakeTrial,
        large: FakeTrial,
        fewer: Requests,
        more: Requests,
        *,
        law: StepLaw | None = None,
        held: LivedBefore = LivedBefore(),  # noqa: B008  it cannot change
        expandable: bool = False,
    ) -> None:
        self._law = law
        self._held = held
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
        """Bytes of tensors at the peak of a size between these sizes or beyond them, at most.

        Each request is a line in the batch size. Where those of both ends do not come in the same
        order, the law of all trials speaks; without one the straight line of both ends, which is at
        most too high.
        """
        if not self._alike and self._law is not None:
            return max(self.small.peak_bytes, self._law.peak_bytes(size))
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

        Where the requests at both ends do not come in the same order, only the larger end is known.
        `None` where it is too large.
        """
        low, too_large = self.small.batch_size, min(self.large.batch_size, high)
        if too_large < low:
            return 0
        if not self._alike:
            known = too_large == self.large.batch_size and bool(self._more)
            return too_large if known and self._serves(self._more, 1.0, capacity) else None
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
        return self._serves(self._requests(size), size / self.large.batch_size, capacity)

    def _serves(self, requests: Iterable[int], share: float, capacity: int) -> bool:
        if self._held.num:
            requests = first_steps(requests, self._held.scaled(share), WORKSPACE_BYTES)
        return fits(requests, capacity, expandable=self._expandable)

    def _requests(self, size: int) -> Iterator[int]:
        """Yields the requests of a step of this size, by the lines through two known sizes."""
        share = (size - self.small.batch_size) / (self.large.batch_size - self.small.batch_size)
        for less, more in zip(self._fewer, self._more, strict=True):
            yield more if more < 0 else max(1, round(less + (more - less) * share))


def fits(requests: Iterable[int], capacity: int, *, expandable: bool = False) -> bool:
    """Whether all of them can be served.

    Args:
        requests: see `CachingAllocator.serve`.
        capacity: bytes that the device has for them.
        expandable: with expandable segments.
    """
    try:
        _allocator(capacity, expandable=expandable).serve(requests)
    except NoMemoryError:
        return False
    return True


def reserved_bytes(requests: Iterable[int], *, expandable: bool = False) -> int:
    """Bytes that torch reserves for these requests where there is room for all.

    Args:
        requests, expandable: as in `fits`.
    """
    allocator = _allocator(sys.maxsize, expandable=expandable)
    allocator.serve(requests)
    return allocator.reserved_bytes


def _allocator(capacity: int, *, expandable: bool) -> CachingAllocator:
    return ExpandableAllocator(capacity) if expandable else CachingAllocator(capacity)


def assumptions(
    names: Iterable[str] = (), *, eager: bool = False, grouped: bool = False
) -> tuple[str, ...]:
    """Words what a forecast takes for granted.

    Args:
        names: of the GPUs.
        eager: CUDA loads all kernels at its start; see `forecast`.
        grouped: cuDNN tries all kernels of grouped convolutions in half precision.
    """
    more = EAGER_BYTES // MIB if eager else 0
    ends = [num_bytes // MIB + more for num_bytes in (LEAST_CONTEXT_BYTES, MOST_CONTEXT_BYTES)]
    largest = max((most_beside(name) for name in names), default=MOST_CONTEXT_BYTES) // MIB + more
    hopper = f" (on Hopper {largest}, by what an H100 took)" if largest > ends[1] else ""
    why = ", since it loads all kernels at its start" if eager else ""
    spared = "other convolutions" if grouped else "convolutions"
    convolutions = f"{spared} take no workspaces"
    if grouped:
        convolutions = f"grouped convolutions take 4 or 8 times their input, {convolutions}"
    taken = f"{ends[0]} to {ends[1]} MiB{hopper}"
    return (
        f"CUDA and its libraries take {taken} beside torch's allocator{why}",
        "torch's allocator rounds, splits and keeps memory as a replica of it does",
        f"{convolutions}, and sums over leading dimensions those of an A100",
    )


def peak_range(peak_bytes: float) -> tuple[int, int]:
    """The least and the most that the tensors of a real step should take at once.

    Args:
        peak_bytes: as fake steps say.
    """
    return int(peak_bytes * (1 - DOUBT)), int(peak_bytes * (1 + DOUBT)) + 1
