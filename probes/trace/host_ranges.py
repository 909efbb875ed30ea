"""What the host did, nested: the operator and the line of code that a call came from."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ...records.anatomy import SpanKind
from . import kineto_names as vocabulary
from .columns import Ranges, Trace
from .intervals import Ints
from .nesting import Nesting
from .spans import Events, Kinds

PYTHON, ANNOTATION, OPERATOR, CALL = range(4)
"""Kinds of what the host does, the outermost first where two begin and end together."""


def host_ranges(trace: Trace) -> tuple[Ranges, Kinds]:
    """All that the host was in, and its kind; names are numbers in `Trace.all_names`."""
    joined = trace.python.renamed(len(trace.names))
    kinds = [np.full(len(joined), PYTHON, np.int8)]
    for kind, ranges in (
        (ANNOTATION, trace.annotations),
        (OPERATOR, trace.operators),
        (CALL, trace.launches),
    ):
        joined = joined.join(ranges)
        kinds.append(np.full(len(ranges), kind, np.int8))
    return joined, np.concatenate(kinds)


class HostRanges:
    """What the host did around a window, each range with the operator and the line it came from.

    Of Python's frames those of the model are looked at.
    """

    def __init__(self, trace: Trace, start: int, end: int) -> None:
        ranges, kinds = host_ranges(trace)
        wanted = np.array(
            [
                *map(_is_plain, trace.names),
                *map(vocabulary.is_of_the_model, trace.python_names),
                False,
            ],
            bool,
        )
        named = (kinds == PYTHON) | (kinds == ANNOTATION)
        near = (ranges.end_ns > start) & (ranges.start_ns < end)
        rows = np.flatnonzero(near & (~named | wanted[ranges.name]))
        self.nesting = Nesting(ranges.select(rows))
        order = self.nesting.order
        ranges, self.kind = self.nesting.ranges.select(order), kinds[rows][order]
        self.start_ns, self.end_ns = ranges.start_ns, ranges.end_ns
        self.thread, self.name = ranges.thread, ranges.name
        self.operator = self._name_around(OPERATOR)
        self.code = self._name_around(PYTHON)
        first_call = len(kinds) - len(trace.launches)
        called = self.kind == CALL
        self.call_of = np.full(len(trace.launches), -1, np.int64)
        self.call_of[rows[order][called] - first_call] = np.flatnonzero(called)

    def _name_around(self, kind: int) -> Ints:
        """The name of the innermost range of a kind around each range, -1 without."""
        named = np.where(self.kind == kind, self.name, -1)
        return self.nesting.nearest(named, self.nesting.parents)

    def depth(self, wanted: npt.NDArray[np.bool_]) -> Ints:
        """How many of the wanted ranges are around each range."""
        own = np.where(wanted, np.arange(len(wanted)), -1)
        up = around = self.nesting.nearest(own, self.nesting.parents)
        depth = np.zeros(len(around), np.int64)
        while (inside := up >= 0).any():
            depth[inside] += 1
            up = np.where(inside, around[up], -1)
        return depth

    def events(self, rows: npt.NDArray[Any], kind: SpanKind | Kinds) -> Events:
        """Ranges as events; of one kind, or of a kind each."""
        return Events.of(
            self.start_ns[rows],
            self.end_ns[rows],
            kind,
            name=self.name[rows],
            operator=self.operator[rows],
            code=self.code[rows],
        )

    def of_calls(self, launches: Ints) -> tuple[Ints, Ints]:
        """The operator and the line of code that calls came from, by rows of `Trace.launches`."""
        known = launches >= 0
        row = np.where(known, self.call_of[launches], -1) if len(self.call_of) else launches
        return tuple(  # type: ignore[return-value]
            np.where(row >= 0, column[row], -1) if len(column) else np.full(len(row), -1)
            for column in (self.operator, self.code)
        )


def _is_plain(name: str) -> bool:
    return not (vocabulary.is_step(name) or vocabulary.is_input_wait(name))
