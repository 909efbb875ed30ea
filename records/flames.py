"""Where the time went, by stack: merged for pictures, and as it happened for other viewers."""

from __future__ import annotations

from typing import Literal

from .base import Record

FrameKind = Literal[
    "python", "library", "module", "operator", "annotation", "call", "kernel", "group"
]
"""A frame of the script or of a library it uses, of torch or of Python's own library, a call of an
`nn.Module`, an operator, a range that the script named, a call of the GPU's API, work of a GPU, and
what stands for several: a thread, a GPU, the backward pass."""


class Frame(Record, frozen=True, kw_only=True):
    """A kind of frame: all with the same name are one."""

    name: str
    kind: FrameKind


class FlameBlock(Record, frozen=True, kw_only=True):
    """All time in which one stack was open.

    Attributes:
        frame: number of the innermost frame.
        depth: frames around it.
        start_s: where it begins in the picture, which is no moment: blocks lie beside each other,
            the longest first.
        total_s: time of it and of all that it called.
    """

    frame: int
    depth: int
    start_s: float
    total_s: float


class Flame(Record, frozen=True, kw_only=True):
    """A flame graph.

    Attributes:
        of: the time of the host's threads, or of the GPU's work by what launched it.
        total_s: all of it, in `num_steps` profiled steps.
        blocks: an outer one before the inner ones.
        num_left_out: blocks that are too short to be drawn.
        smallest: share of the whole below which they are, 0..1.
        stacks: whether Python's frames are in it; operators alone if not.
        left_out: what else does not count, a clause each.
    """

    of: Literal["host", "GPU"]
    total_s: float
    num_steps: int
    frames: tuple[Frame, ...]
    blocks: tuple[FlameBlock, ...]
    num_left_out: int = 0
    smallest: float = 0.0
    stacks: bool = True
    left_out: tuple[str, ...] = ()


class ThreadStacks(Record, frozen=True, kw_only=True):
    """What a thread of the host was in, as it happened.

    Attributes:
        name: `thread 5806`.
        opened: whether each event opens a frame; it closes the innermost one if not.
        frame, at_s: of each event, in order of time; seconds since the window began.
    """

    name: str
    opened: tuple[bool, ...]
    frame: tuple[int, ...]
    at_s: tuple[float, ...]


class LaunchedStacks(Record, frozen=True, kw_only=True):
    """The GPU's work by the stacks that launched it, from the outermost frame inwards."""

    name: str
    stacks: tuple[tuple[int, ...], ...]
    total_s: tuple[float, ...]


class Stacks(Record, frozen=True, kw_only=True):
    """All stacks of a trace's window.

    Attributes:
        window_s: its length.
        stacks: whether Python's frames are among the frames.
    """

    window_s: float
    frames: tuple[Frame, ...]
    threads: tuple[ThreadStacks, ...]
    launched: tuple[LaunchedStacks, ...] = ()
    stacks: bool = True
