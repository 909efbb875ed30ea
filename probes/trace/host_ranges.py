"""What the host did, nested: the operator and the line of code that a call came from."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ...records.anatomy import SpanKind
from . import kineto_names as vocabulary
from .columns import Ranges, Trace
from .intervals import Ints
from .nesting import parents_and_ends
from .spans import Events, Kinds


class HostRanges:
    """What the host did around a window, each range with the operator and the line it came from.

    Ranges of one thread are nested in each other by their times. Names are numbers in
    `Trace.all_names`. Of Python's frames those of the model are looked at.
    """

    CODE, ANNOTATION, OPERATOR, CALL = range(4)

    def __init__(self, trace: Trace, start: int, end: int) -> None:
        plain, model = (
            np.array([wanted(name) for name in names], bool)
            for wanted, names in (
                (_is_plain, trace.names),
                (vocabulary.is_of_the_model, trace.python_names),
            )
        )
        parts: list[tuple[Ranges, Ints, int]] = []
        for ranges, kind in (
            (trace.python, self.CODE),
            (trace.annotations, self.ANNOTATION),
            (trace.operators, self.OPERATOR),
            (trace.launches, self.CALL),
        ):
            near = (ranges.end_ns > start) & (ranges.start_ns < end)
            if kind in (self.ANNOTATION, self.CODE) and len(ranges):
                near &= (plain if kind == self.ANNOTATION else model)[ranges.name]
            rows = np.flatnonzero(near)
            parts.append((ranges.select(rows), rows, kind))
        kinds = np.concatenate([np.full(len(part), kind, np.int8) for part, _, kind in parts])
        starts, ends, thread, name = (
            np.concatenate([getattr(part, field) for part, _, _ in parts])
            for field in ("start_ns", "end_ns", "thread", "name")
        )
        name = np.where(kinds == self.CODE, name + len(trace.names), name)
        order = np.lexsort((kinds, -ends, starts, thread))
        self.start_ns, self.end_ns = starts[order], ends[order]
        self.thread, self.name, self.kind = thread[order], name[order], kinds[order]
        self.parents, _ = parents_and_ends(self.start_ns, self.end_ns, self.thread)
        self.operator = self._innermost(self.OPERATOR)
        self.code = self._innermost(self.CODE)
        launch = np.concatenate([rows for _, rows, _ in parts])[order]
        called = self.kind == self.CALL
        self.call_of = np.full(len(trace.launches), -1, np.int64)
        self.call_of[launch[called]] = np.flatnonzero(called)

    def _nearest(self, wanted: npt.NDArray[np.bool_]) -> Ints:
        """The innermost of the wanted ranges around each range, -1 without."""
        found = self.parents.astype(np.int64)
        while True:
            further = (found >= 0) & ~wanted[found]
            if not further.any():
                return found
            found[further] = self.parents[found[further]]

    def _innermost(self, kind: int) -> Ints:
        """The name of the innermost range of a kind around each range, -1 without."""
        around = self._nearest(self.kind == kind)
        return np.where(around >= 0, self.name[around], -1) if len(around) else around

    def depth(self, wanted: npt.NDArray[np.bool_]) -> Ints:
        """How many of the wanted ranges are around each range."""
        around = self._nearest(wanted)
        depth = np.zeros(len(around), np.int64)
        up = around.copy()
        while (inside := up >= 0).any():
            depth[inside] += 1
            up[inside] = around[up[inside]]
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
