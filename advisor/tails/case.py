"""A case of an epoch's end: when it is met, what is said of it, and what removes it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

from ...records import Case, Evidence, Layout, Pipeline, Severity
from ...units import format_count
from .conditions import NO

RemedyName = Literal[
    "drop",
    "fill",
    "size",
    "smaller",
    "multiple",
    "ranks",
    "scale",
    "weigh",
    "shards",
    "sync",
    "keras.sync",
    "norm",
    "frozen",
    "groups",
    "spatial",
    "sum",
    "global mean",
    "sampler",
    "pad",
    "join",
    "together",
    "join.divisor",
    "join.throw",
    "even",
    "gathered loss",
    "ddp",
    "keras.other",
    "cut",
    "accumulation",
    "validate",
    "keep",
    "dynamic",
]
"""The remedies of remedies.py, which looks for sizes without a case and so cannot stand before
the cases."""
Said = tuple[str, tuple[Evidence, ...]]
"""The message of a case and the evidence behind it."""


def _always(pipeline: Pipeline) -> bool:
    del pipeline
    return True


def _never(pipeline: Pipeline, layout: Layout) -> int:
    del pipeline, layout
    return NO


def _nothing(pipeline: Pipeline, layout: Layout) -> Said:
    del pipeline, layout
    return "", ()


class TailCase(NamedTuple):
    """One thing that a short or uneven last batch does.

    How it is known stands in proofs.json, by its id: tests that provoke it write that.

    Attributes:
        number, id, severity, title, what, advice, remedies: see `records.Case`; the remedies in the
            order of the page.
        applies: asked once for a pipeline, whatever the batch size.
        fires: NO, SAID or HARM for one size; arithmetic only, for sweeps over thousands of sizes.
        says: the message where it fired, in numbers.
        refuses: the message of a setup that starts no training; such a case never fires.
        example: a pipeline that meets the case; its page shows the fixes that help there.
    """

    number: int
    id: str
    severity: Severity
    title: str
    what: str
    advice: str
    remedies: tuple[RemedyName, ...]
    example: Pipeline
    applies: Callable[[Pipeline], bool] = _always
    fires: Callable[[Pipeline, Layout], int] = _never
    says: Callable[[Pipeline, Layout], Said] = _nothing
    refuses: Callable[[Pipeline], Said] | None = None

    @property
    def page(self) -> Case:
        """The page that `batchadvisor tails --explain` shows of it."""
        return Case(
            id=self.id,
            number=self.number,
            severity=self.severity,
            title=self.title,
            what=self.what,
            advice=self.advice,
            fixes=self.remedies,
        )


def example(num_samples: int, batch_size: int, **fields: Any) -> Pipeline:
    """A pipeline."""
    return Pipeline(num_samples=num_samples, batch_size=batch_size, **fields)


def example_of_ranks(num_samples: int, batch_size: int, setup: Any, **fields: Any) -> Pipeline:
    """A pipeline of four ranks."""
    return example(num_samples, batch_size, setup=setup, num_ranks=4, **fields)


def say(message: str, *evidence: Evidence) -> Said:
    """A message with its evidence."""
    return message, evidence


def counted(count: int) -> str:
    """A number of samples."""
    return "1 sample" if count == 1 else f"{format_count(count)} samples"


def of_all(count: int, pipeline: Pipeline) -> str:
    """Words how many of all samples, "80 of 50,000 samples"."""
    return f"{format_count(count)} of {format_count(pipeline.num_samples or 0)} samples"
