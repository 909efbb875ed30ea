"""An ordinary DDP script, as torchrun starts it; gloo on a CPU.

Faults for the tests are planted through the environment: PLANT_OOM=RANK:SIZE, PLANT_RAISE,
PLANT_KILL, PLANT_HANG likewise, PLANT_SLOW=RANK:SECONDS, PLANT_COST=FIXED_S:PER_SAMPLE_S,
PLANT_PORT=FILE (rank 0 takes the port itself, once), PLANT_WORLD (each rank alone).
"""

import os
import signal
import socket
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

WIDTH = int(os.environ.get("WIDTH", "64"))


def planted(name, rank):
    where, _, value = os.environ.get(f"PLANT_{name}", "").partition(":")
    return float(value) if where == str(rank) else None


def faults(rank, size):
    limit = planted("OOM", rank)
    if limit is not None and size >= limit:
        raise torch.OutOfMemoryError("planted: out of memory")
    limit = planted("RAISE", rank)
    if limit is not None and size >= limit:
        raise ValueError("planted: bad value")
    limit = planted("KILL", rank)
    if limit is not None and size >= limit:
        os.kill(os.getpid(), signal.SIGKILL)
    limit = planted("HANG", rank)
    if limit is not None and size >= limit:
        time.sleep(3600)
    fixed, _, per_sample = os.environ.get("PLANT_COST", "0:0").partition(":")
    time.sleep((planted("SLOW", rank) or 0) + float(fixed) + float(per_sample) * size)


def main():
    torch.manual_seed(0)
    port = os.environ.get("PLANT_PORT")
    if port and not os.path.exists(port) and os.environ["RANK"] == "0":
        thief = socket.create_server(("", int(os.environ["MASTER_PORT"])))
        with open(port, "w") as file:
            file.write(os.environ["MASTER_PORT"])
    if "PLANT_WORLD" in os.environ:
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    else:
        dist.init_process_group("gloo")
    rank = dist.get_rank()
    x = torch.randn(8000, 32)
    dataset = TensorDataset(x, (x[:, 0] > 0).long())
    sampler = DistributedSampler(dataset)
    loader = DataLoader(dataset, batch_size=16, sampler=sampler)
    model = nn.Sequential(nn.Linear(32, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 2))
    model = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(3):
        sampler.set_epoch(epoch)
        for inputs, labels in loader:
            faults(rank, len(inputs))
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(inputs), labels)
            loss.backward()
            optimizer.step()
        if rank == 0:
            print(f"epoch {epoch}: loss {loss.item():.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
