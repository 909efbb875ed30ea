"""Runs a script and writes down when each optimizer step ended; steering_cost.py starts it.

    BENCH_STAMPS=FILE [BENCH_NUM_STEPS=N] python stamped.py SCRIPT [ARGUMENTS]

The times go into a mapped file, so that they are there whatever ends the process. With
BENCH_NUM_STEPS the process ends after so many steps.
"""

from __future__ import annotations

import mmap
import os
import runpy
import sys
import time
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
    if not path.exists():
        return []
    values = memoryview(path.read_bytes()).cast("d")
    return list(values[1 : int(values[0]) + 1])


def main() -> None:
    """Runs the script of the command line as `__main__`."""
    from torch.optim.optimizer import register_optimizer_step_post_hook  # noqa: PLC0415

    stamps = Stamps(os.environ["BENCH_STAMPS"])
    num_steps = int(os.environ.get("BENCH_NUM_STEPS", CAPACITY + 1))
    clock = time.perf_counter

    def stepped(*_: object) -> None:
        if stamps.add(clock()) >= num_steps:
            os._exit(0)

    register_optimizer_step_post_hook(stepped)
    sys.argv = sys.argv[1:]
    sys.path[0] = str(Path(sys.argv[0]).resolve().parent)
    runpy.run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    main()
