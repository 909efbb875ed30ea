"""The hooks into torch, each time in a process of its own: they are never undone."""

import json
import subprocess
import sys

import pytest

START = """
import json, os, sys, torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from batchadvisor.probes.patches import install
from batchadvisor.probes.steering import Steering

class Conductor:
    sizes = iter([5, 50, 3])
    discovery = None
    seen = []

    def found(self, discovery, device):
        self.discovery = discovery
        self.boundary()

    def boundary(self):
        size = next(self.sizes, None)
        if size is None:
            told = [self.seen, self.discovery.primary.num_samples,
                    self.discovery.native_batch_size, self.discovery.micro_batches,
                    self.discovery.primary_loader, self.discovery.parameter_device]
            print(json.dumps(told), flush=True)
            os._exit(0)
        steering.ask(size)

    def arrived(self, num_samples, proof, wait_s, *, primary):
        self.seen.append([num_samples, proof, primary])

    def discovering(self, num_steps):
        pass

    def cannot_steer(self, reason, remedy, *, usage=False, door=None):
        print(json.dumps([reason, usage]), flush=True)
        os._exit(0)

def step(batch):
    optimizer.zero_grad()
    nn.functional.mse_loss(model(batch[0]), batch[1]).backward()
    optimizer.step()

# torch is imported once, with all that a first step imports; each case gets a fork.
model = nn.Linear(20, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
step((torch.zeros(2, 20), torch.zeros(2, 1)))
for line in sys.stdin:
    code, loader = json.loads(line)
    pid = os.fork()
    if pid:
        os.waitpid(pid, 0)
        print(json.dumps("the case ended early"), flush=True)
        continue
    torch.set_num_threads(1)
    saved = []
    steering = Steering(Conductor(), loader=loader, batch_cap=None, arguments=(), started_s=0.0)
    install(steering, saved.append)
    data = TensorDataset(torch.randn(100, 20), torch.randn(100, 1))
    model = nn.Linear(20, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    try:
        exec(code)
    finally:
        os._exit(0)
"""
STEERED = [[5, "shape", True], [50, "shape", True], [3, "shape", True]]


@pytest.fixture(scope="module")
def server():
    process = subprocess.Popen(
        [sys.executable, "-c", START], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    yield process
    process.stdin.close()
    process.stdout.close()
    assert process.wait() == 0


@pytest.fixture
def run(server, tmp_path):
    """What the conductor said, for a script that trains on `data` with `step`."""

    def _run(code, loader=None):
        code = f"os.chdir({str(tmp_path)!r})\n{code}"
        server.stdin.write(json.dumps([code, loader]) + "\n")
        server.stdin.flush()
        told = json.loads(server.stdout.readline())
        if told != "the case ended early":
            server.stdout.readline()
        return told

    return _run


class TestSteered:
    @pytest.mark.parametrize(
        "code",
        [
            "loader = DataLoader(data, batch_size=8)\nfor batch in loader: step(batch)",
            # Nothing holds the loader but its iterator.
            "for batch in DataLoader(data, batch_size=8): step(batch)",
            "it = iter(DataLoader(data, 8))\nwhile True: step(next(it))",
        ],
        ids=["named", "in the loop's head", "iterator"],
    )
    def test_loops(self, run, code):
        assert run(code) == [STEERED, 100, 8, 1, 0, "cpu"]

    def test_chosen_loader(self, run):
        code = (
            "one, two = DataLoader(data, batch_size=8), DataLoader(data, batch_size=4)\n"
            "for a, b in zip(one, two): step(a); step(b)"
        )
        seen, _, native, _, primary, _ = run(code, loader=1)
        assert (native, primary) == (4, 1)
        assert [one[0] for one in seen if one[2]] == [5, 50, 3]
        # The other keeps its ratio of two to one; it is fetched first, so it follows a step later.
        assert [one[0] for one in seen if not one[2]][:3] == [10, 10, 100]

    @pytest.mark.parametrize(
        ("loader", "part"), [(7, "numbered from 0"), (0, "yields nothing between")]
    )
    def test_a_loader_that_cannot_be_chosen(self, run, loader, part):
        code = (
            "other = DataLoader(data, batch_size=4)\n"
            "for batch in DataLoader(data, batch_size=8): step(batch)"
        )
        reason, usage = run(code, loader=loader)
        assert part in reason
        assert usage

    def test_steps_without_batches(self, run):
        reason, usage = run("while True: step(data[:8])")
        assert "without fetching a batch" in reason
        assert not usage

    def test_a_dataset_that_batches_itself(self, run):
        code = "for _ in range(9):\n  for row in DataLoader(data, batch_size=None): step(row)"
        reason, _ = run(code)
        assert "the dataset batches itself" in reason


class TestSave:
    def test_nothing_is_written(self, run, tmp_path):
        code = "torch.save(model, 'model.pt')\nprint(json.dumps(saved), flush=True)"
        assert run(code) == ["model.pt"]
        assert list(tmp_path.iterdir()) == []
