"""One real step under torch's own recorder of memory, on CUDA. Ran on one H100, for two scripts."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import torch

from ..doors.caught_errors import CaughtErrors
from ..process.endings import NO_OPTIMIZER_STEP
from ..process.messages import RecordedResult
from ..process.orders import RunRecorded
from .supervisor_line import wait_for_the_end
from .task import Boundary, TaskContext

WARM_STEPS = 2
"""After these the allocator has what it needs, and gradients and states are there."""
MAX_ENTRIES = 100_000
OWN_RECORDER = "the script records its memory itself, and its recorder is left on"
NOT_CUDA = "torch records the memory of CUDA devices only"


class RecordTask:
    """Steps of one size, the last of them recorded. Nothing is timed meanwhile.

    Args:
        order: its size, and where the snapshot goes.
        context: where it runs.
    """

    def __init__(self, order: RunRecorded, context: TaskContext) -> None:
        self._order = order
        self._context = context
        self._num_steps = 0
        self._recording = False

    def begin(self) -> bool:
        """Asks for the size."""
        context = self._context
        if context.loop.device.type != "cuda":
            context.line.send(RecordedResult(reason=NOT_CUDA))
            return False
        context.door.ask(self._order.batch_size)
        context.line.begin_task()
        return True

    def arrived(self, num_samples: int | None, proof: str, wait_s: float, *, primary: bool) -> None:
        """Any batch will do."""

    def boundary(self, boundary: Boundary) -> bool:
        """A step ended. True when one was recorded."""
        self._num_steps += boundary.parts
        if self._num_steps < WARM_STEPS:
            self._context.line.show("fitting", num_steps=self._num_steps)
            return False
        recorder: Any = torch.cuda.memory
        try:
            if not self._recording:
                if is_recording():
                    self._context.line.send(RecordedResult(reason=OWN_RECORDER))
                    return True
                recorder._record_memory_history(max_entries=MAX_ENTRIES, stacks="python")
                self._recording = True
                return False
            recorder._dump_snapshot(self._order.path)
            recorder._record_memory_history(enabled=None)
        except Exception as error:  # noqa: BLE001  a recording less is no fault of the run's
            if self._recording:
                with contextlib.suppress(Exception):
                    recorder._record_memory_history(enabled=None)
            reason = f"torch's recorder failed: {type(error).__name__}: {error}"
            self._context.line.send(RecordedResult(reason=reason))
            return True
        self._context.line.send(RecordedResult())
        return True

    def stepped_elsewhere(self) -> None:
        """Steps of other tasks of the script's do not matter here."""

    def no_step(self, num_fetches: int, caught_errors: CaughtErrors) -> None:  # noqa: ARG002
        """There is no step to record."""
        reason = f"{NO_OPTIMIZER_STEP} at batch {self._order.batch_size}"
        self._context.line.send(RecordedResult(reason=reason))
        wait_for_the_end()


def is_recording() -> bool:
    """Whether torch's recorder is on already; no, where torch does not tell."""
    enabled: Any = getattr(torch._C, "_cuda_isHistoryEnabled", None)
    return enabled is not None and bool(enabled())


def dump_at_refusal(folder: str, worker: int) -> None:
    """Leaves what torch's allocator holds as memory is refused; nothing but on CUDA."""
    if not torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        return
    dump: Any = torch.cuda.memory._dump_snapshot
    with contextlib.suppress(Exception):
        dump(str(Path(folder) / f"refused-{worker}.pickle"))
