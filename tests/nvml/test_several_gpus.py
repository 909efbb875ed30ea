"""Scripts that use several GPUs in one process: they see all that the user allows.

The driver is the stand-in with four GPUs, the scripts train on the CPU and are shaped like those
that do so on GPUs: each insists on as many as the user allows.
"""

import pytest

from ..end_to_end.driver import run_preloaded
from ..end_to_end.preloaded import Preload
from ..ports import free_ports

pytestmark = pytest.mark.slow

COMMON = """
import os
import pynvml
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

def num_visible():
    value = os.environ.get("CUDA_VISIBLE_DEVICES")
    pynvml.nvmlInit()
    return pynvml.nvmlDeviceGetCount() if value is None else len(value.split(","))

print("SEES", os.environ.get("CUDA_VISIBLE_DEVICES", "all"), flush=True)
expected = int(os.environ["EXPECTED"])
assert num_visible() == expected, num_visible()
data = TensorDataset(torch.ones(512, 16), torch.ones(512, 1))

def train(model, forward):
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    loader = DataLoader(data, batch_size=16)
    for epoch in range(10_000):
        for inputs, targets in loader:
            optimizer.zero_grad()
            nn.functional.mse_loss(forward(inputs), targets).backward()
            optimizer.step()
"""
DATA_PARALLEL = """
model = nn.Linear(16, 1)
replicas = range(num_visible())
train(model, lambda inputs: torch.cat([model(part) for part in inputs.chunk(len(replicas))]))
"""
SPREAD = """
stages = nn.ModuleList(nn.Linear(16, 16) for _ in range(num_visible()))
names = [f"cuda:{number}" for number, _ in enumerate(stages)]
assert names[-1] == f"cuda:{expected - 1}"
head = nn.Linear(16, 1)
def forward(inputs):
    for stage in stages:
        inputs = stage(inputs)
    return head(inputs)
train(nn.ModuleList([stages, head]), forward)
"""
SPAWN = """
import torch.distributed as dist
import torch.multiprocessing as mp

def rank(number, world):
    assert num_visible() == world
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=os.environ["OWN_PORT"])
    dist.init_process_group("gloo", rank=number, world_size=world)
    model = nn.parallel.DistributedDataParallel(nn.Linear(16, 1))
    train(model, model)

if __name__ == "__main__":
    mp.spawn(rank, args=(num_visible(),), nprocs=num_visible())
"""


@pytest.fixture
def run(stub_folder, tmp_path, monkeypatch):
    """Runs a script with the stand-in; the record, and what each process of the script saw."""
    # Where libraries are looked for, a process knows from its start.
    preload = Preload(variables=(("LD_LIBRARY_PATH", str(stub_folder)),))

    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)

    def start(text, stub="gpus=4,alike=1", num=4, options=(), spares=0, **variables):
        (tmp_path / "train.py").write_text(COMMON + text)
        words = ["run", "--device", "auto", "--sizes", "8", "--budget", "15s", "--no-profile"]
        words += ["--goal", "memory", "--json", "-o", "run", *options, "train.py"]
        environment = {
            **dict(preload.variables), "SOFTWARE_GPU_NVML": stub, "EXPECTED": str(num),
            "OWN_PORT": str(free_ports()), **variables,
        }  # fmt: skip
        given = {"variables": environment, "preload": preload, "spares": spares}
        done = run_preloaded(*words, folder=tmp_path, **given)
        assert done.code == 0, done
        lines = done.log.splitlines()
        return done.answer, [line.split(" ", 1)[1] for line in lines if line.startswith("SEES ")]

    return start


@pytest.mark.parametrize(
    ("script", "given", "visible"),
    [
        (SPREAD, {}, "all"),
        (SPREAD, {"num": 2, "CUDA_VISIBLE_DEVICES": "3,1",
                  "stub": "gpus=4,alike=1,3.used_mib=16000"}, "3,1"),
        (DATA_PARALLEL, {"num": 1, "CUDA_VISIBLE_DEVICES": "3,1",
                         "options": ("--device", "cuda:1")}, "1"),
    ],
    ids=["all", "what the user set", "one of those that the user allows"],
)  # fmt: skip
def test_what_the_user_allows_is_visible(run, script, given, visible):
    _, seen = run(script, **given)
    assert set(seen) == {visible}


def test_the_freest_first_and_all_visible(run):
    _, seen = run(DATA_PARALLEL, stub="gpus=4,alike=1,0.used_mib=15000")
    (only,) = set(seen)
    assert [part[:12] for part in only.split(",")] == [
        f"GPU-0000000{number}" for number in (1, 0, 2, 3)
    ]


def test_ranks_that_the_script_spawns(run):
    """As many as there are GPUs: `mp.spawn(nprocs=device_count())`."""
    answer, seen = run(SPAWN, stub="gpus=4,alike=1", spares=4)
    assert set(seen) == {"all"}
    assert answer["record"]["distribution"]["world_size"] == 4
