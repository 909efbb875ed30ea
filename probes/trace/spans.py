"""Events as spans of a picture: those that are too short to be seen are drawn together."""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias, get_args

import numpy as np
import numpy.typing as npt

from ...records.anatomy import Label, SpanKind, Spans
from .intervals import Ints

WIDEST = 4
"""Events that are drawn as one lie in this many times the resolution."""
KINDS: tuple[SpanKind, ...] = get_args(SpanKind)
NUMBER: dict[SpanKind, int] = {kind: number for number, kind in enumerate(KINDS)}
Kinds: TypeAlias = npt.NDArray[np.int8]


class Labels:
    """Labels, each once."""

    def __init__(self, names: tuple[str, ...]) -> None:
        self.known: dict[Label, int] = {}
        self._names = names

    def number(self, kind: int, *names: int) -> int:
        """The number of a label.

        Args:
            kind: position in `KINDS`.
            names: of the event, its operator, its code and what it waits for, as `Trace.names`
                counts them; -1 is none.
        """
        name, operator, code, waits_for = map(self._name, names)
        label = Label(
            kind=KINDS[kind], name=name, operator=operator, code=code, waits_for=waits_for
        )
        return self.known.setdefault(label, len(self.known))

    def _name(self, number: int) -> str:
        return self._names[number] if number >= 0 else ""


class Events(NamedTuple):
    """Events or pieces before anything is merged, sorted by start; what is not known is -1.

    Attributes:
        kind: position in `KINDS`.
        name, operator, code, waits_for: numbers in `Trace.all_names`.
    """

    start_ns: Ints
    end_ns: Ints
    kind: Kinds
    name: Ints
    operator: Ints
    code: Ints
    waits_for: Ints

    @classmethod
    def of(
        cls,
        start: Ints,
        end: Ints,
        kind: SpanKind | Kinds,
        *,
        name: npt.NDArray[Any] | int = -1,
        operator: npt.NDArray[Any] | int = -1,
        code: npt.NDArray[Any] | int = -1,
        waits_for: npt.NDArray[Any] | int = -1,
    ) -> Events:
        """Sorts them; what is the same for all may be given once."""
        order = np.argsort(start, kind="stable")
        numbers = NUMBER[kind] if isinstance(kind, str) else kind
        columns = [
            np.broadcast_to(np.asarray(column), start.shape)[order]
            for column in (numbers, name, operator, code, waits_for)
        ]
        return cls(start[order], end[order], *columns)

    def select(self, rows: npt.NDArray[Any]) -> Events:
        return Events(*(column[rows] for column in self))

    def cut(self, start: int, end: int) -> Events:
        """What lies in a window, cut to it."""
        inside = self.select((self.end_ns > start) & (self.start_ns < end))
        return inside._replace(
            start_ns=np.maximum(inside.start_ns, start), end_ns=np.minimum(inside.end_ns, end)
        )

    def groups(self, resolution: int) -> Ints:
        """Where each group of events that are drawn as one begins.

        Events and gaps that are shorter than the resolution cannot be seen: such events share a
        group, as far as no larger gap lies between them, and no more than a few parts of the
        picture. Longer events are alone.
        """
        small = self.end_ns - self.start_ns < resolution
        part = self.start_ns // (WIDEST * resolution)
        near = self.start_ns[1:] - self.end_ns[:-1] < resolution
        alone = np.ones(len(small), bool)
        alone[1:] = ~(small[1:] & small[:-1] & near & (part[1:] == part[:-1]))
        return np.flatnonzero(alone)

    def spans(self, resolution: int, begin: int, labels: Labels) -> Spans:
        """Merged, with times from `begin` on."""
        if not len(self.start_ns):
            return Spans()
        first = self.groups(resolution) if resolution else np.arange(len(self.start_ns))
        count = np.diff(first, append=len(self.start_ns))
        group = np.repeat(np.arange(len(first)), count)
        by_length = np.lexsort((self.end_ns - self.start_ns, group))
        longest = by_length[first + count - 1]
        numbers = zip(*(column[longest].tolist() for column in self[2:]), strict=True)
        return Spans(
            start_ns=tuple((self.start_ns[first] - begin).tolist()),
            end_ns=tuple((np.maximum.reduceat(self.end_ns, first) - begin).tolist()),
            label=tuple(labels.number(*number) for number in numbers),
            num_events=tuple(count.tolist()),
            total_ns=tuple(np.add.reduceat(self.end_ns - self.start_ns, first).tolist()),
        )
