"""Several cards that exchange gradients: values that ranks compare, times, and what a run says."""

import json

import pytest
from batchadvisor.advisor.advise import advise

from .planted import card

pytestmark = pytest.mark.gpu_build
GB_S, LATENCY_US = 5, 100
MACHINE = f"nccl_gb_s = {GB_S}\nnccl_latency_us = {LATENCY_US}\n"
QUICK = {"memory_mib": 8192, "pageable_gb_s": 1000, "wave_us": 1.0}
RANKS = ("-m", "torch.distributed.run", "--nproc-per-node", "2")

VALUES = """
import json, os, sys
import torch
from torch import distributed

rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(rank)
distributed.init_process_group("nccl")
said = {}


def card(values, dtype=torch.float32):
    return torch.tensor(values, dtype=dtype).cuda()


for dtype in (torch.float32, torch.float16, torch.bfloat16, torch.int64):
    for how in ("SUM", "MAX", "AVG"):
        part = card([3 * rank + 1, 2 - 2 * rank], dtype)
        distributed.all_reduce(part, getattr(distributed.ReduceOp, how))
        said[f"{dtype} {how}"] = part.tolist()
large = card([2**60 + rank], torch.int64)
distributed.all_reduce(large)
said["large"] = large.tolist()
objects = [None, None]
distributed.all_gather_object(objects, {"rank": rank})
said["objects"] = objects
sent = card([rank, 7.0])
distributed.broadcast(sent, 1)
said["broadcast"] = sent.tolist()
out = torch.zeros(1).cuda()
distributed.reduce_scatter_tensor(out, card([rank + 1.0, rank + 10.0]))
said["scattered"] = out.tolist()
got = torch.zeros(2).cuda()
distributed.all_to_all_single(got, card([10.0 * rank, 10.0 * rank + 1]))
said["all to all"] = got.tolist()
got = torch.zeros(1).cuda()
both = [
    distributed.P2POp(distributed.isend, card([rank + 0.5]), 1 - rank),
    distributed.P2POp(distributed.irecv, got, 1 - rank),
]
for work in distributed.batch_isend_irecv(both):
    work.wait()
said["neighbour"] = got.tolist()
own = distributed.new_group([0, 1])
distributed.barrier(own)
large = torch.zeros(5_000_000, device="cuda")
start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
distributed.all_reduce(large)
torch.cuda.synchronize()
taken = []
for _ in range(7):
    distributed.barrier()
    torch.cuda.synchronize()
    start.record()
    torch.cuda._sleep(10_000_000 * (1 + rank))  # the ranks wait for the slower one
    distributed.all_reduce(large)
    end.record()
    end.synchronize()
    taken.append(start.elapsed_time(end))
said["ms"] = sorted(taken)[3]  # hosts start apart, now and then far
with open(f"said-{rank}.json", "w") as file:
    json.dump(said, file)
distributed.destroy_process_group()
"""


def test_values_and_times(machine, tmp_path):
    gpu = machine(MACHINE + 2 * card(**QUICK))
    (tmp_path / "ranks.py").write_text(VALUES)
    gpu.run(*RANKS, "ranks.py")
    for rank in (0, 1):
        said = json.loads((tmp_path / f"said-{rank}.json").read_text())
        for dtype in ("float32", "float16", "bfloat16", "int64"):
            assert said[f"torch.{dtype} SUM"] == [5, 2]
            assert said[f"torch.{dtype} MAX"] == [4, 2]
            assert said[f"torch.{dtype} AVG"] == ([2.5, 1] if dtype != "int64" else [2, 1])
        assert said["large"] == [2**61 + 1]
        assert said["objects"] == [{"rank": 0}, {"rank": 1}]
        assert said["broadcast"] == [1, 7]
        assert said["scattered"] == [[3, 21][rank]]
        assert said["all to all"] == [rank, 10 + rank]
        assert said["neighbour"] == [1.5 - rank]
        exchange_ms = LATENCY_US / 1e3 + 4 * 5_000_000 / GB_S / 1e6
        assert said["ms"] == pytest.approx(20 + exchange_ms, abs=3)


DDP = """
import os
import torch
from torch import distributed, nn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(rank)
distributed.init_process_group("nccl")
layers = [nn.Linear(2048, 2048, bias=False) for _ in range(4)]
model = nn.parallel.DistributedDataParallel(nn.Sequential(*layers).cuda(), bucket_cap_mb=1000)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
data = TensorDataset(torch.zeros(1, 2048).expand(1 << 16, -1))
for (rows,) in DataLoader(data, batch_size=32, sampler=DistributedSampler(data), pin_memory=True):
    optimizer.zero_grad()
    loss = model(rows.cuda(non_blocking=True)).mean()
    torch.cuda._sleep(800_000 * len(rows))
    loss.backward()
    optimizer.step()
distributed.destroy_process_group()
"""


def test_a_run_finds_the_time_of_an_all_reduce(machine, tmp_path):
    gpu = machine(MACHINE + 2 * card(**QUICK))
    (tmp_path / "train.py").write_text(DDP)
    record = gpu.advise(
        "--nproc-per-node", "2", "--sizes", "32", "--budget", "40s", "train.py", timeout_s=200
    )
    exchange_s = LATENCY_US / 1e6 + 4 * 4 * 2048**2 / GB_S / 1e9
    compute_s = 0.0256
    (trial,) = {trial.batch_size: trial for trial in record.trials if trial.profile}.values()
    assert trial.step_s.median == pytest.approx(compute_s + exchange_s, rel=0.05)
    share = 100 * exchange_s / (compute_s + exchange_s)
    # On top of it ranks wait for the one whose host was later.
    assert share - 1 <= trial.profile.exposed_communication_pct <= share + 4
    (paired,) = record.distribution.communication
    for rank in paired.ranks:
        assert exchange_s <= 1.01 * min(rank.exposed_s) <= 1.25 * exchange_s
    assert advise(record).verdict.limit == "communication"


DATA_PARALLEL = """
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

model = nn.DataParallel(nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 10)).cuda())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
data = TensorDataset(torch.zeros(1, 256).expand(1025, -1), torch.zeros(1025, dtype=torch.long))
for epoch in range(1000):
    for rows, targets in DataLoader(data, batch_size=32):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(rows.cuda()), targets.cuda())
        loss.backward()
        optimizer.step()
"""


def test_data_parallel_with_an_uneven_tail(machine, tmp_path):
    gpu = machine(MACHINE + 2 * card(**QUICK))
    (tmp_path / "train.py").write_text(DATA_PARALLEL)
    record = gpu.advise("--sizes", "32,64", "--budget", "10s", "train.py")
    assert not [trial for trial in record.trials if trial.outcome != "ok"]
    found = [finding.message for finding in advise(record).findings]
    assert "the last step is cut into 1, 0: 1 of 2 GPUs have no work" in found
    assert "DataParallel" in record.explained.reason
