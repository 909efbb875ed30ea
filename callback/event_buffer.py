"""Marks of a loop as it goes, handed to the core many steps at a time.

Between two steps of a training the processor's caches hold the training. Code that runs once a step
starts cold each time: what counts a step in 3 us over and over takes ten times as long there. So a
step leaves a few numbers in a list, and the core is told of many steps at once, by their own times.
Where the core is due (a profiler's window, a save) it is told at once: what it wants done is done
between the same two steps as without this.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .step_counter import Core

MAX_MICRO_BATCHES = 64
"""Micro-batches that wait for the core at most, for each loader that marks them here itself."""
SLICE_NS = 50_000_000
"""They wait so long at most."""
STEPPED, SKIPPED = -1, -2
"""Marks of a step's end; any other mark begins a fetch, whose wait and samples follow."""
UNKNOWN_SIZE = -1


class EventBuffer:
    """The core's six methods and those beside them, cheap for a loop.

    Args:
        core: is told, later and in the same order.
        clock: monotonic nanoseconds, above 0; the core's, the process's own if not given.

    Attributes:
        marks: not handed on yet.
        due_ns: from then on `settle` is to be called.
        largest: micro-batch so far; `grow` is to be called for a larger one.
        now_ns: the time by the core's clock.
    """

    __slots__ = ("_append", "_start", "core", "due_ns", "largest", "marks", "now_ns")

    def __init__(self, core: Core, clock: Callable[[], int] | None = None) -> None:
        self.core = core
        self.marks: list[int] = []
        self.due_ns = self.largest = 0
        self._append = self.marks.append
        self.now_ns = clock or time.perf_counter_ns
        self._start: int | None = None

    # once a step -------------------------------------------------------------------------------

    def on_step_begin(self) -> None:
        """See `Core.on_step_begin`."""
        if self._start is None:
            now = self.now_ns()
            if now >= self.due_ns or len(self.marks) > 4 * MAX_MICRO_BATCHES:
                now = self.settle(now)
            self._start = now

    def on_microbatch(self, num_samples: int | None, wait_ns: int = 0) -> None:
        """See `Core.on_microbatch`."""
        start, self._start = self._start, None
        if start is None:
            self._hand_over()
            self.core.on_microbatch(num_samples, wait_ns)
            return
        if num_samples is not None and num_samples > self.largest:
            self.grow(num_samples)
        append = self._append
        append(start)
        append(wait_ns)
        append(UNKNOWN_SIZE if num_samples is None else num_samples)

    def on_step_end(self, stepped: bool = True) -> None:
        """See `Core.on_step_end`."""
        if self._start is not None or not self.marks:
            self._hand_over()  # a step without a micro-batch since the last one
            self.core.on_step_end(stepped)
            return
        self._append(STEPPED if stepped else SKIPPED)

    def settle(self, now_ns: int) -> int:
        """A fetch begins at `now_ns`: the core is told all, and does what is due.

        Returns:
            When the fetch begins; later than `now_ns` where something was done.
        """
        core = self.core
        self._hand_over()
        now_ns = core.on_step_begin(now_ns)
        if core.due_step - core.num_ended <= MAX_MICRO_BATCHES:
            self.due_ns = 0
        else:
            self.due_ns = min(core.due_ns, core.mark_ns, now_ns + SLICE_NS)
        return now_ns

    def grow(self, num_samples: int) -> None:
        """A larger micro-batch than all before arrived, and nothing was done with it yet."""
        self.largest = num_samples
        self._hand_over()
        self.core.on_growth()

    # now and then ------------------------------------------------------------------------------

    def on_run_begin(self) -> None:
        """See `Core.on_run_begin`."""
        self.core.on_run_begin()

    def on_run_end(self) -> None:
        """See `Core.on_run_end`."""
        self._hand_over()
        self.core.on_run_end()

    def on_oom(self, error: BaseException, batch_size: int | None = None) -> None:
        """See `Core.on_oom`."""
        self._hand_over()
        self.core.on_oom(error, batch_size)

    def on_pause(self, *, epoch_ended: bool = False) -> None:
        """See `Core.on_pause`."""
        self._hand_over()
        self.core.on_pause(epoch_ended=epoch_ended)
        self.due_ns = 0

    def on_execution(self, sizes: Sequence[int | None], micro_batches: int) -> None:
        """See `Core.on_execution`."""
        self._hand_over()
        self.core.on_execution(sizes, micro_batches)

    def add_tokens(self, num_tokens: int) -> None:
        """Tokens of a step, where the loop counts them."""
        self.core.num_tokens += num_tokens

    def _hand_over(self) -> None:
        """All marks to the core, and a begin that waits for its micro-batch."""
        core, marks = self.core, iter(self.marks)
        for mark in marks:
            if mark < 0:
                core.on_step_end(mark == STEPPED)
                continue
            core.on_step_begin(mark)
            wait_ns, size = next(marks), next(marks)
            core.on_microbatch(None if size == UNKNOWN_SIZE else size, wait_ns)
        self.marks.clear()
        if self._start is not None:
            core.on_step_begin(self._start)
            self._start = None
