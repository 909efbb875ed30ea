"""Who launched the GPU's work: the operator, the place in Python, the module of torch.

A launch belongs to the innermost operator and the innermost frames that were open on its thread
when the call began. The backward pass runs on a thread of its own, without frames: there the place
is that of the forward operator that the trace links to.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np
import numpy.typing as npt

from ...records import Launcher
from . import kineto_names as vocabulary
from .columns import Activities, Columns, Trace
from .intervals import Ints
from .nesting import Nesting
from .steps import launch_rows
from .tables import LaunchersOf

MOST_LAUNCHERS = 3
"""Operators and places that are named of one kernel."""


class Places(Columns, frozen=True, kw_only=True):
    """Where ranges or launches came from, one entry each; -1 where it is not known.

    Attributes:
        operator: position in the nesting of the operators.
        frame: position in the nesting of Python's frames.
        backward: whether the frame is that of the forward pass which this is the backward part of.
    """

    operator: Ints
    frame: Ints
    backward: npt.NDArray[np.bool_]


class Host:
    """What the host was in: operators and Python's frames, nested.

    Attributes:
        line_of, module_of: of each position of `frames`, the number of the name of the innermost
            frame around it that is the script's, or a module of torch; -1 if none is.
    """

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.operators = Nesting(trace.operators)
        self.frames = Nesting(trace.python)
        names = trace.python_names
        self.line_of = self._named_around(list(map(vocabulary.is_of_the_model, names)))
        self.module_of = self._named_around([bool(vocabulary.module_of(name)) for name in names])
        self.forward = self.operators.forward(trace.backward)

    def _named_around(self, wanted: Sequence[bool]) -> Ints:
        """The name of the innermost wanted frame at or around each frame."""
        frames = self.frames
        own = frames.ranges.name[frames.order]
        named = np.where(np.array([*wanted, False], bool)[own], own, -1)
        return frames.nearest(named, np.arange(len(own)))

    def places(self, threads: npt.NDArray[np.int32], times: Ints, operators: Ints) -> Places:
        """Where something came from that happened on threads at times, inside operators."""
        frame = self.frames.innermost(threads, times)
        source = self.operators.nearest(self.forward, operators)
        linked = np.flatnonzero(source >= 0)
        origin = self.frames.innermost(
            self.operators.threads[source[linked]], self.operators.starts[source[linked]]
        )
        backward = np.zeros(len(times), bool)
        backward[linked[origin >= 0]] = True
        frame[linked] = np.where(origin >= 0, origin, frame[linked])
        return Places(operator=operators, frame=frame, backward=backward)

    def of_launches(self, gpu: Activities) -> Places:
        """Where each activity of a GPU was launched from."""
        calls = self.trace.launches
        rows = launch_rows(gpu, calls)
        known = rows >= 0
        thread, time = np.full(len(gpu), -1, np.int32), np.zeros(len(gpu), np.int64)
        thread[known], time[known] = calls.thread[rows[known]], calls.start_ns[rows[known]]
        return self.places(thread, time, self.operators.innermost(thread, time))

    def of_operators(self) -> Places:
        """Where each operator was called from, by position: `operator` is the one around it."""
        operators = self.operators
        places = self.places(
            operators.threads, operators.starts, np.arange(len(operators.order), dtype=np.int64)
        )
        return msgspec.structs.replace(places, operator=operators.parents.astype(np.int64))

    def launchers(self, places: Places, groups: npt.NDArray[np.int32], times: Ints) -> LaunchersOf:
        """Looks up the launchers of a group, the most time first, and how many there are.

        Args:
            places: where each event came from.
            groups: a number for each event, such as that of a kernel's name.
            times: nanoseconds of each event.
        """
        operator_names = self.operators.ranges.name[self.operators.order]
        columns = (
            _taken(operator_names, places.operator),
            _taken(self.line_of, places.frame),
            _taken(self.module_of, places.frame),
            places.backward.astype(np.int64),
        )
        keys = np.stack((groups.astype(np.int64), *columns)) if len(groups) else np.zeros((5, 0))
        unique, index = np.unique(keys.astype(np.int64), axis=1, return_inverse=True)
        index = index.reshape(-1)
        total = np.zeros(unique.shape[1], np.int64)
        np.add.at(total, index, times)
        calls = np.bincount(index, minlength=unique.shape[1])

        def of(group: int) -> tuple[tuple[Launcher, ...], int]:
            first, stop = np.searchsorted(unique[0], (group, group + 1)).tolist()
            found: dict[tuple[str, str, str, bool], list[int]] = {}
            for row in range(first, stop):
                place = self._named(unique[1:, row].tolist())
                if any(place[:3]):
                    sums = found.setdefault(place, [0, 0, 0])
                    for at, more in enumerate((1, int(calls[row]), int(total[row]))):
                        sums[at] += more
            most = sorted(found.items(), key=lambda item: (-item[1][2], item[0]))
            return tuple(_launcher(*item) for item in most[:MOST_LAUNCHERS]), len(found)

        return of

    def _named(self, numbers: list[int]) -> tuple[str, str, str, bool]:
        operator, line, module, backward = numbers
        names, python = self.trace.names, self.trace.python_names
        return (
            names[operator] if operator >= 0 else "",
            python[line] if line >= 0 else "",
            vocabulary.module_of(python[module]) if module >= 0 else "",
            bool(backward),
        )


def _launcher(place: tuple[str, str, str, bool], sums: Sequence[int]) -> Launcher:
    operator, line, module, backward = place
    modules, calls, total_ns = sums
    return Launcher(
        operator=operator,
        line=line,
        module=module,
        num_modules=modules if module else 0,
        backward=backward,
        num_calls=calls,
        total_s=total_ns / 1e9,
    )


def _taken(values: Ints | npt.NDArray[np.int32], positions: Ints) -> Ints:
    """The value at each position, -1 where the position is."""
    taken = np.full(len(positions), -1, np.int64)
    known = positions >= 0
    taken[known] = values[positions[known]]
    return taken
