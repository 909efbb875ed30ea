"""Short epochs whose workers start anew each time: what samples per second of steps leave out."""

import pytest

from .driver import run

OPTIONS = ("--json", "-q", "-o", "out", "--no-profile", "--sizes", "8", "--budget", "20s")
SCRIPT = """
import sys
import torch
from torch.utils.data import DataLoader, TensorDataset

data = TensorDataset(torch.randn(160, 4))
loader = DataLoader(
    data, batch_size=8, num_workers=2, persistent_workers="keep" in sys.argv,
    worker_init_fn=lambda _: __import__("time").sleep(0.5),
)
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for epoch in range(1000):
    for (x,) in loader:
        optimizer.zero_grad()
        model(x).mean().backward()
        optimizer.step()
"""


@pytest.mark.slow
@pytest.mark.parametrize("keeps", [False, True])
def test_workers_that_each_epoch_starts_anew(keeps, tmp_path):
    """The remedy is applied in the second case."""
    (tmp_path / "train.py").write_text(SCRIPT)
    done = run("run", *OPTIONS, "train.py", *(("keep",) if keeps else ()), folder=tmp_path)
    assert done.code == 0, done
    primary = done.record.discovery.primary
    assert primary.persistent_workers is keeps
    assert primary.start_s >= 0.5
    found = done.findings
    assert ("workers.start" in found) is not keeps
    if not keeps:
        assert found["workers.start"].remedy.startswith("one DataLoader for all epochs")
