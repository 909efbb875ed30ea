"""The code that a plan gives, in a real job of two ranks: its gradient is that of one process."""

import json
import os

import pytest
from batchadvisor.features.plan.words import snippet_of_shares
from batchadvisor.reports.words.split_snippet import IN_THE_LOOP

from ..end_to_end.preloaded import Forked
from ..plans import gpu_record, plan_of, probed

pytestmark = pytest.mark.slow

AROUND = '''
import json, sys
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import TensorDataset

def model_of():
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 3))

torch.set_num_threads(1)
torch.manual_seed(5)
dataset = TensorDataset(torch.randn(200, 6), torch.randint(0, 3, (200,)))
plain = nn.functional.cross_entropy
rank = int(sys.argv[1])
dist.init_process_group("gloo", init_method=f"file://{sys.argv[2]}", rank=rank, world_size=2)

def loss_of(model, batch):
    return plain(model(batch[0]), batch[1])

def gradient(model):
    return torch.cat([parameter.grad.flatten() for parameter in model.parameters()])

class Optimizer:
    """Keeps what a step would take."""
    seen = None
    def step(self):
        Optimizer.seen = gradient(model)
    def zero_grad(self):
        model.zero_grad()

def expected(sizes):
    """The mean over all samples of the first step, in one process without ranks."""
    order = torch.randperm(200, generator=torch.Generator().manual_seed(0)).tolist()
    single = model_of()
    inputs, labels = dataset[order[: sum(sizes)]]
    plain(single(inputs), labels).backward()
    return gradient(single)

worst = []
for setup, loop, accumulates in json.loads(sys.argv[3]):
    space = {"dataset": dataset, "rank": rank}
    exec(setup, space)
    model = DistributedDataParallel(model_of())
    optimizer = Optimizer()
    if accumulates:
        space |= {"model": model, "optimizer": optimizer, "loss_of": loss_of}
        exec(loop, space)  # a whole epoch; the model never changes
        model.zero_grad()
        steps = list(space["sampler"])
        parts = space["PARTS"][rank]
        assert len(steps) == parts * (200 // sum(space["SIZES"]))
        model = DistributedDataParallel(model_of())
        space |= {"model": model, "loader": [dataset[batch] for batch in steps[:parts]]}
        exec(loop, space)
    else:
        space["loss"] = loss_of(model, next(iter(space["loader"])))
        exec(loop, space)
        space["loss"].backward()
        optimizer.step()
    worst.append((Optimizer.seen - expected(space["SIZES"])).abs().max().item())
print(json.dumps(worst))
'''


def parts_of(plan):
    """What the code defines on each rank, the lines for the loop, whether these are a loop."""
    code = snippet_of_shares(plan.options[0].shares)
    setup, loop = code.split(IN_THE_LOOP)
    return setup, loop, "PARTS" in setup


def unequal(global_batch, sizes):
    """A quick GPU and a slow one."""
    fast = gpu_record("NVIDIA A100", 0.001, 0.0005, sizes=sizes, fails=(max(sizes) + 1,))
    slow = gpu_record("Tesla T4", 0.001, 0.0015, sizes=sizes, fails=(max(sizes) + 1,))
    return plan_of(
        probed("a100", 1, record=fast), probed("t4", 1, record=slow), global_batch=global_batch
    )


def test_the_gradient_is_that_of_one_process(tmp_path):
    whole, accumulated = unequal(40, (2, 4, 8, 16, 32)), unequal(40, (1, 2, 4, 8))
    assert [share.batch_size for share in whole.options[0].shares] == [30, 10]
    assert [share.micro_batches for share in accumulated.options[0].shares] == [4, 2]
    given = json.dumps([parts_of(whole), parts_of(accumulated)])
    script = tmp_path / "rank.py"
    script.write_text(AROUND)
    where = {"script": script, "cwd": tmp_path, "env": {**os.environ, "OMP_NUM_THREADS": "1"}}
    jobs = [Forked((rank, tmp_path / "meet", given), **where) for rank in range(2)]
    for job in jobs:
        out, error = job.communicate(timeout=120)
        assert job.returncode == 0, error
        worst = json.loads(out.splitlines()[-1])
        assert len(worst) == 2
        assert max(worst) < 1e-6, worst
