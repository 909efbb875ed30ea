"""A training that keeps something each step, and the same with the remedy applied."""

import pytest
import torch
from batchadvisor import ProfilingCallback
from batchadvisor.advisor.advise import advise
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

STEPS = 240
ROWS, WIDTH = 1024, 512
"""An output of 2 MiB: well above a thousandth of what a process holds."""


@pytest.fixture(autouse=True)
def one_thread():
    """On a busy machine threads that wait for each other take most of the time."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def findings(folder, keep):
    """Of a training whose step ends with `keep(output, loss)`."""
    model = nn.Linear(8, WIDTH)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    loader = DataLoader(TensorDataset(torch.randn(4 * ROWS, 8)), batch_size=ROWS)
    with ProfilingCallback(logdir=str(folder), profile=False, quiet=True) as prof:
        for _ in range(STEPS // 4):
            for (x,) in prof.watch(loader):
                optimizer.zero_grad()
                output = model(x)
                loss = output.square().mean()
                loss.backward()
                optimizer.step()
                keep(output, loss)
                prof.step()
    return [finding for finding in advise(prof.record).findings if finding.rule == "memory.creep"]


def test_outputs_that_are_kept_are_found_and_the_remedy_ends_it(tmp_path):
    losses = []
    (finding,) = findings(tmp_path / "kept", lambda output, _: losses.append(output))
    assert finding.severity == "warning"
    assert "resident memory" in finding.message
    assert "`losses`, a list, with the graph" in finding.message
    assert "losses.append(loss.item())" in finding.remedy
    losses.clear()
    assert findings(tmp_path / "mended", lambda _, loss: losses.append(loss.item())) == []


@pytest.mark.slow
def test_a_buffer_that_does_not_grow_is_none(tmp_path):
    ring = {}
    assert findings(tmp_path, lambda output, _: ring.update({len(ring) % 4: output})) == []
