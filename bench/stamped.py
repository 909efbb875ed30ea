"""Runs a script and writes down when each optimizer step ended; steering_cost.py starts it.

    BENCH_STAMPS=FILE [BENCH_NUM_STEPS=N] python stamped.py SCRIPT [ARGUMENTS]

The times go into a mapped file, so that they are there whatever ends the process. With
BENCH_NUM_STEPS the process ends after so many steps. With BENCH_SPAN=FROM,FOR (seconds after the
first step) two moments alone are noted, at each of which the GPU had done all that it was given,
and between them the number of steps, as a time; the process ends with the second.

With BENCH_GO=FILE the script begins when that file exists; FILE.ready says that torch is loaded.
"""

from __future__ import annotations

import mmap
import os
import runpy
import sys
import time
from collections.abc import Callable
from pathlib import Path

CAPACITY = 1 << 17


class Stamps:
    """Seconds in a mapped file of doubles: the first is their number."""

    def __init__(self, path: str) -> None:
        with Path(path).open("wb+") as file:
            file.truncate(8 * (CAPACITY + 1))
            self._values = memoryview(mmap.mmap(file.fileno(), 0)).cast("d")
        self._num = 0

    def add(self, seconds: float) -> int:
        """Notes one; says how many there are now. What is beyond the capacity is left out."""
        if self._num < CAPACITY:
            self._num += 1
            self._values[self._num] = seconds
            self._values[0] = self._num
        return self._num


def read_stamps(path: Path) -> list[float]:
    """All values of a file that a process wrote; empty if it came to none."""
    read = path.read_bytes() if path.exists() else b""
    if not read:  # it is being made
        return []
    values = memoryview(read).cast("d")
    return list(values[1 : int(values[0]) + 1])


def spanned(stamps: Stamps, span: str) -> Callable[..., None]:
    """A hook that counts the steps between two moments at which the GPU is idle."""
    import torch  # noqa: PLC0415

    from_s, for_s = (float(word) for word in span.split(","))
    first_s = begun_s = 0.0
    steps = 0

    def stepped(*_: object) -> None:
        nonlocal first_s, steps, begun_s
        now_s = time.perf_counter()
        steps += 1
        if not begun_s and steps == 1:
            first_s = now_s
        elif not begun_s and now_s - first_s > from_s:
            torch.cuda.synchronize()
            begun_s, steps = time.perf_counter(), 0
        elif begun_s and now_s - begun_s > for_s and steps > 1:
            torch.cuda.synchronize()
            ended_s = time.perf_counter()
            for value in (begun_s, float(steps), ended_s):
                stamps.add(value)
            os._exit(0)

    return stepped


def main() -> None:
    """Runs the script of the command line as `__main__`."""
    import torch  # noqa: PLC0415
    from torch.optim.optimizer import register_optimizer_step_post_hook  # noqa: PLC0415

    stamps = Stamps(os.environ["BENCH_STAMPS"])
    num_steps = int(os.environ.get("BENCH_NUM_STEPS", CAPACITY + 1))
    clock = time.perf_counter

    def stepped(*_: object) -> None:
        if stamps.add(clock()) >= num_steps:
            os._exit(0)

    span = os.environ.get("BENCH_SPAN")
    register_optimizer_step_post_hook(spanned(stamps, span) if span else stepped)
    if go := os.environ.get("BENCH_GO"):
        torch.zeros(1, device="cuda" if torch.cuda.is_available() else "cpu")
        Path(go + ".ready").touch()
        while not Path(go).exists():
            time.sleep(0.02)
    sys.argv = sys.argv[1:]
    sys.path[0] = str(Path(sys.argv[0]).resolve().parent)
    runpy.run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    main()
