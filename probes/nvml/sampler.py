"""Samples what the driver counts of one GPU, from a thread of its own.

Without a driver, or with one that refuses a question, nothing here raises: the field is `None` and
the driver's own words stand in `unavailable`.
"""

from __future__ import annotations

import math
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import TYPE_CHECKING, Any

from ...records import Counters
from .calls import NvmlRefusedError
from .counters import Sample, read_sample
from .gpus import find_handle
from .processes import ProcessTable
from .windows import MEASURED, Edges, gpm_refused, summarise

if TYPE_CHECKING:
    from typing_extensions import Self

THREAD_NAME = "batchadvisor-nvml"
SLOW_PERIOD_S = 1.0
"""How often processes and, without GPM, PCIe traffic are asked for: both cost milliseconds."""
LATE_S = 0.1
"""Seconds by which a window's end may be read too late for counters from edge to edge."""
MAX_KEPT_SAMPLES = 36_000
"""Samples that are kept: an hour at the default period."""
JOIN_S = 5.0
"""How long `stop` waits for a thread that is inside a driver call."""


def next_due(due_s: float, now_s: float, period_s: float) -> float:
    """The next time on the grid of `due_s`; times that were missed are left out, not caught up.

    >>> next_due(10.0, 10.02, 0.5), next_due(10.0, 11.7, 0.5)
    (10.5, 12.0)
    """
    return due_s + period_s * max(1, math.floor((now_s - due_s) / period_s) + 1)


class _Window:
    """A stretch of time to be summarised; without a GPU it has no edges."""

    def __init__(self, began_s: float, steady_s: float, edges: Edges | None) -> None:
        self.began_s = began_s
        self.steady_s = steady_s
        self.edges = edges

    def discard(self) -> None:
        if self.edges is not None:
            self.edges.discard()


class NvmlSampler:
    """Samples one GPU from a daemon thread; one sampler serves many windows.

    `start()` ... `stop()` gives the counters of the whole stretch; between them any number of
    `begin()` ... `end()` windows, one after the other. The energy counter and GPM are read by the
    thread that calls these, so that their window is exact. Where NVML cannot be used every method
    works the same, and `Counters.unavailable` says why.

    Args:
        gpu: UUID, with or without its prefix, or NVML index.
        pids: the probed processes, as this process numbers them; this process by default.
        period_s: time between samples.
        clock: monotonic seconds.
        host_numbers: whether the driver numbers processes as this process does; found out by
            default.
    """

    def __init__(
        self,
        gpu: str | int,
        pids: Iterable[int] | None = None,
        period_s: float = 0.1,
        clock: Callable[[], float] = time.monotonic,
        host_numbers: bool | None = None,
    ) -> None:
        if not period_s > 0:
            msg = f"period_s must be above 0, it is {period_s}"
            raise ValueError(msg)
        self._gpu = gpu
        self._processes = ProcessTable((os.getpid(),) if pids is None else pids, host_numbers)
        self._period_s = period_s
        self._clock = clock
        self._lock = threading.Lock()
        self._samples: deque[Sample] = deque(maxlen=MAX_KEPT_SAMPLES)
        self._slow_wanted = threading.Event()
        self._slow_due_s = 0.0
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self._handle: Any = None
        self._reason = "the sampler was not started"
        self._no_gpm: str | None = None
        self._run: _Window | None = None
        self._window: _Window | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._run is not None:
            self.stop()

    @property
    def unavailable(self) -> str | None:
        """Why nothing can be sampled; `None` when something can."""
        return None if self._handle is not None else self._reason

    def start(self) -> None:
        """Starts the thread, and the stretch that `stop` summarises.

        Raises:
            RuntimeError: it runs already.
        """
        if self._run is not None:
            msg = "the sampler runs already"
            raise RuntimeError(msg)
        try:
            self._handle = find_handle(self._gpu)
        except NvmlRefusedError as error:
            self._reason = str(error)
        else:
            self._no_gpm = gpm_refused(self._handle)
        self._run = self._open(0.0)
        if self._handle is not None:
            self._begin_sampling()

    def stop(self) -> Counters:
        """Ends the thread and any open window.

        Returns:
            The counters since `start`.

        Raises:
            RuntimeError: it was not started.
        """
        if self._run is None:
            msg = "the sampler was not started"
            raise RuntimeError(msg)
        self._end_sampling()
        if self._window is not None:
            self._window.discard()
            self._window = None
        counters = self._close(self._run)
        self._run = None
        return counters

    def begin(self, steady_s: float = 0.0) -> None:
        """Begins a window; one that is still open is dropped, as after a trial that failed.

        Args:
            steady_s: how long the same work has been running already. The driver averages
                utilisation and power over up to a second; without this the first second of the
                window does not count for them.
        """
        if self._window is not None:
            self._window.discard()
        self._window = self._open(steady_s)
        self._slow_wanted.set()

    def end(self, at_s: float | None = None) -> Counters:
        """Ends the window.

        Args:
            at_s: when the work that it is about ended, on the sampler's clock; now by default. What
                was read later is left out.

        Raises:
            RuntimeError: no window is open.
        """
        if self._window is None:
            msg = "end() without begin()"
            raise RuntimeError(msg)
        window, self._window = self._window, None
        return self._close(window, at_s)

    def samples(self, since_s: float | None = None) -> list[Sample]:
        """The raw samples in order of time, those after `since_s` only if it is given."""
        with self._lock:
            kept = list(self._samples)
        kept.sort(key=lambda sample: sample.time_s)
        return [sample for sample in kept if since_s is None or sample.time_s > since_s]

    def _open(self, steady_s: float) -> _Window:
        began_s = self._clock()
        edges = None if self._handle is None else Edges(self._handle, began_s, self._no_gpm)
        return _Window(began_s, steady_s, edges)

    def _close(self, window: _Window, at_s: float | None = None) -> Counters:
        read_s = self._clock()
        ended_s = read_s if at_s is None else max(window.began_s, min(at_s, read_s))
        if window.edges is None:
            reasons = {field: self._reason for field in MEASURED if field != "window_s"}
            return Counters(window_s=ended_s - window.began_s, unavailable=reasons)
        values, reasons = window.edges.close(read_s)
        if read_s - ended_s > LATE_S:
            late = f"its end was read {read_s - ended_s:.2f} s after the timed steps"
            reasons |= dict.fromkeys(values, late)
            values = {}
        at_s = read_s if read_s - ended_s > LATE_S else ended_s
        self._keep(read_sample(self._handle, at_s, self._processes))
        return summarise(
            [sample for sample in self.samples() if window.began_s <= sample.time_s <= ended_s],
            began_s=window.began_s,
            ended_s=ended_s,
            steady_s=window.steady_s,
            at_edges=values,
            reasons=reasons,
        )

    def _keep(self, sample: Sample) -> None:
        with self._lock:
            self._samples.append(sample)

    def _begin_sampling(self) -> None:
        self._slow_due_s = self._clock()
        self._stopping = threading.Event()  # a thread that hung keeps its own, which is set
        self._thread = threading.Thread(
            target=self._keep_sampling, args=(self._stopping,), name=THREAD_NAME, daemon=True
        )
        self._thread.start()

    def _end_sampling(self) -> None:
        if self._thread is not None:
            self._stopping.set()
            self._thread.join(JOIN_S)
            self._thread = None

    def _keep_sampling(self, stopping: threading.Event) -> None:
        """The thread: a sample each period."""
        due_s = self._clock()
        while not stopping.is_set():
            now_s = self._clock()
            if now_s >= due_s:
                due_s = next_due(due_s, now_s, self._period_s)
                self._sample(now_s)
            stopping.wait(max(0.0, due_s - self._clock()))

    def _sample(self, now_s: float) -> None:
        """One round of questions; slow ones once a second and as windows begin."""
        slow = now_s >= self._slow_due_s or self._slow_wanted.is_set()
        if slow:
            self._slow_wanted.clear()
            self._slow_due_s = now_s + SLOW_PERIOD_S
        processes = self._processes if slow else None
        pcie = slow and self._no_gpm is not None
        self._keep(read_sample(self._handle, now_s, processes, pcie=pcie))
