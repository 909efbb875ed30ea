"""Runs in two gloo processes: `python two_ranks.py RANK FOLDER CASE...`; rank r writes r.json.

Not a test module: test_two_ranks.py starts it and reads what each rank saw.
"""

import json
import os
import sys
import time
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.join import Join
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler

WORLD = 2
MEETING_S = 120
TIMEOUT_S = 5


def linear(group=None):
    """A model whose gradient under a loss of its output is the mean of the inputs."""
    layer = nn.Linear(1, 1, bias=False)
    nn.init.constant_(layer.weight, 1.0)
    return DistributedDataParallel(layer, process_group=group)


def gradient(model):
    return model.module.weight.grad.item()


def no_sampler(rank):
    """Samples that a rank trains on in an epoch of 10, without and with a sampler."""
    model, drawn = linear(), {}
    for name in ("plain", "distributed"):
        sampler = DistributedSampler(range(10)) if name == "distributed" else None
        drawn[name] = 0
        for batch in DataLoader(torch.arange(10.0), 4, sampler=sampler):
            model(batch[:, None]).mean().backward()
            drawn[name] += len(batch)
    return drawn


def uneven_sizes(rank):
    """Gradients of 6 and 2 samples: of the mean of means, repaired, and of all samples."""
    data = torch.arange(8.0)[:, None]
    own = data[:6] if rank == 0 else data[6:]
    model = linear()
    model(own).mean().backward()
    plain = gradient(model)
    model.zero_grad()
    n_local = torch.tensor(float(len(own)))
    n_global = n_local.clone()
    dist.all_reduce(n_global)
    (model(own).mean() * n_local * WORLD / n_global).backward()
    return {"plain": plain, "repaired": gradient(model), "exact": data.mean().item()}


def join(rank):
    """The last gradient of rank 0, which has a batch more, under both divisors."""
    last = {}
    for name, initial in (("initial", True), ("left", False)):
        model = linear()
        batches = [torch.full((2, 1), value) for value in ((1.0, 3.0) if rank == 0 else (1.0,))]
        with Join([model], divide_by_initial_world_size=initial):
            for batch in batches:
                model.zero_grad()
                model(batch).mean().backward()
        last[name] = gradient(model)
    return last


def join_throws(rank):
    """Both ranks are told when the first is done."""
    model = linear()
    steps = 0
    try:
        with Join([model], throw_on_early_termination=True):
            for _ in range(2 - rank):
                model(torch.ones(1, 1)).mean().backward()
                steps += 1
    except RuntimeError as error:
        return {"steps": steps, "error": str(error)}
    return {"steps": steps, "error": ""}


def sync_batch_norm(rank):
    """SyncBatchNorm on CPU tensors while a process group runs."""
    layer = nn.SyncBatchNorm(3)
    try:
        layer(torch.randn(4, 3))
    except ValueError as error:
        return {"error": str(error)}
    return {"error": ""}


def sync_batch_norm_gpu(rank):
    """The running mean that ranks of 3 and 1 samples agree on; both use the first GPU."""
    layer = nn.SyncBatchNorm(1).cuda()
    own = [0.0, 1.0, 2.0] if rank == 0 else [7.0]
    layer(torch.tensor(own, device="cuda")[:, None])
    return {"mean": layer.running_mean.item()}


def uneven_steps(rank, *, stays):
    """Rank 0 makes a step more than rank 1, which leaves or stays alive."""
    model = linear(dist.new_group(timeout=timedelta(seconds=TIMEOUT_S)) if stays else None)
    steps, start = 0, time.monotonic()
    try:
        for batch in DataLoader(torch.arange(9.0)[rank::WORLD], 4):
            start = time.monotonic()
            model(batch[:, None]).mean().backward()
            steps += 1
    except RuntimeError as error:
        return {"steps": steps, "error": str(error), "waited_s": time.monotonic() - start}
    if stays:
        time.sleep(3 * TIMEOUT_S if rank == 1 else 0)
    return {"steps": steps, "error": "", "waited_s": 0.0}


CASES = {
    "no_sampler": no_sampler,
    "uneven_sizes": uneven_sizes,
    "join": join,
    "join_throws": join_throws,
    "sync_batch_norm": sync_batch_norm,
    "sync_batch_norm_gpu": sync_batch_norm_gpu,
    "leaves": lambda rank: uneven_steps(rank, stays=False),
    "stays": lambda rank: uneven_steps(rank, stays=True),
}


def main():
    rank, folder, names = int(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:]
    dist.init_process_group(
        "gloo",
        init_method=f"file://{folder}/meet",
        rank=rank,
        world_size=WORLD,
        timeout=timedelta(seconds=MEETING_S),
    )
    torch.set_num_threads(1)
    seen = {name: CASES[name](rank) for name in names}
    # Before anything can go wrong in the end of the group.
    (folder / f"{rank}.json").write_text(json.dumps(seen))
    os._exit(0)


if __name__ == "__main__":
    main()
