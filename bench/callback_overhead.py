"""What the profiling callback costs: steps of a plain loop with and without it, by turns.

    python bench/callback_overhead.py                     # CPU, about six minutes; --device cuda
    python bench/callback_overhead.py --seconds 20 --no-results      # a quick look
    python bench/callback_overhead.py --update-page       # its table, from the committed results

Continuous mode: one process, one loop body, a callback that stays open. Turns of a few steps with
the callback, without it, and without it once more follow each other in an order drawn from a
printed seed. A speed that drifts hits neighbouring turns alike, so the logarithm of the ratio of
neighbours is taken and its trimmed mean given with the standard error; the second turn without
the callback must come out as nothing, and shows what this machine can resolve. What the callback
does between two steps once a second or less often (reading memory, writing the record) is timed by
itself and given as its share of the time, since a trimmed mean would lose it.

A step without any work is measured as well: it is what the callback adds, whatever the step takes.

A profiled window is opened with a callback of its own each time: steps in it against those right
before it, what it costs in all (start, profiled steps, writing the trace), and what the end of the
run costs then (reading the trace).

On a GPU every turn ends with a synchronisation of the benchmark's own; the callback makes none.
"""

from __future__ import annotations

import argparse
import random
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from math import expm1, log, sqrt
from pathlib import Path
from typing import Any

import torch
from batchadvisor import ProfilingCallback
from common import RESULTS, Results, say, trimmed_mean
from overhead_page import PAGE, committed, text, with_table
from torch import nn

TARGETS_MS = (1.0, 5.0, 50.0)
ARMS = ("plain", "control", "watched")
TRIMMED = 0.1
"""Share of the ratios that is left out at each end."""
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
        rows = 8
        for _ in range(8):
            self.batch = self._rows(rows)
            self.step_s = self._time(max(10, int(100 / wanted_ms)))
            if 0.9 < self.step_s * 1e3 / wanted_ms < 1.1:
                break
            rows = max(8, int(rows * min(8.0, wanted_ms / (self.step_s * 1e3))))

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


def repeated(batch: Any) -> Iterator[Any]:
    """The same batch for ever, as a loader would yield it."""
    while True:
        yield batch


def turn(work: Work, batches: Iterator[Any], prof: ProfilingCallback | None, num: int) -> float:
    """So many steps, in seconds; the loop is the same with and without the callback."""
    start = time.perf_counter()
    for _ in range(num):
        work.step(next(batches))
        if prof is not None:
            prof.step()
    work.finish()
    return time.perf_counter() - start


class Pauses:
    """Times what a callback does between two steps, now and then."""

    def __init__(self, prof: ProfilingCallback) -> None:
        self.took_s = 0.0
        recorder = prof._watch.recorder  # noqa: SLF001
        assert recorder is not None
        native = recorder.boundary

        def timed(*arguments: Any) -> None:
            start = time.perf_counter()
            native(*arguments)
            self.took_s += time.perf_counter() - start

        recorder.boundary = timed  # type: ignore[method-assign]


def continuous(work: Work, seconds: float, num: int, seed: int) -> dict[str, Any]:
    """Continuous mode, no profiled window: turns of `num` steps for so many seconds."""
    draw = random.Random(seed)
    times: dict[str, list[float]] = {arm: [] for arm in ARMS}
    with (
        tempfile.TemporaryDirectory() as folder,
        ProfilingCallback(folder, profile=False, quiet=True) as prof,
    ):
        with_it, without = iter(prof.watch(repeated(work.batch))), repeated(work.batch)
        turn(work, with_it, prof, 20)
        turn(work, without, None, 20)
        pauses = Pauses(prof)
        order, began_s = list(ARMS), time.perf_counter()
        while time.perf_counter() - began_s < seconds:
            draw.shuffle(order)
            for arm in order:
                if arm == "watched":
                    before_s = pauses.took_s
                    took_s = turn(work, with_it, prof, num) - (pauses.took_s - before_s)
                else:
                    took_s = turn(work, without, None, num)
                times[arm].append(took_s / num)
        elapsed_s = time.perf_counter() - began_s
        with_it.close()  # type: ignore[attr-defined]
    plain, control, watched = (list(map(log, times[arm])) for arm in ARMS)
    both = zip(plain, control, watched, strict=True)
    return {
        "steps_a_turn": num,
        "seed": seed,
        "plain_s": statistics.median(times["plain"]),
        "overhead": ratios([w - (p + c) / 2 for p, c, w in both]),
        "control": ratios([c - p for p, c in zip(plain, control, strict=True)]),
        "pauses": {"share": pauses.took_s / elapsed_s, "of_s": elapsed_s},
    }


def ratios(logs: Sequence[float]) -> dict[str, Any]:
    """Relative cost from logarithms of ratios: trimmed mean, standard error, and what is behind."""
    num, whole = len(logs), 20
    mean, error = trimmed_mean(logs, TRIMMED)
    return {
        "mean": expm1(mean),
        "standard_error": error,
        "turns": num,
        "untrimmed_mean": expm1(statistics.fmean(logs)),
        "untrimmed_standard_error": statistics.stdev(logs) / sqrt(num),
        "percentiles": [round(quantile, 5) for quantile in statistics.quantiles(logs, n=20)],
        "means_over_time": [
            round(statistics.fmean(logs[n * num // whole : (n + 1) * num // whole]), 5)
            for n in range(whole)
        ],
    }


def window(work: Work, repeats: int) -> dict[str, Any]:
    """A profiled window: its steps, what it costs in all, and what the end of the run costs."""
    num = WINDOW_STEPS + 3
    extra, slower, end = [], [], []
    for _ in range(repeats):
        plain_s = turn(work, repeated(work.batch), None, num) / num
        with tempfile.TemporaryDirectory() as folder:
            prof = ProfilingCallback(
                folder, profile_after=1, profile_steps=WINDOW_STEPS, quiet=True, scalars=False
            )
            with prof:
                watched = iter(prof.watch(repeated(work.batch)))
                took_s = turn(work, watched, prof, num)
                start = time.perf_counter()
                watched.close()  # type: ignore[attr-defined]
                took_s += time.perf_counter() - start
                windows = prof._watch.recorder.windows  # type: ignore[union-attr]  # noqa: SLF001
                start = time.perf_counter()
            end.append(time.perf_counter() - start)
        extra.append(took_s - num * plain_s)
        slower.append(next(iter(windows.step_s.values())) / plain_s)  # type: ignore[union-attr]
    return {"extra_s": extra, "slower": slower, "end_s": end}


def empty_step_us(repeats: int) -> list[float]:
    """What the callback adds to a step that does nothing, in microseconds."""
    batch = (torch.zeros(16, 4), torch.zeros(16))
    added_us = []
    for _ in range(repeats):
        batches = repeated(batch)
        start = time.perf_counter()
        for _ in range(EMPTY_STEPS):
            next(batches)
        base_s = time.perf_counter() - start
        with (
            tempfile.TemporaryDirectory() as folder,
            ProfilingCallback(folder, profile=False, quiet=True) as prof,
        ):
            batches = iter(prof.watch(repeated(batch)))
            start = time.perf_counter()
            for _ in range(EMPTY_STEPS):
                next(batches)
                prof.step()
            added_us.append((time.perf_counter() - start - base_s) / EMPTY_STEPS * 1e6)
            batches.close()  # type: ignore[attr-defined]
    return added_us


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--seconds", type=float, default=110.0, help="for each length of steps")
    parser.add_argument("--turn", type=int, default=2, help="steps in a turn")
    parser.add_argument("--windows", type=int, default=11)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", type=float, nargs="+", default=TARGETS_MS, metavar="MS")
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--no-results", action="store_true")
    parser.add_argument("--update-page", action="store_true", help="measures nothing")
    given = parser.parse_args()
    if given.update_page:
        page = with_table(PAGE.read_text(encoding="utf-8"), committed(given.results))
        PAGE.write_text(page, encoding="utf-8")
        return
    torch.set_num_threads(1)
    results = Results(None if given.no_results else given.results, "callback-overhead")
    data = results.data
    data |= {"device": given.device, "steps": {}}
    say("steps without work")
    data["empty_step_us"] = empty_step_us(5)
    for wanted_ms in given.only:
        say(f"steps of about {wanted_ms:g} ms")
        work = Work(wanted_ms, given.device)
        result = continuous(work, given.seconds, given.turn, given.seed)
        data["steps"][f"{wanted_ms:g}"] = {**result, "window": window(work, given.windows)}
        results.save()
    data["state"] = "finished"
    results.finish(text(data))


if __name__ == "__main__":
    main()
