"""The noise scale from ranks that accumulate, for torchrun: FOLDER; fixed weights, six runs."""

import json
import sys
from contextlib import nullcontext
from pathlib import Path

import torch
import torch.distributed as dist
from batchadvisor import ProfilingCallback
from noise_net import NUM_SAMPLES, problem
from torch import nn
from torch.nn.parallel import DistributedDataParallel

SMALL, STEPS = 8, 60
folder = Path(sys.argv[1])
dist.init_process_group("gloo")
rank = dist.get_rank()
net, x, y, _ = problem()


def measure(seed, passes):
    """Low, high, small and large batch; the last of `passes` backward passes synchronises."""
    model = DistributedDataParallel(net)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    generator = torch.Generator().manual_seed(1000 * seed + rank)
    draws = [
        torch.randint(NUM_SAMPLES, (SMALL,), generator=generator) for _ in range(STEPS * passes)
    ]
    log = folder / f"{seed}-{passes}"
    options = {"profile": False, "quiet": True, "noise_scale": True, "noise_every": 1}
    with ProfilingCallback(log, model=model, **options) as prof:
        for place, (a, b) in enumerate(prof.watch([(x[draw], y[draw]) for draw in draws])):
            last = place % passes == passes - 1
            with nullcontext() if last else model.no_sync():
                (nn.functional.mse_loss(model(a), b) / passes).backward()
            if last:
                optimizer.step()
                optimizer.zero_grad()
                prof.step()
    noise = prof.record.observed.noise_scale
    return [noise.source, noise.small_batch, noise.large_batch, noise.low, noise.high]


found = [measure(seed, passes) for passes in (1, 2) for seed in range(6)]
(folder / f"noise-{rank}.json").write_text(json.dumps(found))
dist.destroy_process_group()
