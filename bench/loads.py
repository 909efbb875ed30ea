"""What disturbs a training step, on purpose: busy neighbours, a quota of CPU time, bursts in which
all stands still.

Each is a context that leaves nothing behind. Standard library only: tests use it too.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Collection, Iterator
from pathlib import Path

CGROUP = Path("/sys/fs/cgroup")
PERIOD_US = 100_000
_BUSY = """
while kill -0 "$1" 2>/dev/null; do
    i=0; while [ $i -lt 100000 ]; do i=$((i + 1)); done
done
"""
"""A loop that also ends with the process that wanted it, however that ends."""


class Unavailable(Exception):  # noqa: N818  a normal answer of a machine
    """This machine cannot be disturbed that way; the text says why."""


@contextlib.contextmanager
def neighbours(count: int, name: str = "neighbour") -> Iterator[None]:
    """So many busy processes of that name (15 letters at most)."""
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        program = Path(folder) / name
        program.symlink_to("/bin/sh")
        for _ in range(count):
            command = [str(program), "-c", _BUSY, name, str(os.getpid())]
            stack.enter_context(_killed(subprocess.Popen(command, start_new_session=True)))
        yield


@contextlib.contextmanager
def _killed(process: subprocess.Popen[bytes]) -> Iterator[None]:
    try:
        yield
    finally:
        process.kill()
        process.wait()


@contextlib.contextmanager
def quota(cores: float) -> Iterator[Callable[[list[str]], list[str]]]:
    """A cgroup with so many cores; gives what turns a command into one that runs in it.

    Raises:
        Unavailable: no cgroup can be made here.
    """
    folder = _new_cgroup(cores)

    def inside(command: list[str]) -> list[str]:
        joins = f'echo $$ > "{folder}/cgroup.procs" && exec "$@"'
        return ["sh", "-c", joins, "sh", *command]

    try:
        yield inside
    finally:
        _remove(folder)


def _new_cgroup(cores: float) -> Path:
    name = f"batchadvisor-{os.getpid()}-{time.monotonic_ns()}"
    limit = int(cores * PERIOD_US)
    old, new = CGROUP / "cpu", CGROUP
    if (old / "cpu.cfs_quota_us").exists() or (old / "cgroup.procs").exists():
        folder, files = old / name, {"cpu.cfs_period_us": PERIOD_US, "cpu.cfs_quota_us": limit}
    elif "cpu" in _words(new / "cgroup.subtree_control"):
        folder, files = new / name, {"cpu.max": f"{limit} {PERIOD_US}"}
    else:
        msg = "no cgroup controls the CPU here"
        raise Unavailable(msg)
    try:
        folder.mkdir()
    except OSError as error:
        msg = f"a cgroup cannot be made: {error}"
        raise Unavailable(msg) from None
    try:
        for file, value in files.items():
            (folder / file).write_text(f"{value}\n")
    except OSError as error:
        folder.rmdir()
        msg = f"a quota cannot be set: {error}"
        raise Unavailable(msg) from None
    return folder


def _remove(folder: Path) -> None:
    """A cgroup goes once all in it are gone, and a killed process takes a moment."""
    deadline = time.monotonic() + 5
    while True:
        for pid in _words(folder / "cgroup.procs"):
            with contextlib.suppress(OSError):
                os.kill(int(pid), signal.SIGKILL)
        try:
            folder.rmdir()
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)
        else:
            return


def _words(path: Path) -> list[str]:
    try:
        return path.read_text().split()
    except OSError:
        return []


class Bursts:
    """Stops processes for one to three seconds now and then, and lets them go on.

    Args:
        whom: the process groups to stop, asked before each burst.
        pause_s: mean time between two; ten steps stall a tenth of them.
        seed: of lengths and moments.

    Attributes:
        count: bursts so far.
        stopped_s: how long they lasted, all together.
        longest_s: of them.
    """

    def __init__(self, whom: Callable[[], Collection[int]], pause_s: float, seed: int) -> None:
        self.count, self.stopped_s, self.longest_s = 0, 0.0, 0.0
        self._whom, self._pause_s = whom, pause_s
        self._random = random.Random(seed)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Bursts:  # noqa: PYI034  Self needs Python 3.11
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._over.wait(self._random.expovariate(1 / self._pause_s)):
            groups = self._whom()
            if not groups:
                continue
            start = time.monotonic()
            _signal(groups, signal.SIGSTOP)
            self._over.wait(self._random.uniform(1.0, 3.0))
            _signal(groups, signal.SIGCONT)
            self.count += 1
            self.stopped_s += time.monotonic() - start
            self.longest_s = max(self.longest_s, time.monotonic() - start)


def _signal(groups: Collection[int], number: signal.Signals) -> None:
    for group in groups:
        with contextlib.suppress(OSError):
            os.killpg(group, number)
