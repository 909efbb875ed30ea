"""The profiling callback under DistributedDataParallel.

    torchrun --nproc-per-node 2 examples/callback_ddp.py

Each rank keeps a record of its own; that of rank 0 lies in the folder itself. With
noise_scale=True the ranks' gradients also tell the critical batch size.
"""

import argparse

import torch
import torch.distributed as dist
from batchadvisor import ProfilingCallback
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--logdir", default="runs/callback_ddp")
parser.add_argument("--epochs", type=int, default=5)
args = parser.parse_args()

dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
device = torch.device("cpu")
if torch.cuda.is_available():
    device = torch.device("cuda", dist.get_rank() % torch.cuda.device_count())
torch.manual_seed(0)
x = torch.randn(5000, 64)
y = (x[:, 0] * x[:, 1] > 0).long()
data = TensorDataset(x, y)
sampler = DistributedSampler(data)
loader = DataLoader(data, batch_size=32, sampler=sampler)
model = DistributedDataParallel(
    nn.Sequential(nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, 2)).to(device)
)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)

with ProfilingCallback(logdir=args.logdir, noise_scale=True) as prof:
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        for inputs, labels in prof.watch(loader):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(inputs.to(device)), labels.to(device))
            loss.backward()
            optimizer.step()
            prof.step()
dist.destroy_process_group()
