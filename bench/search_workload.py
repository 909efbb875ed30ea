"""A training script whose step raises above a limit; what every finder of search_cost.py searches.

The limit is SEARCH_LIMIT samples. With SEARCH_FIXED the device can be read as well: a peak of
fixed + slope x size that reaches the capacity at the limit, the fixed part a share of the capacity.
It is on paper, so that sizes up to 20,000 cost nothing and every finder sees the same machine. Each
step that is started is noted in SEARCH_LOG: process, size, whether it ran.

Steps on fake tensors see the tensors of that paper, and see them wrong: half of what is fixed, and
SEARCH_SEEN of what a sample takes.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils.data import DataLoader, Dataset

LIMIT = int(os.environ.get("SEARCH_LIMIT", "700"))
FIXED = float(os.environ["SEARCH_FIXED"]) if os.environ.get("SEARCH_FIXED") else None
LOG = os.environ.get("SEARCH_LOG", os.devnull)
SEEN = float(os.environ.get("SEARCH_SEEN", "0.88"))
CAPACITY = 80 * 2**30
FIXED_SEEN = 0.5
BLIND_FIXED = 0.1
"""Share of the capacity that is fixed where the device cannot be read."""
NUM_SAMPLES = 1_000_000
NUM_FEATURES = 16


class Meter:
    """The memory of the device on paper."""

    def __init__(self) -> None:
        self.largest = 0

    def reset(self) -> None:
        """Forgets the peak."""
        self.largest = 0

    def peak_bytes(self) -> int:
        """Since the last reset; a device that cannot be read says the same whatever runs."""
        if FIXED is None:
            return 10 * 2**20
        return int(CAPACITY * (FIXED + (1 - FIXED) * self.largest / LIMIT))


METER = Meter()


class Samples(Dataset[tuple[torch.Tensor, torch.Tensor]]):
    """Cheap ones: a batch is made at once."""

    def __len__(self) -> int:
        return NUM_SAMPLES

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.ones(NUM_FEATURES), torch.ones(1)

    def __getitems__(self, indices: Sequence[int]) -> Sequence[int]:
        return indices


def collate(indices: Sequence[int]) -> tuple[torch.Tensor, torch.Tensor]:
    """A batch of as many samples as were asked for."""
    return torch.ones(len(indices), NUM_FEATURES), torch.ones(len(indices), 1)


class Model(nn.Module):
    """Refuses more samples than fit, as an allocator does."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(NUM_FEATURES, 1)
        self.on_paper: list[torch.Tensor] = []

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        fake = isinstance(x, FakeTensor)
        fits = len(x) <= LIMIT
        with open(LOG, "a") as log:  # noqa: PTH123  one short write, appended
            log.write(f"{os.getpid()} {len(x)} {'fake' if fake else 'ok' if fits else 'oom'}\n")
        if fake:
            self.on_paper.clear()
            self.on_paper += tensors_on_paper(x)
        elif not fits:
            message = f"CUDA out of memory. Tried to allocate {len(x)} KiB. (on paper)"
            raise torch.OutOfMemoryError(message)
        if not fake:
            METER.largest = max(METER.largest, len(x))
        y: torch.Tensor = self.layer(x)
        return y


def tensors_on_paper(x: torch.Tensor) -> list[torch.Tensor]:
    """What a step on fake tensors takes of the device on paper, without contents."""
    fixed = BLIND_FIXED if FIXED is None else FIXED
    sample_bytes = SEEN * CAPACITY * (1 - fixed) / LIMIT
    sizes = (FIXED_SEEN * fixed * CAPACITY, sample_bytes * len(x))
    return [x.new_empty(int(size), dtype=torch.uint8) for size in sizes]


def loader_of(batch_size: int) -> DataLoader[tuple[torch.Tensor, torch.Tensor]]:
    """The loader that every finder resizes."""
    return DataLoader(Samples(), batch_size=batch_size, drop_last=True, collate_fn=collate)


def _put_on_paper() -> None:
    """Answers our own reading of the device from the meter; the rest of the run is real."""
    trial_runner = sys.modules.get("batchadvisor.probes.worker.trial_runner")
    if trial_runner is None:
        return
    from batchadvisor.probes.devices.torch_devices import CpuProbe  # noqa: PLC0415  only inside a worker of ours
    from batchadvisor.records import DeviceInfo, Memory  # noqa: PLC0415

    class PaperProbe(CpuProbe):
        def info(self) -> DeviceInfo:
            return DeviceInfo(
                kind="paper",
                name="a device on paper",
                total_bytes=CAPACITY,
                capacity_bytes=CAPACITY,
                capacity_source="on paper",
            )

        def reset_peaks(self) -> None:
            METER.reset()

        def read_memory(self) -> Memory:
            return Memory(peak_bytes=METER.peak_bytes(), peak_source="on paper")

    trial_runner.probe_of_model = lambda *_: PaperProbe(None)  # type: ignore[attr-defined]


def main() -> None:
    """Trains."""
    _put_on_paper()
    model = Model()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for x, y in loader_of(32):
        loss = nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    main()
