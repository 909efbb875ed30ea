"""A script that compiles its model trains on compiled code in every window, and compiles once.

A hook on every module, or a look into its operations, would make torch compile it anew, or run it
uncompiled from then on: another training than the one to be measured.
"""

import re

import pytest

from .driver import run

MODEL = """
import sys
import torch
from torch import nn

calls = {"compiled": 0, "ran": 0}

def backend(graph, inputs):
    calls["compiled"] += 1
    def run(*args):
        calls["ran"] += 1
        return graph.forward(*args)
    return run

def told(step, size):
    print(f"step {step} of {size}: compiled {calls['compiled']}, ran {calls['ran']}", flush=True)

model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.BatchNorm1d(64), nn.Linear(64, 4))
optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
model = torch.compile(model, backend=backend, dynamic=True)
"""
OWN_BATCHES = (
    MODEL
    + """
batch_size = 16
if len(sys.argv) > 1:
    batch_size = int(sys.argv[1].split("=")[1])
for step in range(4000):
    x, y = torch.randn(batch_size, 64), torch.randint(0, 4, (batch_size,))
    loss = nn.functional.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    told(step, batch_size)
"""
)
LOADER = (
    MODEL
    + """
from torch.utils.data import DataLoader, TensorDataset
data = TensorDataset(torch.randn(8192, 64), torch.randint(0, 4, (8192,)))
step = 0
for epoch in range(50):
    for x, y in DataLoader(data, batch_size=16, drop_last=True):
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        told(step, len(x))
        step += 1
"""
)
pytestmark = pytest.mark.slow
LINE = re.compile(r"step (\d+) of (\d+): compiled (\d+), ran (\d+)")


@pytest.mark.parametrize(
    ("text", "sizes", "arguments"),
    [
        (LOADER, ("--max-batch", "64"), ()),
        (OWN_BATCHES, ("--sizes", "16,64"), ("batch_size={batch_size}",)),
    ],
    ids=["loader", "own batches"],
)
def test_every_step_runs_compiled_code(tmp_path, text, sizes, arguments):
    (tmp_path / "train.py").write_text(text)
    words = ("--json", "-q", "--device", "cpu", "-o", "out", "--budget", "60s")
    done = run("run", *words, *sizes, "train.py", *arguments, folder=tmp_path)
    assert done.code == 0, done
    record = done.record
    assert record.discovery.compiled
    assert any(trial.profile is not None and trial.profile.trace for trial in record.trials)
    assert all("compiles its model" in trial.unavailable["flops"] for trial in record.trials[:1])
    log = (tmp_path / "out" / "script.log").read_text()
    lines = [tuple(map(int, found.groups())) for found in LINE.finditer(log)]
    assert len({size for _, size, _, _ in lines}) > 1
    for step, size, compiled, ran in lines:
        # BatchNorm alone may ask for another graph once sizes change.
        assert compiled <= 2, f"compiled anew at step {step} of {size}"
        assert ran == step + 1, f"{step + 1 - ran} steps of {size} ran uncompiled"
    assert "global hooks" not in log
