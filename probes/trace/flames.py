"""The host's time and the GPU's work by stack: merged as flame graphs, or as it happened."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

import numpy as np

from ...records import Flame, FlameBlock, Frame, FrameKind, LaunchedStacks, Stacks, ThreadStacks
from . import intervals
from . import kineto_names as vocabulary
from .host_ranges import ANNOTATION, CALL, OPERATOR, PYTHON, host_ranges
from .metrics import Analysis
from .nesting import Nesting
from .steps import launch_rows

SMALLEST = 1 / 400
"""Share of a flame graph below which a block is not drawn."""
MOST_FLAME_BLOCKS = 600
"""Blocks of a flame graph; of more, the shortest are left out."""
UNKNOWN_LAUNCH = "launched before the trace began, or by nobody in it"
BACKWARD_PASS = "backward pass"


def flames_of(analysis: Analysis) -> tuple[Flame, ...]:
    """The flame graphs of a trace: the host's, and the GPU's where one worked.

    Modules of one kind are one. Frames of ours, and torch's between a module and its `forward`, are
    left out; their time stands in the frames around them.
    """
    stacks = _Stacks(analysis, brief=True)
    graphs = []
    for of, paths in (("host", stacks.host_paths()), ("GPU", stacks.launched_paths())):
        tree = _Tree()
        for path, total_ns in paths:
            tree.add(path, total_ns)
        if tree.total_ns > 0:
            graphs.append(stacks.flame(tree, "host" if of == "host" else "GPU"))
    return tuple(graphs)


def stacks_of(analysis: Analysis) -> Stacks:
    """All stacks of a trace's window, as it happened."""
    stacks = _Stacks(analysis, brief=False)
    return Stacks(
        window_s=(stacks.end - stacks.start) / 1e9,
        threads=tuple(stacks.threads()),
        launched=tuple(stacks.launched()),
        frames=tuple(stacks.frames),
        stacks=len(analysis.trace.python) > 0,
    )


class _Tree:
    """Stacks merged: each node is a frame under its parent."""

    def __init__(self) -> None:
        self.children: dict[tuple[int, int], int] = {}
        self.frame: list[int] = []
        self.parent: list[int] = []
        self.total: list[int] = []
        self.total_ns = 0

    def node(self, parent: int, frame: int) -> int:
        """The node of a frame under a parent; -1 is the root."""
        found = self.children.get((parent, frame))
        if found is None:
            found = self.children[parent, frame] = len(self.frame)
            self.frame.append(frame)
            self.parent.append(parent)
            self.total.append(0)
        return found

    def add(self, path: Sequence[int], total_ns: int) -> None:
        """Counts time for a stack, and for all that is around its innermost frame."""
        at = -1
        self.total_ns += total_ns
        for frame in path:
            at = self.node(at, frame)
            self.total[at] += total_ns

    def blocks(self) -> tuple[list[FlameBlock], int, float]:
        """What is drawn; how many blocks are not, and below which share of the whole they are."""
        smallest = SMALLEST * self.total_ns
        if sum(total >= smallest for total in self.total) > MOST_FLAME_BLOCKS:
            smallest = sorted(self.total, reverse=True)[MOST_FLAME_BLOCKS - 1] + 1
        inner: defaultdict[int, list[int]] = defaultdict(list)
        for node, parent in enumerate(self.parent):
            if self.total[node] >= smallest:
                inner[parent].append(node)
        drawn: list[FlameBlock] = []
        waiting = [(-1, 0, 0)]
        while waiting:
            parent, depth, start = waiting.pop()
            below = []
            for node in sorted(inner[parent], key=lambda node: (-self.total[node], node)):
                below.append((node, depth + 1, start))
                drawn.append(
                    FlameBlock(
                        frame=self.frame[node],
                        depth=depth,
                        start_s=start / 1e9,
                        total_s=self.total[node] / 1e9,
                    )
                )
                start += self.total[node]
            waiting += reversed(below)
        return drawn, len(self.total) - len(drawn), smallest / self.total_ns


class _Stacks:
    """What the host was in within the window, nested; and what that launched.

    Args:
        brief: whether modules of one kind are one frame, and frames of no interest none.
    """

    def __init__(self, analysis: Analysis, *, brief: bool) -> None:
        self.analysis = analysis
        self.trace = trace = analysis.trace
        self.start, self.end, _ = analysis.window()
        self.num_steps = len(analysis.steps)
        self.frames: list[Frame] = []
        self.numbers: dict[tuple[str, FrameKind], int] = {}
        ranges, kinds = host_ranges(trace)
        names = trace.all_names
        keep = (ranges.end_ns > self.start) & (ranges.start_ns < self.end)
        if brief:
            boring = np.array([vocabulary.is_of_no_interest(name) for name in names], bool)
            keep &= ~boring[ranges.name]
        steps = np.array([vocabulary.is_step(name) for name in names], bool)
        keep &= ~steps[ranges.name]
        busy = np.unique(ranges.thread[keep & (kinds != PYTHON)])
        self.num_idle = len(np.setdiff1d(ranges.thread[keep], busy))
        keep &= np.isin(ranges.thread, busy)
        ranges, kinds = ranges.select(keep), kinds[keep]
        self.nesting = Nesting(ranges)
        self.kinds = kinds[self.nesting.order]
        own = ranges.name[self.nesting.order]
        pairs = {
            (name, kind): self.number(
                vocabulary.module_of(names[name]) or names[name] if brief else names[name],
                _KINDS.get(kind) or _python_kind(names[name]),
            )
            for name, kind in set(zip(own.tolist(), self.kinds.tolist(), strict=True))
        }
        self.frame = [pairs[pair] for pair in zip(own.tolist(), self.kinds.tolist(), strict=True)]

    def number(self, name: str, kind: FrameKind) -> int:
        """The number of a frame."""
        found = self.numbers.get((name, kind))
        if found is None:
            found = self.numbers[name, kind] = len(self.frames)
            self.frames.append(Frame(name=name, kind=kind))
        return found

    def thread_name(self, thread: int) -> str:
        """`thread 5806`, with the process where there are several."""
        process, number = self.trace.threads[thread]
        several = len({process for process, _ in self.trace.threads}) > 1
        return f"thread {number} of process {process}" if several else f"thread {number}"

    def thread_order(self) -> list[int]:
        """Threads, the one that was inside anything for the longest first."""
        nesting = self.nesting
        outer = nesting.parents < 0
        found, index = np.unique(nesting.threads, return_inverse=True)
        inside = np.zeros(len(found), np.int64)
        np.add.at(inside, index[outer], (nesting.ends - nesting.starts)[outer])
        order: list[int] = found[np.argsort(-inside, kind="stable")].tolist()
        return order

    # Merged.

    def host_paths(self) -> Iterator[tuple[list[int], int]]:
        """Each stack that was open, with the time that it was open itself."""
        nesting = self.nesting
        starts = np.clip(nesting.starts, self.start, self.end)
        ends = np.clip(nesting.ends, self.start, self.end)
        own = ends - starts
        inner = np.flatnonzero(nesting.parents >= 0)
        np.subtract.at(own, nesting.parents[inner], (ends - starts)[inner])
        own = np.maximum(own, 0)
        roots = {
            thread: self.number(self.thread_name(thread), "group") for thread in self.thread_order()
        }
        for position in np.flatnonzero(own > 0).tolist():
            root = roots[int(nesting.threads[position])]
            yield [root, *self._path(position)], int(own[position])

    def _path(self, position: int, *, without: tuple[int, ...] = ()) -> list[int]:
        """Frames around a position and its own, from the outermost inwards."""
        path = []
        while position >= 0:
            if self.kinds[position] not in without:
                path.append(self.frame[position])
            position = int(self.nesting.parents[position])
        return path[::-1]

    def launched_paths(self) -> Iterator[tuple[list[int], int]]:
        """The GPU's work by the stack that launched it, ended by its own name."""
        for device, path, total_ns in self._launches():
            root = [self.number(f"GPU {device}", "group")] if len(self._devices()) > 1 else []
            yield [*root, *path], total_ns

    def _devices(self) -> list[int]:
        return [device.number for device in self.analysis.devices]

    def _launches(self) -> Iterator[tuple[int, list[int], int]]:
        gpu, calls, nesting = self.trace.gpu, self.trace.launches, self.nesting
        rows = np.flatnonzero((gpu.end_ns > self.start) & (gpu.start_ns < self.end))
        call = launch_rows(gpu, calls)[rows]
        known = call >= 0
        at = np.full(len(rows), -1, np.int64)
        at[known] = nesting.innermost(calls.thread[call[known]], calls.start_ns[call[known]])
        forward = nesting.nearest(nesting.forward(self.trace.backward), at)
        starts, ends = intervals.clip_any(
            gpu.start_ns[rows], gpu.end_ns[rows], self.start, self.end
        )
        # Many launches have the same stack; each stack is followed outwards once.
        inner = np.stack((at, forward, gpu.name[rows], gpu.device[rows]))
        unique, index = np.unique(inner, axis=1, return_inverse=True)
        total = np.zeros(unique.shape[1], np.int64)
        np.add.at(total, index.reshape(-1), ends - starts)
        for (position, source, name, device), total_ns in zip(
            unique.T.tolist(), total.tolist(), strict=True
        ):
            path = self._path(position, without=(CALL,))
            if source >= 0:  # what the engine does, under the line whose gradient it is
                around = self._path(source, without=(CALL, OPERATOR))
                engine = [n for n in path if self.frames[n].kind in ("operator", "annotation")]
                path = [*around, self.number(BACKWARD_PASS, "group"), *engine]
            elif position < 0:
                path = [self.number(UNKNOWN_LAUNCH, "group")]
            yield device, [*path, self.number(self.trace.names[name], "kernel")], total_ns

    def flame(self, tree: _Tree, of: str) -> Flame:
        """The flame graph of a tree."""
        blocks, num_left_out, smallest = tree.blocks()
        numbers = {frame: at for at, frame in enumerate(dict.fromkeys(b.frame for b in blocks))}
        left_out = []
        if of == "host" and self.num_idle:
            what = "1 thread" if self.num_idle == 1 else f"{self.num_idle} threads"
            left_out.append(f"{what} of Python that ran no operator and named no range")
        return Flame(
            of="host" if of == "host" else "GPU",
            total_s=tree.total_ns / 1e9,
            num_steps=self.num_steps,
            frames=tuple(self.frames[frame] for frame in numbers),
            blocks=tuple(
                FlameBlock(
                    frame=numbers[block.frame],
                    depth=block.depth,
                    start_s=block.start_s,
                    total_s=block.total_s,
                )
                for block in blocks
            ),
            num_left_out=num_left_out,
            smallest=smallest,
            stacks=len(self.trace.python) > 0,
            left_out=tuple(left_out),
        )

    # As it happened.

    def threads(self) -> Iterator[ThreadStacks]:
        """Opening and closing of every frame."""
        nesting = self.nesting
        starts, ends = (
            np.clip(times, self.start, self.end).tolist()
            for times in (nesting.starts, nesting.ends)
        )
        for thread in self.thread_order():
            events = _Events(self.start)
            for position in np.flatnonzero(nesting.threads == thread).tolist():
                events.close(starts[position])
                events.open(self.frame[position], starts[position], ends[position])
            events.close(self.end)
            yield ThreadStacks(
                name=self.thread_name(thread),
                opened=tuple(events.opened),
                frame=tuple(events.frames),
                at_s=tuple(events.times),
            )

    def launched(self) -> Iterator[LaunchedStacks]:
        """The GPU's work by stack, one for each GPU."""
        of_device: defaultdict[int, list[tuple[list[int], int]]] = defaultdict(list)
        for device, path, total_ns in self._launches():
            of_device[device].append((path, total_ns))
        for device, found in sorted(of_device.items()):
            yield LaunchedStacks(
                name=f"GPU {device}, by what launched its work",
                stacks=tuple(tuple(path) for path, _ in found),
                total_s=tuple(total_ns / 1e9 for _, total_ns in found),
            )


class _Events:
    """What opens and closes on a thread, in order of time; all that opens closes.

    Args:
        start: nanoseconds from which times are counted.
    """

    def __init__(self, start: int) -> None:
        self.start = start
        self.opened: list[bool] = []
        self.frames: list[int] = []
        self.times: list[float] = []
        self._open: list[tuple[int, int]] = []

    def open(self, frame: int, at: int, end: int) -> None:
        """A frame that will end then, inside what is open."""
        self._add(frame, at, opens=True)
        self._open.append((end, frame))

    def close(self, until: int) -> None:
        """Closes what has ended by then, the innermost first."""
        while self._open and self._open[-1][0] <= until:
            end, frame = self._open.pop()
            self._add(frame, end, opens=False)

    def _add(self, frame: int, at: int, *, opens: bool) -> None:
        self.opened.append(opens)
        self.frames.append(frame)
        self.times.append((at - self.start) / 1e9)


_KINDS: dict[int, FrameKind] = {OPERATOR: "operator", ANNOTATION: "annotation", CALL: "call"}


def _python_kind(name: str) -> FrameKind:
    if vocabulary.module_of(name):
        return "module"
    return "python" if vocabulary.is_of_the_model(name) else "library"
