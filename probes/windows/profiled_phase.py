"""The profiled steps at the end of a window. A profile that fails never fails its trial."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

from ...records import Memory, Profile
from .protocols import WindowProfiler

LATE = "left out: the time was over"
CUT_SHORT = "cut short: the time was over"
NO_ROOM = "left out: the memory is too nearly full for the profiler's own"


class ProfiledPhase:
    """One profile, from before its start to its trace.

    Args:
        make: the profiler, when the phase starts; `None` leaves the phase out.
        below_bytes: a peak above this leaves it out; the profiler needs memory of its own.

    Attributes:
        profile: what became of it; `None` so far, or where none is wanted.
    """

    def __init__(
        self, make: Callable[[], WindowProfiler] | None, below_bytes: int | None = None
    ) -> None:
        self._make = make
        self._below_bytes = below_bytes
        self._profiler: WindowProfiler | None = None
        self.profile: Profile | None = None

    @property
    def is_wanted(self) -> bool:
        """Whether a profile was asked for."""
        return self._make is not None

    def has_room(self, memory: Memory) -> bool:
        """Whether the profiler's own memory fits beside the peak."""
        return self._below_bytes is None or memory.peak_bytes <= self._below_bytes

    def leave_out(self, reason: str) -> None:
        """There is no profile."""
        self.profile = Profile(unavailable={"trace": reason})

    def begin(self) -> bool:
        """Starts the profiler. False where it fails to start."""
        assert self._make is not None
        try:
            self._profiler = self._make()
            self._profiler.start()
        except Exception as error:  # noqa: BLE001  a failed profile never fails a trial
            self._drop(error)
            return False
        return True

    def boundary(self, *, late: bool) -> bool:
        """A profiled step ended. True when the phase is over.

        Args:
            late: the time of the trial is over.
        """
        profiler = self._profiler
        assert profiler is not None
        try:
            if not profiler.step():
                if not late:
                    return False
                profiler.abandon()
                self.leave_out(CUT_SHORT)
            else:
                self.profile = profiler.finish()
        except Exception as error:  # noqa: BLE001
            with contextlib.suppress(Exception):  # one left running would slow what comes after
                profiler.abandon()
            self._drop(error)
        self._profiler = None
        return True

    def abandon(self) -> None:
        """Stops a running profiler; the trial is over some other way."""
        if self._profiler is not None:
            self._profiler.abandon()

    def _drop(self, error: Exception) -> None:
        self.leave_out(f"the profiler failed: {type(error).__name__}: {error}")
        self._profiler = None
