"""The hooks into torch, each time in a process of its own: they are never undone."""

import json
import subprocess
import sys

import pytest

START = """
import gc, json, os, sys, torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from batchadvisor.probes.worker.patches import install
from batchadvisor.probes.doors.loader import LoaderDoor
from batchadvisor.probes.doors.script_watch import ScriptWatch

class Listener:
    sizes = iter([5, 50, 3])
    discovery = None
    seen = []
    elsewhere = 0

    def found(self, loop):
        self.discovery, self.num_ahead = loop.discovery, loop.num_ahead
        self.boundary()

    def boundary(self, num_steps=1):
        size = next(self.sizes, None)
        if size is None:
            seen = self.discovery
            self.tell([self.seen, seen.primary.num_samples, seen.native_batch_size,
                       seen.micro_batches, seen.primary_loader, seen.parameter_device])
        door.ask(size)

    def tell(self, what):
        print(json.dumps(what), flush=True)
        os._exit(0)

    def arrived(self, num_samples, proof, wait_s, *, primary):
        self.seen.append([num_samples, proof, primary])

    def epoch_began(self):
        self.num_epochs = getattr(self, "num_epochs", 0) + 1

    def stepped_elsewhere(self):
        self.elsewhere += 1

    def left(self, other, num_steps):
        self.tell([str(other), num_steps])

    def discovering(self, num_steps):
        pass

    def cannot_steer(self, reason, remedy, *, usage=False, **_):
        self.tell([reason, usage])

def tell_rhythm(loop):
    seen = loop.discovery
    listener.tell([seen.micro_batches, seen.steps_per_batch, seen.pool,
                   [each.name for each in seen.optimizers if each.trains]])

def step(batch):
    optimizer.zero_grad()
    nn.functional.mse_loss(model(batch[0]), batch[1]).backward()
    optimizer.step()

# torch is imported once, with all that a first step imports; each case gets a fork.
model = nn.Linear(20, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
step((torch.zeros(2, 20), torch.zeros(2, 1)))
gc.collect()
gc.freeze()  # looks through all live objects see those of the case; these pages stay shared
for line in sys.stdin:
    code, loader = json.loads(line)
    pid = os.fork()
    if pid:
        os.waitpid(pid, 0)
        print(json.dumps("the case ended early"), flush=True)
        continue
    torch.set_num_threads(1)
    saved = []
    listener = Listener()
    door = LoaderDoor(ScriptWatch(()), loader=loader, started_s=0.0)
    door.report_to(listener)
    install(door, saved.append)
    data = TensorDataset(torch.randn(100, 20), torch.randn(100, 1))
    model = nn.Linear(20, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    try:
        exec(code)
    finally:
        os._exit(0)
"""


@pytest.fixture(scope="session")
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
    """What the listener said, for a script that trains on `data` with `step`."""

    def _run(code, loader=None):
        code = f"os.chdir({str(tmp_path)!r})\n{code}"
        server.stdin.write(json.dumps([code, loader]) + "\n")
        server.stdin.flush()
        told = json.loads(server.stdout.readline())
        if told != "the case ended early":
            server.stdout.readline()
        return told

    return _run
