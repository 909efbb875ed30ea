"""Arithmetic that the conditions of several cases share; it must be quick."""

from __future__ import annotations

from ...records import Layout, Pipeline
from .pipeline import KERAS

SMALL_BATCH_NORM = 8
"""Below this, batch statistics are noisy (Wu and He 2018, arXiv 1803.08494, figure 1)."""
HARMFUL_WEIGHT = 2.0
"""A sample of the last batch that weighs this many times the others makes the tail harmful."""
HARMFUL_SHARE = 0.05
"""Samples repeated, left out or idle devices from this share on are worth a change."""
HARMFUL_BIAS = 1.05
"""Where ranks have different numbers of samples: those of the smallest weigh so many times more."""

NO, MET, HARM = 0, 1, 2
"""Answers of a condition: not met, met without much harm, harmful."""


def smallest_part(layout: Layout) -> int:
    """Samples of the rank that has the fewest in the last step, those without any left out."""
    return min(filter(None, layout.last), default=0)


def smallest_made(layout: Layout) -> int:
    """Samples of the rank that has the fewest in any step: in a full one some may have fewer."""
    return min((size for sizes in made(layout) for size in sizes if size), default=0)


def shortened(layout: Layout) -> tuple[int, int] | None:
    """Samples in the last step of the rank that has the fewest, and its own in a full one.

    `None` where each rank that has samples there has as many as ever.
    """
    pairs = zip(layout.last, layout.full, strict=False)  # refused samples have no place
    return min(((few, many) for few, many in pairs if 0 < few < many), default=None)


def num_shares(pipeline: Pipeline) -> int:
    """Data workers of one process that each cut batches of their own share of a stream."""
    shares = pipeline.iterable and pipeline.setup == "dataloader"
    return max(1, pipeline.num_workers) if shares else 1


def harm(bad: bool) -> int:
    return HARM if bad else MET


def count(value: int | None) -> int:
    return value or 0


def made(layout: Layout) -> tuple[tuple[int, ...], ...]:
    """The kinds of steps that an epoch really makes: full ones, and the last if it differs."""
    if _has_full(layout):
        return (layout.full, layout.last) if layout.last != layout.full else (layout.full,)
    return (layout.last,) if max(layout.batches) else ()


def after_others(layout: Layout) -> bool:
    """Whether a short last step follows full ones."""
    return layout.is_short and _has_full(layout)


def _has_full(layout: Layout) -> bool:
    """Whether an epoch makes a full step; workers with small shares make several short ones."""
    most = max(layout.batches)
    return most > len(layout.short) and (most > 1 or not layout.is_short)


def short(pipeline: Pipeline, layout: Layout) -> int:
    del pipeline
    return harm(layout.weight > HARMFUL_WEIGHT) if after_others(layout) else NO


def trains(pipeline: Pipeline) -> bool:
    """Whether batch statistics and gradients are made: validation runs in eval()."""
    return pipeline.stage == "train"


def of_torch(pipeline: Pipeline) -> bool:
    """Whether the layers are those of torch."""
    return pipeline.setup not in KERAS
