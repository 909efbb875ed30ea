"""A short profiled window with torch.profiler, written as TensorBoard and its plugin read it."""

from __future__ import annotations

import time
from pathlib import Path

import torch

from ...records import Profile

TRACES = "traces"
"""Folder below the run's folder: the log directory for TensorBoard, one run per size."""


def trace_path(run_folder: Path, batch_size: int, worker: int, ordinal: int) -> Path:
    """Where a trace goes: `traces/batch_size=0064/w0t3.<ms>.pt.trace.json`.

    The plugin takes a folder for a run and `<worker>.<milliseconds>.pt.trace.json` for its file;
    the padding keeps the runs in order of size, since TensorBoard sorts names as text.
    """
    folder = run_folder / TRACES / f"batch_size={batch_size:04d}"
    return folder / f"w{worker}t{ordinal}.{time.time_ns() // 1_000_000}.pt.trace.json"


class TraceProfiler:
    """torch.profiler over one schedule of (wait, warm-up, active) steps.

    Shapes are recorded; stacks only on demand, since they slow short steps down a lot.
    """

    def __init__(
        self,
        path: Path,
        run_folder: Path,
        device_type: str,
        schedule: tuple[int, int, int],
        *,
        with_stack: bool,
    ) -> None:
        wait, warmup, active = schedule
        self._path = path
        self._run_folder = run_folder
        self._total = wait + warmup + active
        self._active = active
        self._num_steps = 0
        activities = [torch.profiler.ProfilerActivity.CPU]
        for kind, name in (("cuda", "CUDA"), ("xpu", "XPU")):
            if device_type == kind and hasattr(torch.profiler.ProfilerActivity, name):
                activities.append(getattr(torch.profiler.ProfilerActivity, name))
        self._profiler = torch.profiler.profile(
            activities=activities,
            schedule=torch.profiler.schedule(wait=wait, warmup=warmup, active=active, repeat=1),
            record_shapes=True,
            with_stack=with_stack,
        )

    def start(self) -> None:
        """Starts; the first of the schedule's steps begins.

        Raises:
            RuntimeError: another profiler runs, the script's own for example.
        """
        if torch.autograd._profiler_enabled():  # type: ignore[attr-defined]
            msg = "the script runs a profiler of its own"
            raise RuntimeError(msg)
        self._profiler.start()

    def step(self) -> bool:
        """Ends a step; true when the schedule is complete."""
        self._num_steps += 1
        if self._num_steps < self._total:
            self._profiler.step()
            return False
        return True

    def finish(self) -> Profile:
        """Stops and writes the trace; a reader never sees half a file."""
        self._profiler.stop()
        self._path.parent.mkdir(parents=True, exist_ok=True)
        # Not named like a trace until it is whole.
        draft = self._path.with_name(f".draft-{self._path.name}")
        try:
            self._profiler.export_chrome_trace(str(draft))
            draft.replace(self._path)
        finally:
            draft.unlink(missing_ok=True)
        return Profile(trace=str(self._path.relative_to(self._run_folder)), num_steps=self._active)

    def abandon(self) -> None:
        """Stops without a trace."""
        self._profiler.stop()
