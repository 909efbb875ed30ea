"""Observations of a callback in a training that went its own way: nothing here was steered."""

from __future__ import annotations

from typing import Literal

from .base import Record
from .creep import MemoryCreep
from .tails import Pipeline


class SizeSeen(Record, frozen=True, kw_only=True):
    """How often a micro-batch of one size arrived."""

    batch_size: int
    num_micro_batches: int


class NoiseScale(Record, frozen=True, kw_only=True):
    """The simple gradient noise scale tr(Sigma)/|G|^2, in samples; an estimate.

    B_simple of McCandlish et al. 2018, arXiv 1812.06162: the batch size at which a step of twice
    the samples saves about half of the steps that are left to save.

    Attributes:
        source: the small gradients come from accumulation micro-batches or from the ranks.
        small_batch, large_batch: samples behind a small gradient and behind their mean.
        num_measured: optimizer steps that were measured.
        first_step, last_step: the steps between which they lie; the scale grows in a training.
        low, high: the interval; `high` is `None` where only a lower bound is supported.
        confidence: nominal coverage, 0..1; of [low, high], or of the bound alone.
    """

    source: Literal["accumulation", "ranks"]
    small_batch: int
    large_batch: int
    num_measured: int
    first_step: int
    last_step: int
    low: float | None = None
    high: float | None = None
    confidence: float = 0.95
    unavailable: dict[str, str] = {}


class StretchesSeen(Record, frozen=True, kw_only=True):
    """Stretches of steps that timed a size on a device which runs behind the host.

    Attributes:
        batch_size: of the size.
        num_stretches: how many; the spread of the step time is theirs.
        num_steps: a stretch goes over, their median.
        clock: by which they were timed.
    """

    batch_size: int
    num_stretches: int
    num_steps: int
    clock: str


class Observed(Record, frozen=True, kw_only=True):
    """The whole loop as it ran under a callback, on one rank.

    Attributes:
        framework, framework_version: whose loop it was; `plain` for a loop of the user's own.
        rank, world_size: of the process that wrote the record.
        num_steps: optimizer steps; `num_skipped_steps` were refused by a gradient scaler.
        num_samples: samples in all micro-batches; `None` where a batch does not tell its size.
        num_tokens: `None` where the loop did not say.
        sizes: micro-batches by their size, the most frequent first; at most 64 sizes are told
            apart, and `unavailable` counts the rest.
        stretches: by size; empty where the host's clock timed each step, as on a CPU.
        profiled_steps: first step of each profiled window.
        held_bytes: memory that stays allocated between two steps (weights, optimizer, gradients).
        noise_scale: opt-in, see the struct.
        creep: memory that rose with every block of steps; `None` where it did not.
        pipeline: how samples become batches, over all ranks.
    """

    framework: str
    framework_version: str | None = None
    rank: int = 0
    world_size: int = 1
    num_steps: int = 0
    num_micro_batches: int = 0
    num_samples: int | None = None
    num_skipped_steps: int = 0
    num_tokens: int | None = None
    num_epochs: int = 0
    sizes: tuple[SizeSeen, ...] = ()
    stretches: tuple[StretchesSeen, ...] = ()
    profiled_steps: tuple[int, ...] = ()
    held_bytes: int | None = None
    noise_scale: NoiseScale | None = None
    creep: MemoryCreep | None = None
    pipeline: Pipeline | None = None
    unavailable: dict[str, str] = {}
