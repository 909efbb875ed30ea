"""What a case that fired says about one pipeline, in numbers."""

from __future__ import annotations

from ....records import Evidence, Layout, Pipeline
from ....units import format_count
from .framework_words import FRAMEWORK_WORDS
from .loader_words import LOADER_WORDS
from .phrases import Said, say
from .rank_words import RANK_WORDS

_WORDS = {**LOADER_WORDS, **RANK_WORDS, **FRAMEWORK_WORDS}


def said(name: str, pipeline: Pipeline, layout: Layout) -> Said:
    """The message of a case and the evidence behind it."""
    return _WORDS[name](pipeline, layout)


def refusal(name: str, pipeline: Pipeline) -> Said:
    """The message of a setup that starts no training."""
    ranks, size = pipeline.num_ranks, pipeline.batch_size
    if name == "accelerate.split":
        return say(
            f"split_batches: a global batch of {format_count(size)} is no multiple of "
            f"{ranks} processes; prepare raises ValueError",
            Evidence(metric="batch size modulo processes", value=size % ranks, threshold=0),
        )
    if name == "multiworker.fit":
        return "Keras 3 raises ValueError in fit under MultiWorkerMirroredStrategy", ()
    return (
        f"Keras on torch has no keras.distribution: nothing spreads a step over {ranks} devices",
        (),
    )
