"""Finds tensors that steps keep, by looks at those that live before and after many steps."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...records import KeptTensors

if TYPE_CHECKING:
    from ..devices.live_tensors import LiveTensors

ENOUGH_STEPS = 12
FIRST_STEPS = 3
"""A process's first look comes after so many: the first step makes what the script holds from one
step to the next, such as its loss with all nodes behind it, and an optimizer's state."""
MOST_LOOKS = 4
"""Looks in one process: more show nothing new, and each takes about a tenth of a second."""


class KeptSteps:
    """Counts the steps of a process, and looks between trials. A trial's own steps are timed.

    Attributes:
        reason: why it looks no more: the process has too many objects.
    """

    def __init__(self) -> None:
        self._tensors: LiveTensors | None = None
        self._num_steps = self._num_looks = 0
        self._is_wanted = False
        self.reason = ""

    def begin(self) -> None:
        """A trial of many steps begins; the first look of all comes soon after."""
        self._is_wanted = True

    def stepped(self, num_steps: int) -> None:
        """The optimizer stepped."""
        self._num_steps += num_steps
        if self._tensors is not None or self.reason or not self._is_wanted:
            return
        if self._num_steps >= FIRST_STEPS:
            from ..devices.live_objects import LookTooLongError
            from ..devices.live_tensors import LiveTensors

            try:
                self._tensors = LiveTensors()
            except LookTooLongError as error:
                self.reason = str(error)
            self._num_steps = 0

    def look(self) -> KeptTensors | None:
        """Tensors that the steps since the last look kept; `None` while the steps are few."""
        if self._tensors is None or self._num_looks == MOST_LOOKS:
            return None
        if self._num_steps < ENOUGH_STEPS:
            return None
        from ..devices.live_objects import LookTooLongError

        try:
            kept = self._tensors.since(self._num_steps)
        except LookTooLongError as error:
            self._tensors, self.reason = None, str(error)
            return None
        self._num_steps, self._num_looks = 0, self._num_looks + 1
        return kept
