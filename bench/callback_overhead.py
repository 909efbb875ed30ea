"""What the profiling callback costs: steps of a plain loop with and without it, in turn.

    python bench/callback_overhead.py                 # on the CPU; --device cuda on a GPU
    python bench/callback_overhead.py --pairs 60 --block 1.0

Steps of about 1, 5 and 50 ms. Blocks with and without the callback alternate in one process, so
that what drifts in the machine hits both; the median of the ratios of neighbouring blocks is given
with its interval. Continuous mode is one callback that stays open over all blocks. A window is
opened with a callback of its own each time, and what it costs is given in all: start, profiled
steps, the trace that is written.

The cost of a step without any work is measured as well: it is what the callback adds, whatever the
step takes, and unlike a difference of two long steps it can be seen through the noise.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from batchadvisor import ProfilingCallback
from batchadvisor.spread import spread_of
from common import RESULTS, environment, hardware, say, slug
from torch import nn

TARGETS_MS = (1.0, 5.0, 50.0)
LIMITS = {1.0: 0.02, 5.0: 0.005}
"""What continuous mode may cost at most, by the step's milliseconds."""
EMPTY_STEPS = 100_000
WINDOW_STEPS = 3


class Work:
    """A training step of about a wanted length: rows through a small network.

    Args:
        wanted_ms: length of the step.
        device: as torch names it.
    """

    def __init__(self, wanted_ms: float, device: str) -> None:
        self._model = nn.Sequential(nn.Linear(128, 256), nn.ReLU(), nn.Linear(256, 10)).to(device)
        self._optimizer = torch.optim.SGD(self._model.parameters(), lr=0.01)
        self._device = device
        self.batch = self._rows(8)
        short_s = self._time(20)
        rows = 8
        while short_s * 1e3 < wanted_ms and rows < 1 << 22:
            rows = max(rows + 8, int(rows * min(2.0, wanted_ms / (short_s * 1e3))))
            self.batch = self._rows(rows)
            short_s = self._time(10)
        self.step_s = self._time(30)

    def step(self, batch: Any) -> None:
        x, y = batch
        self._optimizer.zero_grad()
        nn.functional.cross_entropy(self._model(x), y).backward()
        self._optimizer.step()

    def finish(self) -> None:
        if self._device.startswith("cuda"):
            torch.cuda.synchronize(self._device)

    def _rows(self, num: int) -> Any:
        x = torch.randn(num, 128, device=self._device)
        return x, torch.zeros(num, dtype=torch.long, device=self._device)

    def _time(self, num: int) -> float:
        times = []
        for _ in range(num):
            start = time.perf_counter()
            self.step(self.batch)
            self.finish()
            times.append(time.perf_counter() - start)
        return statistics.median(times)


class Repeated:
    """The same batch so many times, as a loader would yield it."""

    def __init__(self, batch: Any, num: int) -> None:
        self._batch, self._num = batch, num

    def __iter__(self) -> Any:
        for _ in range(self._num):
            yield self._batch


def plain_block(work: Work, num: int) -> float:
    """Seconds a step."""
    start = time.perf_counter()
    for batch in Repeated(work.batch, num):
        work.step(batch)
    work.finish()
    return (time.perf_counter() - start) / num


def watched_block(work: Work, num: int, prof: ProfilingCallback) -> float:
    """The same under a callback."""
    start = time.perf_counter()
    for batch in prof.watch(Repeated(work.batch, num)):
        work.step(batch)
        prof.step()
    work.finish()
    return (time.perf_counter() - start) / num


def paired(
    pairs: int, plain: Callable[[], float], watched: Callable[[], float]
) -> tuple[list[float], list[float]]:
    """Seconds of both, neighbours in turn; which one comes first alternates."""
    one, two = [], []
    for place in range(pairs):
        order = (plain, watched) if place % 2 == 0 else (watched, plain)
        first, second = order[0](), order[1]()
        one.append(first if order[0] is plain else second)
        two.append(second if order[0] is plain else first)
    return one, two


def continuous(work: Work, pairs: int, block_s: float) -> dict[str, Any]:
    """Continuous mode: no profiled window."""
    num = max(5, int(block_s / work.step_s))
    with (
        tempfile.TemporaryDirectory() as folder,
        ProfilingCallback(folder, profile=False, quiet=True) as prof,
    ):
        watched_block(work, num, prof)
        plain, watched = paired(
            pairs, lambda: plain_block(work, num), lambda: watched_block(work, num, prof)
        )
    ratios = [b / a - 1 for a, b in zip(plain, watched, strict=True)]
    return {"steps_a_block": num, "plain_s": plain, "watched_s": watched, "overhead": ratios}


def window(work: Work, repeats: int) -> dict[str, Any]:
    """A profiled window: what it costs in all, in seconds, over the same steps without it."""
    num = WINDOW_STEPS + 3
    extra, inside = [], []
    for _ in range(repeats):
        base_s = plain_block(work, num) * num
        with (
            tempfile.TemporaryDirectory() as folder,
            ProfilingCallback(
                folder, profile_after=1, profile_steps=WINDOW_STEPS, quiet=True, scalars=False
            ) as prof,
        ):
            took_s = watched_block(work, num, prof) * num
        extra.append(took_s - base_s)
        profile = prof.record.trials[0].profile if prof.record and prof.record.trials else None
        inside.append(None if profile is None else profile.num_steps)
    return {"window_extra_s": extra, "profiled_steps": inside}


def empty_step_us(repeats: int) -> list[float]:
    """What the callback adds to a step that does nothing, in microseconds."""
    batch = (torch.zeros(16, 4), torch.zeros(16))
    found = []
    for _ in range(repeats):
        start = time.perf_counter()
        for _one in Repeated(batch, EMPTY_STEPS):
            pass
        base_s = time.perf_counter() - start
        with (
            tempfile.TemporaryDirectory() as folder,
            ProfilingCallback(folder, profile=False, quiet=True) as prof,
        ):
            start = time.perf_counter()
            for _one in prof.watch(Repeated(batch, EMPTY_STEPS)):
                prof.step()
            found.append((time.perf_counter() - start - base_s) / EMPTY_STEPS * 1e6)
    return found


def shown(values: Sequence[float], factor: float = 1.0) -> str:
    spread = spread_of(values)
    assert spread is not None
    low, high = spread.low * factor, spread.high * factor
    return f"{spread.median * factor:7.3f}  ({low:.3f} to {high:.3f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--pairs", type=int, default=20)
    parser.add_argument("--block", type=float, default=0.25, help="seconds of a block")
    parser.add_argument("--windows", type=int, default=5)
    parser.add_argument("-o", "--output", type=Path)
    given = parser.parse_args()
    torch.set_num_threads(1)
    result: dict[str, Any] = {"environment": environment(), "device": given.device, "steps": {}}
    say("steps without work")
    result["empty_step_us"] = empty_step_us(5)
    for wanted_ms in TARGETS_MS:
        say(f"steps of about {wanted_ms:g} ms")
        work = Work(wanted_ms, given.device)
        found = {"step_s": work.step_s, **continuous(work, given.pairs, given.block)}
        found |= window(work, given.windows)
        result["steps"][f"{wanted_ms:g}"] = found
    path = given.output or RESULTS / f"callback_overhead_{slug(hardware())}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(result, indent=1) + "\n")
    print(f"added to each step, microseconds   {shown(result['empty_step_us'])}")
    print("step (ms)   continuous mode, % (90 % interval)    a profiled window in all, s")
    for wanted, found in result["steps"].items():
        step_ms = found["step_s"] * 1e3
        print(
            f"{step_ms:9.2f}   {shown(found['overhead'], 100):34}    "
            f"{shown(found['window_extra_s'])}"
        )
        limit = LIMITS.get(float(wanted))
        if limit is not None:
            share = statistics.median(result["empty_step_us"]) / found["step_s"] / 1e6
            print(f"            by the cost of an empty step {share:.2%}; limit {limit:.1%}")
    print(f"wrote {path}")


if __name__ == "__main__":
    main()
