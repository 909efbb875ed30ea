"""Two live processes of one script that run in turn for a fraction of a second.

Blocks that come one after the other differ by what the machine does meanwhile, which is far more
than what is looked for. So both processes live all the time and are stopped and continued
(SIGSTOP, SIGCONT) in short slices. A step counts when it lies within one slice. Two processes of
the same program differ for as long as they live (where their memory lies), so that one pair of them
says little, however long it runs.
"""

from __future__ import annotations

import itertools
import os
import signal
import statistics
import subprocess
import sys
import threading
import time
from bisect import bisect_left
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

from batchadvisor.probes.process.endings import WorkerGone
from batchadvisor.probes.process.orders import RunTrial
from batchadvisor.probes.process.supervisor import Worker
from batchadvisor.records import TrialRequest, TurnsPlan
from common import HERE, Bench
from stamped import CAPACITY, read_stamps

SKIPPED = 20
"""First steps of either process that do not count."""
SLICE_S = 0.1
STEPS_A_SLICE = 6
"""A slice has room for about so many steps."""
START_S = 300.0


class Slices:
    """One script in two processes.

    Args:
        script: path of the script.
        arguments: its own.
        device: as `batchadvisor run --device` takes it.
        steered: whether the second process is steered; else it runs alone like the first.

    Attributes:
        log: what the script printed, in either process.
    """

    def __init__(
        self, script: Path, arguments: Sequence[str], device: str, *, steered: bool
    ) -> None:
        self._steered = steered
        self._open = ExitStack()
        stamped = HERE / "stamped.py"
        self._bench = self._open.enter_context(
            Bench(stamped, (str(script.resolve()), *arguments), device)
        )
        self.log = self._bench.log
        self._stamps = {name: self._bench.scratch.path / name for name in ("first", "second")}
        self._groups: dict[str, int] = {}
        self._alone: list[subprocess.Popen[bytes]] = []
        self._over = ""

    def __enter__(self) -> Slices:  # noqa: PYI034  Self needs Python 3.11
        return self

    def __exit__(self, *_: object) -> None:
        for group in self._groups.values():
            with suppress(ProcessLookupError):
                os.killpg(group, signal.SIGKILL)
        self._open.close()

    def pairs(self, seconds: float) -> list[dict[str, Any]]:
        """Runs both for so long in all, or until the script ends; seconds a step, slice by slice.

        Raises:
            RuntimeError: one of them did not come to train.
        """
        self._start()
        step_s = statistics.median(self._steps("first"))
        slice_s = max(SLICE_S, (STEPS_A_SLICE + 1) * step_s)
        for group in self._groups:
            self._signal(group, signal.SIGSTOP)
        turns: list[tuple[str, float, float]] = []
        end = time.monotonic() + seconds
        for number in itertools.count():
            if time.monotonic() >= end or self._over:
                break
            for name in ("first", "second") if number % 2 else ("second", "first"):
                start = time.perf_counter()
                self._signal(name, signal.SIGCONT)
                time.sleep(slice_s)
                self._signal(name, signal.SIGSTOP)
                turns.append((name, start, time.perf_counter()))
        return self._paired(turns)

    # inside ----------------------------------------------------------------------------------

    def _start(self) -> None:
        self._start_alone("first")
        self._signal("first", signal.SIGSTOP)
        if not self._steered:
            self._start_alone("second")
            return
        self._bench.environment |= {"BENCH_STAMPS": str(self._stamps["second"])}
        worker = self._open.enter_context(self._bench.worker())
        self._groups["second"] = worker.pid
        discovery, _ = worker.discover()
        before = len(self._steps("second"))
        threading.Thread(
            target=self._steer, args=(worker, discovery.native_batch_size), daemon=True
        ).start()
        self._wait(lambda: len(self._steps("second")) > before + SKIPPED)

    def _start_alone(self, name: str) -> None:
        with self.log.open("ab") as log:
            process = self._open.enter_context(
                subprocess.Popen(
                    [sys.executable, str(self._bench.script), *self._bench.arguments],
                    env=self._bench.environment | {"BENCH_STAMPS": str(self._stamps[name])},
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
            )
        self._groups[name] = process.pid
        self._alone.append(process)
        self._wait(lambda: len(self._steps(name)) > SKIPPED)

    def _steer(self, worker: Worker, size: int) -> None:
        """One window without an end, at the script's own size."""
        plan = TurnsPlan(sizes=(size,), num_steps=(CAPACITY,), num_warmup_steps=0)
        request = TrialRequest(batch_size=size, kind="turns", turns=plan)
        try:
            worker.ask(RunTrial(request=request, ordinal=0, precision=0.0, time_limit_s=0.0))
        except WorkerGone as gone:
            self._over = gone.detail
        except OSError:
            self._over = "the worker was closed"  # at the end, by `__exit__`

    def _wait(self, ready: Any) -> None:
        end = time.monotonic() + START_S
        while not ready():
            if time.monotonic() > end or self._over:
                lines = self.log.read_text(errors="replace").strip().splitlines()
                msg = f"no steps: {self._over or (lines[-1] if lines else 'no output')}"
                raise RuntimeError(msg)
            time.sleep(0.05)

    def _signal(self, name: str, number: int) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._groups[name], number)
        if any(process.poll() is not None for process in self._alone):
            self._over = self._over or "the script has ended"

    def _steps(self, name: str) -> list[float]:
        noted = read_stamps(self._stamps[name])
        return [after - before for before, after in itertools.pairwise(noted)]

    def _paired(self, turns: list[tuple[str, float, float]]) -> list[dict[str, Any]]:
        noted = {name: read_stamps(path) for name, path in self._stamps.items()}
        rows = []
        for first, second in zip(turns[::2], turns[1::2], strict=True):
            row: dict[str, Any] = {"led": first[0]}
            for name, start, end in (first, second):
                inside = noted[name][
                    bisect_left(noted[name], start) : bisect_left(noted[name], end)
                ]
                if len(inside) > 1:
                    row[f"{name}_s"] = (inside[-1] - inside[0]) / (len(inside) - 1)
            if len(row) == 3:  # both had a whole step
                rows.append(row)
        return rows
