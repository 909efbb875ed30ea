"""Short profiled windows in a long training: torch.profiler for a few steps, then silence."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ..records import Profile
from .display import in_notebook, only_our_lines
from .options import Options
from .step_counter import NEVER

WARMUP = 1
"""Steps of each window in which the profiler runs already and nothing is kept."""
BUSY_RETRY_STEPS = 100
MAX_RETRIES = 5
MAX_PUT_OFF = 1
"""A pause puts a window off so many times: the next one begins with the steps after the pause, and
if a pause comes into that too, none fits between two of them."""
FOREIGN = "another profiler runs in this process"
OVER_BEFORE = "the run was over before its profiled window"


class Windows:
    """Opens a window when its step comes, and closes it.

    Args:
        folder: of the run; traces go below it as `batchadvisor run` names them.
        options: of the callback; when, how long, how often.
        rank: of this process; the traces of all ranks lie in one folder.
        device_type: as torch names it.
        say: tells the user something.

    Attributes:
        next_step: number of steps after which the next window opens.
        active: whether one is open.
        profiles: the latest profile of each batch size; its trace is not read yet.
        step_s: seconds of a step in the window of that profile.
        began: first step of each window.
        reason: why there is no profile; empty if there is one, or one may still come.
    """

    def __init__(
        self,
        folder: Path,
        options: Options,
        *,
        rank: int,
        device_type: str,
        say: Callable[[str], None],
    ) -> None:
        self._folder, self._options = folder, options
        self._rank, self._device_type, self._say = rank, device_type, say
        self._profiler: Any = None
        self._batch_size = 0
        self._retries = self._put_off = 0
        self._restore: Callable[[], None] | None = None
        self.next_step = options.profile_after
        self.profiles: dict[int, Profile] = {}
        self.step_s: dict[int, float] = {}
        self._kept_since_s = 0.0
        self.began: list[int] = []
        self.reason = OVER_BEFORE

    @property
    def active(self) -> bool:
        """Whether a window is open."""
        return self._profiler is not None

    def boundary(self, num_steps: int, batch_size: int | None) -> None:
        """Between two steps: opens, advances or closes a window.

        Args:
            num_steps: made so far.
            batch_size: of the last step; the trace is filed under it.
        """
        if self._profiler is not None:
            self._advance(num_steps)
        elif num_steps >= self.next_step:
            if batch_size is None:  # to file a trace under; to be asked each time would cost
                self.next_step = num_steps + BUSY_RETRY_STEPS
            else:
                self._open(num_steps, batch_size)

    def pause(self, num_steps: int) -> None:
        """What follows is no training: an open window begins anew after the next step.

        Else the whole of a validation would stand in its trace.
        """
        if self._profiler is None or self._put_off >= MAX_PUT_OFF:
            return
        self._put_off += 1
        self.abandon(OVER_BEFORE)
        self.next_step = num_steps + 1

    def skip(self, reason: str) -> None:
        """There will be no window."""
        self.next_step = NEVER
        self.reason = reason

    def abandon(self, reason: str) -> None:
        """Closes an open window without a trace."""
        profiler, self._profiler = self._profiler, None
        if profiler is None:
            return
        self._unguard()
        with contextlib.suppress(Exception):
            profiler.abandon()
        self.began.pop()
        self.reason = reason

    def _open(self, num_steps: int, batch_size: int) -> None:
        import torch

        from ..probes.windows.profiling import TraceProfiler, trace_path

        if torch.autograd._profiler_enabled():  # type: ignore[attr-defined]
            self._postpone(num_steps)
            return
        path = trace_path(self._folder, batch_size, self._rank, len(self.began))
        profiler = TraceProfiler(
            path,
            self._folder,
            self._device_type,
            (0, WARMUP, self._options.profile_steps),
            with_stack=self._options.with_stack,
        )
        try:
            with only_our_lines(here=in_notebook()):
                profiler.start()
        except Exception as error:  # noqa: BLE001  the training goes on without a profile
            self.skip(f"the profiler did not start: {type(error).__name__}: {error}")
            return
        self._profiler, self._batch_size = profiler, batch_size
        self._guard()
        self.began.append(num_steps + 1 + WARMUP)
        self.next_step = num_steps + 1

    def _postpone(self, num_steps: int) -> None:
        self._retries += 1
        self.reason = FOREIGN
        self.next_step = num_steps + BUSY_RETRY_STEPS if self._retries <= MAX_RETRIES else NEVER
        if self._retries == 1:
            self._say(
                f"{FOREIGN}, so this one waits: no window at step {num_steps}, a try again "
                f"{BUSY_RETRY_STEPS} steps later. Use profile=False to leave the window out."
            )

    def _advance(self, num_steps: int) -> None:
        self.next_step = num_steps + 1
        try:
            ended_s = time.perf_counter()
            if not self._profiler.step():
                if num_steps + 1 == self.began[-1]:
                    self._kept_since_s = time.perf_counter()
                return
            self._unguard()
            step_s = (ended_s - self._kept_since_s) / self._options.profile_steps
            profile = self._profiler.finish()
        except Exception as error:  # noqa: BLE001
            self.abandon(f"the profiler failed: {type(error).__name__}: {error}")
            self.next_step = NEVER
            return
        self._profiler = None
        self._put_off = 0
        self.profiles[self._batch_size] = profile
        self.step_s[self._batch_size] = step_s
        self.reason = ""
        every, began = self._options.profile_every, self.began
        more = every is not None and len(began) < self._options.max_profiles
        self.next_step = began[-1] - 1 - WARMUP + (every or 0) if more else NEVER

    def _guard(self) -> None:
        """A profiler of the user's own that starts meanwhile goes first.

        torch holds one profiler a process, and the second one to start would fail. The one place
        through which all of them pass is watched while our window is open, and only then.
        """
        from torch.autograd.profiler import profile as native

        prepare = getattr(native, "_prepare_trace", None)
        if prepare is None:  # another torch: its own error has to do
            return

        def guarded(profiler: Any, *args: Any, **kwargs: Any) -> Any:
            if self._profiler is not None:
                self.abandon("the training started a profiler of its own meanwhile")
                self.next_step = NEVER
                self._say(
                    "the training started a profiler of its own; the profiled window was given up "
                    "for it. Use profile=False to leave the window out."
                )
            return prepare(profiler, *args, **kwargs)

        native._prepare_trace = guarded  # type: ignore[method-assign, assignment]

        def restore() -> None:
            native._prepare_trace = prepare  # type: ignore[method-assign]

        self._restore = restore

    def _unguard(self) -> None:
        if self._restore is not None:
            self._restore()
            self._restore = None
