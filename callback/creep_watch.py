"""Whether the memory that stays between two steps rises with every block of them."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from ..advisor.measured.creep import BLOCK_STEPS, Blocks, rise_of
from ..records import KeptTensors, MemoryCreep
from .step_counter import NEVER

if TYPE_CHECKING:
    from ..probes.devices.live_tensors import LiveTensors

STEPS_BETWEEN_LOOKS = 2 * BLOCK_STEPS


class CreepWatch:
    """Reads memory at the ends of steps, ever more rarely; looks at tensors once it rises.

    Args:
        read: bytes that are held now; `None` where nobody can tell.
        source: what that is.

    Attributes:
        creep: what was found.
        next_look: the step after which tensors are looked at; that takes about a tenth of a second,
            and belongs to no step.
    """

    def __init__(self, read: Callable[[], int | None], source: str) -> None:
        self._read = read
        self._source = source
        self._blocks = Blocks()
        self._tensors: LiveTensors | None = None
        self._looked_at = 0
        self.creep: MemoryCreep | None = None
        self.next_look = NEVER

    def step(self, num_ended: int) -> int:
        """A step ended.

        Returns:
            The step at whose end the next reading is taken.
        """
        reading = self._read()
        if reading is None:
            return NEVER
        if self._blocks.add(reading) and rise_of(self._blocks.lows) is not None:
            self.next_look = num_ended
            return NEVER
        return num_ended + self._blocks.stride

    def boundary(self, num_ended: int) -> int:
        """Between two steps, `next_look` reached: looks, twice.

        Returns:
            The step at whose end the next reading is taken.
        """
        self.next_look = NEVER
        rise = rise_of(self._blocks.lows)
        assert rise is not None
        if self._tensors is not None:
            assert self.creep is not None
            kept, reason = self._second_look(self._tensors, num_ended)
            self.creep = msgspec.structs.replace(self.creep, kept=kept, not_looked=reason)
            self._tensors = None
            return NEVER
        first, reason = _first_look() if "torch" in sys.modules else (None, "")
        if first is not None:
            collected = self._read()
            if collected is not None and not rise.outlasts(collected):
                self._blocks.forget()
                return num_ended + self._blocks.stride
            self._tensors, self._looked_at = first, num_ended
            self.next_look = num_ended + STEPS_BETWEEN_LOOKS
        self.creep = MemoryCreep(
            source=self._source,
            first_bytes=rise.first_bytes,
            last_bytes=rise.last_bytes,
            num_steps=rise.num_blocks * self._blocks.num_steps,
            not_looked=reason,
        )
        return NEVER

    def _second_look(self, tensors: LiveTensors, num_ended: int) -> tuple[KeptTensors | None, str]:
        """Finds what lives more since the first look; else why nobody looked."""
        from ..probes.devices.live_objects import LookTooLongError

        try:
            return tensors.since(num_ended - self._looked_at), ""
        except LookTooLongError as error:
            return None, str(error)


def _first_look() -> tuple[LiveTensors | None, str]:
    """Collects and looks; why it did not."""
    from ..probes.devices.live_objects import LookTooLongError
    from ..probes.devices.live_tensors import LiveTensors

    try:
        return LiveTensors(), ""
    except LookTooLongError as error:
        return None, str(error)
