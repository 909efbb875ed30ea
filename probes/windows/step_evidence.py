"""Counts what happens while a step runs: waiting for a core, switches, CPU time, stolen time,
stops, page faults, garbage collections.

Read between steps, never inside one. A reading costs a few microseconds; what costs more (all
threads of the process, the machine's counters) is read only as often as it stays below a thousandth
of the time. Linux has all of it; what a system does not have is `None` and named once.
"""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

try:
    import resource
except ImportError:  # not a POSIX system
    resource = None  # type: ignore[assignment]

_SIGNAL = getattr(signal, "SIGCONT", None)

DEAR_SHARE = 1e-3
"""Share of the time that the dear readings may take."""
_TASKS = Path("/proc/self/task")
_STAT = Path("/proc/stat")


class StepEvidence(NamedTuple):
    """Counts of one step.

    Attributes:
        delay_s: seconds that a thread of the process was ready to run and got no core; of the
            thread that waited longest. `None` where the kernel does not count it.
        stolen_s: core-seconds that the hypervisor gave to others, of the whole machine.
        throttled_s: seconds that the cgroup's CPU quota held the process.
        switches: times that a thread was taken off its core against its will.
        thread_s, process_s: CPU seconds of the main thread, of all threads.
        stops: times that the process was stopped and continued.
        outside_s: core-seconds that processes outside the run used. A thread that waited longer
            waited for its own kind: that is what the step costs on this machine. `None` where
            nobody counts that.
        faults: pages that the system gave the process when it first touched them (minor faults).
        collected_s: seconds of full collections of Python's garbage collector, which walk every
            object of the process.
        collections: their number.
    """

    delay_s: float | None = None
    stolen_s: float | None = None
    throttled_s: float | None = None
    switches: float | None = None
    thread_s: float | None = None
    process_s: float | None = None
    stops: float | None = None
    outside_s: float | None = None
    faults: float | None = None
    collected_s: float = 0.0
    collections: float = 0

    @classmethod
    def mean(cls, steps: Sequence[StepEvidence]) -> StepEvidence:
        """Mean counts of several steps; unknown where a count of one step is."""
        means: list[Any] = [
            None if None in values else sum(values) / len(steps)
            for values in zip(*steps, strict=True)
        ]
        return cls(*means)

    def per(self, parts: int) -> StepEvidence:
        """The share of one of several equal steps that were counted together."""
        if parts == 1:
            return self
        shares: list[Any] = [None if value is None else value / parts for value in self]
        return StepEvidence(*shares)


class Reading(NamedTuple):
    """The counters at one moment."""

    delays_ns: Mapping[int, int]
    stolen_s: float | None
    throttled_s: float | None
    switches: int | None
    thread_s: float
    process_s: float
    stops: int | None
    at_s: float = 0.0
    outside_cores: float | None = None
    faults: int | None = None
    collected_s: float = 0.0
    collections: int = 0


class CollectionTimer:
    """Times the full collections of Python's garbage collector; close it.

    They come once in many steps, and take as long as there are objects in the process, so that they
    are told apart from a step's own time. What the young generations take is a part of each step.
    """

    OLDEST = 2

    def __init__(self) -> None:
        self.seconds = 0.0
        self.count = 0
        self._began_s: float | None = None
        gc.callbacks.append(self._collects)

    def close(self) -> None:
        """Counts no more."""
        with contextlib.suppress(ValueError):  # the script may have emptied the list
            gc.callbacks.remove(self._collects)

    def _collects(self, phase: str, info: Mapping[str, int]) -> None:
        if info.get("generation") != self.OLDEST:
            return
        if phase == "start":
            self._began_s = time.perf_counter()
        elif self._began_s is not None:
            self.seconds += time.perf_counter() - self._began_s
            self.count += 1
            self._began_s = None


class EvidenceReader:
    """Reads the counters of this process. Close it: it holds open files.

    Args:
        tasks: folder of the process's threads.
        stat: the machine's counters.
        throttled: files `cpu.stat` of the cgroups that bound the process.
        paced: the process gets its share of the time by being stopped and continued; its stops are
            part of a step.
        outside_cores: cores that processes outside the run used lately; `None` where nobody knows.

    Attributes:
        unavailable: what cannot be read here, and why.
    """

    def __init__(
        self,
        tasks: Path = _TASKS,
        stat: Path = _STAT,
        throttled: tuple[Path, ...] = (),
        *,
        paced: bool = False,
        outside_cores: Callable[[], float | None] | None = None,
    ) -> None:
        self._outside_cores = outside_cores
        self._tasks = tasks
        self._files: dict[int, int] = {}
        self._main = os.getpid()
        self._stat = _opened(stat)
        self._throttled = [file for path in throttled if (file := _opened(path)) is not None]
        self._dear_at_s = float("-inf")
        self._dear_cost_s = 0.0
        self._delays: dict[int, int] = {}
        self._stolen_s: float | None = None
        self._throttled_s: float | None = None
        self._stops = None if paced else StopCounter()
        self._collections = CollectionTimer()
        self.unavailable: dict[str, str] = {}
        self.renew()
        if not self._delays:
            self.unavailable["delay_s"] = "the kernel counts no waiting for a core (schedstat)"
        if self._stolen_s is None:
            self.unavailable["stolen_s"] = "the kernel counts no stolen time"
        if self._stops is not None and self._stops.count is None:
            self.unavailable["stops"] = "SIGCONT is handled by something else"

    def renew(self) -> None:
        """Looks for threads that began or ended; call it when none is being timed."""
        self._close(self._files.values())
        self._files = {}
        with contextlib.suppress(OSError):
            for name in os.listdir(self._tasks):  # noqa: PTH208  a few microseconds, not fifty
                file = _opened(self._tasks / name / "schedstat")
                if file is not None and name.isdigit():
                    self._files[int(name)] = file
        self._read_dear()

    def read(self) -> Reading:
        """The counters now."""
        now_s = time.perf_counter()
        if self._dear_cost_s <= DEAR_SHARE * (now_s - self._dear_at_s):
            self._read_dear()
        elif self._main in self._files:
            self._read_delay(self._main)
        switches, faults = None, None
        if resource is not None:
            usage = resource.getrusage(resource.RUSAGE_SELF)
            switches, faults = usage.ru_nivcsw, usage.ru_minflt
        return Reading(
            delays_ns=dict(self._delays),
            stolen_s=self._stolen_s,
            throttled_s=self._throttled_s,
            switches=switches,
            thread_s=time.thread_time(),
            process_s=time.process_time(),
            stops=None if self._stops is None else self._stops.count,
            at_s=now_s,
            outside_cores=None if self._outside_cores is None else self._outside_cores(),
            faults=faults,
            collected_s=self._collections.seconds,
            collections=self._collections.count,
        )

    def close(self) -> None:
        """Closes the files."""
        self._collections.close()
        if self._stops is not None:
            self._stops.close()
        self._close([*self._files.values(), *self._throttled])
        if self._stat is not None:
            self._close([self._stat])
        self._files, self._throttled, self._stat = {}, [], None

    def _read_dear(self) -> None:
        started_s = time.perf_counter()
        for thread in tuple(self._files):
            self._read_delay(thread)
        self._stolen_s = _stolen_s(self._stat)
        readings = [_throttled_s(file) for file in self._throttled]
        self._throttled_s = max((value for value in readings if value is not None), default=None)
        self._dear_at_s = time.perf_counter()
        self._dear_cost_s = self._dear_at_s - started_s

    def _read_delay(self, thread: int) -> None:
        words = _words(self._files[thread])
        if len(words) > 1:
            self._delays[thread] = int(words[1])
        else:  # the thread is over
            self._close([self._files.pop(thread)])
            self._delays.pop(thread, None)

    @staticmethod
    def _close(files: object) -> None:
        for file in files:  # type: ignore[attr-defined]
            with contextlib.suppress(OSError):
                os.close(file)


def between(start: Reading, end: Reading) -> StepEvidence:
    """Differences of the counts between two readings."""
    waits = [
        value - start.delays_ns[thread]
        for thread, value in end.delays_ns.items()
        if thread in start.delays_ns
    ]
    cores = end.outside_cores
    return StepEvidence(
        delay_s=max(waits) / 1e9 if waits else None,
        stolen_s=_less(end.stolen_s, start.stolen_s),
        throttled_s=_less(end.throttled_s, start.throttled_s),
        switches=None
        if end.switches is None or start.switches is None
        else end.switches - start.switches,
        thread_s=end.thread_s - start.thread_s,
        process_s=end.process_s - start.process_s,
        stops=None if end.stops is None or start.stops is None else end.stops - start.stops,
        outside_s=None if cores is None else cores * (end.at_s - start.at_s),
        faults=None if end.faults is None or start.faults is None else end.faults - start.faults,
        collected_s=end.collected_s - start.collected_s,
        collections=end.collections - start.collections,
    )


def _less(end: float | None, start: float | None) -> float | None:
    return None if end is None or start is None else max(0.0, end - start)


def _opened(path: Path) -> int | None:
    try:
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None


def _words(file: int) -> list[bytes]:
    try:
        return os.pread(file, 256, 0).split()
    except OSError:
        return []


def _stolen_s(file: int | None) -> float | None:
    """Column 8 of the line `cpu` in /proc/stat (proc(5)), in core-seconds."""
    words = [] if file is None else _words(file)
    if len(words) < 9 or words[0] != b"cpu":
        return None
    return int(words[8]) / os.sysconf("SC_CLK_TCK")


def _throttled_s(file: int) -> float | None:
    """`throttled_usec` of cgroup v2, `throttled_time` (nanoseconds) of v1."""
    with contextlib.suppress(OSError, ValueError):
        words = os.pread(file, 1024, 0).split()
        for name, value in zip(words[::2], words[1::2], strict=False):
            if name == b"throttled_usec":
                return int(value) / 1e6
            if name == b"throttled_time":
                return int(value) / 1e9
    return None


class StopCounter:
    """Counts how often the process was stopped (SIGSTOP, Ctrl-Z) and continued, until it is closed.

    No counter of the kernel grows meanwhile: a stopped process neither runs nor waits for a core.
    What it gets is SIGCONT, and that is counted: only in the main thread, and only where nobody
    else handles the signal; the script may take the signal for itself at any time.
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
