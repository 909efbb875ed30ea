"""A script that starts its ranks itself, with torch.multiprocessing.spawn."""

import os
import sys

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


def train(rank, world_size, store, results):
    dist.init_process_group(
        "gloo", init_method=f"file://{store}", rank=rank, world_size=world_size
    )
    torch.manual_seed(0)
    x = torch.randn(8000, 32)
    dataset = TensorDataset(x, (x[:, 0] > 0).long())
    sampler = DistributedSampler(dataset, world_size, rank)
    loader = DataLoader(dataset, batch_size=16, sampler=sampler)
    model = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 2))
    model = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    limit = int(os.environ.get("PLANT_OOM", 1 << 30))
    for epoch in range(3):
        for inputs, labels in loader:
            if rank == 1 and len(inputs) >= limit:
                raise torch.OutOfMemoryError("planted: out of memory")
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(inputs), labels).backward()
            optimizer.step()
    results.put(rank)
    dist.destroy_process_group()


def main():
    import tempfile

    store = tempfile.mktemp(prefix="rendezvous-")
    method = sys.argv[1] if len(sys.argv) > 1 else "spawn"
    results = mp.get_context(method).SimpleQueue()  # semaphores with names, under spawn
    mp.start_processes(train, args=(2, store, results), nprocs=2, start_method=method)


if __name__ == "__main__":
    main()
