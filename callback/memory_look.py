"""Where the memory of a watched training goes: a look between two steps, no step of ours.

A look counts the tensors among the objects of the process, as long as these are not too many
(`probes/devices/live_objects.py`). It runs nothing of the user's, moves nothing and keeps nothing
alive. On CUDA torch's own recorder is asked as well, where the user wants it, and at an
out-of-memory error. It is on for the first steps alone and keeps a bounded number of events, with
Python's frames of what was allocated. The lines for CUDA never ran on hardware.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from ..records import HeldTensors, MemoryExplained
from .step_counter import NEVER

LOOK_STEP = 3
"""Gradients and the optimizer's state are there by then."""
MAX_ENTRIES = 100_000
"""Events that torch's recorder keeps; the oldest go first."""
HISTORY_STEPS = 20
"""After so many steps the recorder is off again: it costs some microseconds for each allocation."""
SNAPSHOT = "snapshot.pickle"
REFUSED_FILE = "refused.pickle"
"""File of the memory held as memory was refused, where `snapshot.pickle` exists already."""
NOT_TORCH = "the training's tensors are not torch's"
TOO_EARLY = f"the training was over before its step {LOOK_STEP}"


class MemoryLook:
    """Looks once in a training, and once more where memory is refused.

    Args:
        folder: for the recorder's snapshot.
        history: whether torch's recorder is on during the first steps.
        say: tells the user something.

    Attributes:
        next_step: steps after which the look is due, or the end of the recording.
    """

    def __init__(self, folder: Path, *, history: bool, say: Callable[[str], None]) -> None:
        self._folder = folder
        self._history = history
        self._say = say
        self._device: str | None = None
        self._parameters: Callable[[], Iterable[Any]] | None = None
        self._held: list[HeldTensors] = []
        self._reason = TOO_EARLY
        self._snapshot = ""
        self._recording = False
        self._looked = False
        self.next_step = LOOK_STEP

    def begin(
        self, device: str | None, parameters: Callable[[], Iterable[Any]] | None = None
    ) -> None:
        """The loop is known.

        Args:
            device: as `str(torch.device)`; `None` where no torch trains.
            parameters: that train.
        """
        self._device, self._parameters = device, parameters
        if device is None:
            self._give_up(NOT_TORCH)
        if not self._history:
            return
        if device is None or not device.startswith("cuda"):
            self._say("memory_history: torch records the memory of CUDA devices only")
            return
        self._record_history()

    def boundary(self, num_steps: int) -> None:
        """Between two steps, when the look is due or the recording is long enough."""
        if not self._looked:
            self._looked = True
            self._look(num_steps, None)
        if self._recording and num_steps >= HISTORY_STEPS:
            self.finish()
        self.next_step = HISTORY_STEPS if self._recording else NEVER

    def refused(self, num_steps: int, error: BaseException) -> None:
        """Memory was refused; the exception still holds what lived then."""
        self._look(num_steps, error)
        self._dump()

    def finish(self) -> None:
        """The training is over, or the recording."""
        if self._recording:
            if not self._snapshot:
                self._dump()
            self._stop_history()

    @property
    def snapshot(self) -> Path | None:
        """The file that torch's recorder wrote; `None` without one."""
        return self._folder / self._snapshot if self._snapshot else None

    def explained(self) -> MemoryExplained:
        """The memory as far as it was explained by now."""
        reason = "" if self._held else self._reason
        return MemoryExplained(held=tuple(self._held), snapshot=self._snapshot, reason=reason)

    # inside ----------------------------------------------------------------------------------

    def _look(self, num_steps: int, refused: BaseException | None) -> None:
        if self._device is None:
            return
        try:
            from ..probes.fake_step.live_tensors import live_tensors

            parameters = () if self._parameters is None else self._parameters()
            self._held.append(
                live_tensors(self._device, parameters, step=num_steps, refused=refused)
            )
        except Exception as error:  # noqa: BLE001  a look less ends no training
            self._give_up(_why_not(error))

    def _give_up(self, reason: str) -> None:
        self._looked = True
        self.next_step = HISTORY_STEPS if self._recording else NEVER
        self._reason = reason

    # torch's recorder, on CUDA; never run on hardware --------------------------------------------

    def _record_history(self) -> None:
        import torch

        enabled: Any = getattr(torch._C, "_cuda_isHistoryEnabled", None)
        if enabled is not None and enabled():
            self._say("memory_history: the training records its memory itself")
            return
        torch.cuda.memory._record_memory_history(
            max_entries=MAX_ENTRIES, context="alloc", stacks="python"
        )
        self._recording = True

    def _stop_history(self) -> None:
        import torch

        self._recording = False
        with contextlib.suppress(Exception):
            torch.cuda.memory._record_memory_history(enabled=None)

    def _dump(self) -> None:
        """Writes the state of torch's allocator, with its history if that was recorded."""
        if self._device is None or not self._device.startswith("cuda"):
            return
        import torch

        dump: Any = torch.cuda.memory._dump_snapshot
        name = REFUSED_FILE if self._snapshot and not self._recording else SNAPSHOT
        try:
            dump(str(self._folder / name))
            self._snapshot = name
        except Exception as error:  # noqa: BLE001
            self._say(f"torch's snapshot was not written: {type(error).__name__}: {error}")


def _why_not(error: Exception) -> str:
    """Words an error: a bound of ours by itself, else what failed."""
    from ..probes.devices.live_objects import LookTooLongError

    if isinstance(error, LookTooLongError):
        return str(error)
    return f"the look failed: {type(error).__name__}: {error}"
