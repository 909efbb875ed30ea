"""The largest size on planted capacities: what the run says is what torch accepts."""

import pytest
from batchadvisor.advisor.advise import advise

from .planted import card

pytestmark = pytest.mark.gpu_build
MIB = 2**20
CAPACITY, CONTEXT = 4096, 400
HELD = 5
"""Pieces that a step holds at once, each of a MiB a sample."""

SCRIPT = """
import sys
import torch
from torch.utils.data import DataLoader, TensorDataset


def work(size):
    held = [torch.empty(size << 20, dtype=torch.uint8, device="cuda") for _ in range({held})]
    torch.cuda._sleep(3_000_000 + 10_000 * size)
    del held


class Layer(torch.autograd.Function):
    @staticmethod
    def forward(context, rows):
        if {place!r} == "forward":
            work(len(rows))
        return rows.clone()

    @staticmethod
    def backward(context, gradient):
        if {place!r} == "backward":
            work(len(gradient))
        return gradient


class Sgd(torch.optim.SGD):
    def step(self):
        if {place!r} == "optimizer":
            work(size)
        super().step()


loader = DataLoader(TensorDataset(torch.zeros(50_000, 16)), batch_size=8)
model = torch.nn.Linear(16, 16).cuda()
optimizer = Sgd(model.parameters(), 0.1)
for (rows,) in loader:
    size = len(rows)
    optimizer.zero_grad()
    Layer.apply(model(rows.cuda())).mean().backward()
    optimizer.step()
"""

LARGEST = """
import os, sys
import torch
from torch.utils.data import DataLoader
text = open("train.py").read()
made, sizes = DataLoader.__init__, []
DataLoader.__init__ = lambda self, data, batch_size: made(
    self, torch.utils.data.Subset(data, range(3 * sizes[-1])), sizes[-1])


def reserved(size):
    sizes.append(size)
    torch.cuda.empty_cache()
    torch._C._cuda_clearCublasWorkspaces()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    exec(compile(text, "train.py", "exec"), {"__name__": "__main__"})
    return torch.cuda.max_memory_reserved()


low, high = 1, 4096
while high - low > 1:
    middle = (low + high) // 2
    if reserved(middle) <= float(sys.argv[1]):
        low = middle
    else:
        high = middle
print(low, flush=True)
os._exit(0)
"""


def largest(gpu, room_bytes):
    """By torch itself, whose card must have the room for sizes beyond it."""
    return int(gpu.script(LARGEST, room_bytes))


@pytest.mark.parametrize("place", ["forward", "backward", "optimizer"])
def test_the_largest_size(machine, tmp_path, place):
    gpu = machine(card(memory_mib=CAPACITY, context_mib=CONTEXT))
    (tmp_path / "train.py").write_text(SCRIPT.format(held=HELD, place=place))
    record = gpu.advise("--goal", "memory", "--budget", "25s", "--no-profile", "train.py")
    advice = advise(record)
    best = largest(machine(card(memory_mib=64 * CAPACITY)), 0.95 * (CAPACITY - CONTEXT) * MIB)
    outcomes = [(trial.batch_size, trial.outcome) for trial in record.trials]
    assert 0.95 * best <= advice.recommended.batch_size <= best, (best, outcomes)
    for size, outcome in outcomes:
        assert outcome in {"ok", "out_of_memory"}
        assert outcome == "ok" or size * HELD > CAPACITY - CONTEXT - 64, outcomes
