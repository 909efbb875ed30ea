"""Counts how often this process was stopped (SIGSTOP, Ctrl-Z) and continued.

No counter of the kernel grows meanwhile: a stopped process neither runs nor waits for a core. What
it gets is SIGCONT, and that can be counted.
"""

from __future__ import annotations

import contextlib
import signal
from types import FrameType

_SIGNAL = getattr(signal, "SIGCONT", None)


class StopCounter:
    """Counts from now until it is closed. Only in the main thread, and only where nobody else
    handles the signal; the script may take the signal for itself at any time.
    """

    def __init__(self) -> None:
        self._count = 0
        self._handler = self._continued
        self._counts = False
        if _SIGNAL is None or signal.getsignal(_SIGNAL) is not signal.SIG_DFL:
            return
        with contextlib.suppress(ValueError):  # not the main thread
            signal.signal(_SIGNAL, self._handler)
            signal.siginterrupt(_SIGNAL, False)
            self._counts = True

    @property
    def count(self) -> int | None:
        """Times so far, two in quick succession as one; `None` where they are not counted."""
        return self._count if self._counts and self._is_ours() else None

    def close(self) -> None:
        """The signal is as it was."""
        if self._counts and self._is_ours():
            with contextlib.suppress(ValueError):
                signal.signal(_SIGNAL, signal.SIG_DFL)  # type: ignore[arg-type]
        self._counts = False

    def _is_ours(self) -> bool:
        return signal.getsignal(_SIGNAL) is self._handler  # type: ignore[arg-type]

    def _continued(self, number: int, frame: FrameType | None) -> None:
        del number, frame
        self._count += 1
