"""Plain loops under DistributedDataParallel for torchrun: FOLDER, then how each of them runs."""

import json
import sys
from contextlib import nullcontext
from pathlib import Path

import torch
import torch.distributed as dist
from batchadvisor import ProfilingCallback
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

folder = Path(sys.argv[1])
dist.init_process_group("gloo")
rank = dist.get_rank()


def run(how):
    """Trains; what each rank did goes into a file of its own."""
    torch.manual_seed(0)
    x = torch.randn(203, 6)
    data = TensorDataset(x, x[:, :1] * 2 + torch.randn(203, 1))
    sampler = DistributedSampler(data, shuffle=True, seed=1)
    loader = DataLoader(data, batch_size=10, sampler=sampler)
    model = DistributedDataParallel(nn.Linear(6, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    losses = []
    prof = ProfilingCallback(folder / "log", noise_scale=True, noise_every=2, profile_after=4)
    with prof if how != "plain" else nullcontext() as prof:
        for epoch in range(4):
            sampler.set_epoch(epoch)
            for a, b in prof.watch(loader) if prof else loader:
                optimizer.zero_grad()
                loss = nn.functional.mse_loss(model(a), b)
                loss.backward()
                optimizer.step()
                losses.append(loss.item())
                if prof:
                    prof.step()
                if how == "raise" and epoch == 2 and rank == 1:
                    raise ValueError("on one rank")
    weights = [parameter.tolist() for parameter in model.parameters()]
    (folder / f"{how}-{rank}.json").write_text(json.dumps([losses, weights]))


for mode in sys.argv[2:]:
    run(mode)
dist.destroy_process_group()
