"""Steady work for the device that is queued ahead, and polling of NVML beside it."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from typing import Any

CHUNK_S = 0.05
"""Work is queued in pieces of about so long."""
SIZES = {"cuda": 8192, "cpu": 128}
"""Rows and columns of the matrices."""
AHEAD_S = 0.2
"""So much is queued before it is needed."""


class Load:
    """Matrix products that keep the device busy while the host does something else.

    On a CPU each call of `feed` computes for a short while: the machine's own NVML, if it has one,
    is polled all the same.

    Args:
        device: `cuda` or `cpu`.
        dtype: name of torch's; bfloat16 saturates a GPU's power.
    """

    def __init__(self, device: str, dtype: str = "bfloat16") -> None:
        import torch

        self.device = device
        size = SIZES[device]
        kind = getattr(torch, dtype) if device == "cuda" else torch.float32
        self._x = torch.randn(size, size, device=device, dtype=kind) / size
        self._y = torch.empty_like(self._x)
        self._mm = torch.mm
        self._events: list[Any] = []
        self.product_s = self._time()
        self._num = max(1, int(CHUNK_S / self.product_s))

    def _time(self) -> float:
        for _ in range(3):
            self._mm(self._x, self._x, out=self._y)
        self.wait()
        start = time.perf_counter()
        for _ in range(10):
            self._mm(self._x, self._x, out=self._y)
        self.wait()
        return (time.perf_counter() - start) / 10

    def feed(self) -> None:
        """Queues more as soon as the device has little left; never waits for it."""
        if self.device == "cpu":
            self._mm(self._x, self._x, out=self._y)
            return
        import torch

        self._events = [event for event in self._events if not event.query()]
        while len(self._events) * CHUNK_S < AHEAD_S:
            for _ in range(self._num):
                self._mm(self._x, self._x, out=self._y)
            event = torch.cuda.Event()  # type: ignore[no-untyped-call]
            event.record()
            self._events.append(event)

    def run(self, seconds: float) -> None:
        """Keeps the device busy for so long."""
        end_s = time.monotonic() + seconds
        while time.monotonic() < end_s:
            self.feed()
            time.sleep(0.005)

    def wait(self) -> None:
        """For all that is queued."""
        if self.device == "cuda":
            import torch

            torch.cuda.synchronize()


def gpu_handle(device: str) -> Any:
    """NVML's handle of the device under test; of the first GPU where torch sees none.

    Raises:
        NvmlRefusedError: no driver, or no GPU.
    """
    from batchadvisor.probes.nvml.gpus import find_handle

    if device != "cuda":
        return find_handle(0)
    from batchadvisor.probes.devices.gpus_in_use import uuid_of

    uuid = uuid_of(0)
    return find_handle(0 if uuid is None else uuid)


def gpu_of(device: str) -> str | int:
    """The same for `NvmlSampler`."""
    if device != "cuda":
        return 0
    from batchadvisor.probes.devices.gpus_in_use import uuid_of

    return uuid_of(0) or 0


def poll(
    read: Callable[[], float],
    seconds: float,
    *,
    pause_s: float = 0.001,
    meanwhile: Callable[[], None] | None = None,
) -> list[tuple[float, float]]:
    """(seconds since the beginning, value) as often as it can be read.

    Args:
        read: one question to the driver.
        pause_s: between two of them.
        meanwhile: called before each.
    """
    began_s = time.perf_counter()
    rows = []
    while True:
        if meanwhile is not None:
            meanwhile()
        value = read()
        now_s = time.perf_counter() - began_s
        rows.append((now_s, value))
        if now_s >= seconds:
            return rows
        time.sleep(pause_s)


def changes(rows: list[tuple[float, float]]) -> list[float]:
    """When the value was first seen to differ from the one before."""
    return [later[0] for before, later in itertools.pairwise(rows) if later[1] != before[1]]


def distances(times: list[float]) -> list[float]:
    """Between one and the next."""
    return [later - before for before, later in itertools.pairwise(times)]


def packed(rows: list[tuple[float, float]]) -> dict[str, list[float]]:
    """A recording as two columns: only where the value changed, and the ends."""
    kept = [
        row
        for place, row in enumerate(rows)
        if place in (0, len(rows) - 1) or row[1] != rows[place - 1][1]
    ]
    return {"time_s": [round(row[0], 5) for row in kept], "value": [row[1] for row in kept]}
