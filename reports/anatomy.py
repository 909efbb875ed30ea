"""The anatomy of steps, as data of a page: pictures of lanes, the tables beside them, what is said.

`reports/builder/anatomy.py` makes it from the records; `reports/html/anatomy.py` draws it.
"""

from __future__ import annotations

from ..records import Record
from ..records.anatomy import Label, Lane, StepAnatomy
from .report import Table


class StepPicture(Record, frozen=True, kw_only=True):
    """One step; `notes` say what is merged and what is left out."""

    title: str
    step: StepAnatomy
    notes: tuple[str, ...] = ()


class TracePicture(Record, frozen=True, kw_only=True):
    """The steps of one trace.

    Attributes:
        name: of the trace; empty where the page is of one only.
        labels: what the spans of the pictures say.
        notes: what to know of this trace and of the choice of steps.
        help: how such pictures are read.
        unavailable: why there is none; empty if there is.
    """

    name: str = ""
    labels: tuple[Label, ...] = ()
    pictures: tuple[StepPicture, ...] = ()
    tables: tuple[Table, ...] = ()
    notes: tuple[str, ...] = ()
    help: tuple[str, ...] = ()
    unavailable: str = ""


class RankStrip(Record, frozen=True, kw_only=True):
    """One GPU of one rank.

    Attributes:
        begins_ns: where its step begins in the picture.
        straggler: whether the others wait for it.
    """

    name: str
    lane: Lane
    labels: tuple[Label, ...]
    begins_ns: int
    straggler: bool = False


class RanksPicture(Record, frozen=True, kw_only=True):
    """One step of several ranks, under each other."""

    title: str
    window_ns: int
    strips: tuple[RankStrip, ...]
    notes: tuple[str, ...] = ()


class Anatomies(Record, frozen=True, kw_only=True):
    """All pictures of a page."""

    traces: tuple[TracePicture, ...]
    ranks: RanksPicture | None = None
    notes: tuple[str, ...] = ()
