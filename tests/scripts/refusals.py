"""A training that ends above a batch size, or in its evaluation, in one of several ways."""

import argparse
import os
import sys

import torch
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--how", required=True)
parser.add_argument("--above", type=int, default=0)
options = parser.parse_args()

data = torch.randn(20_000, 64)
model = torch.nn.Linear(64, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
loader = DataLoader(TensorDataset(data), batch_size=8, shuffle=True)
validation = DataLoader(TensorDataset(data[:640]), batch_size=64)


def kernel(size):
    image = torch.empty(size, 1024, 65_536, device="meta")  # 2**26 elements a sample
    if image.numel() > 2**31:
        raise RuntimeError("only supports output tensors with less than INT_MAX elements")


def end(size):
    if options.how == "kernel":
        kernel(size)
    elif size <= options.above:
        return
    elif options.how == "prints":  # as native code does that knows no exceptions
        print("Error out of memory at line 380 in file /csrc/pythonInterface.c", flush=True)
        os._exit(1)
    elif options.how == "gives up":
        try:
            torch.empty(1 << 46)
        except RuntimeError:
            print("no memory: choose a smaller batch")
            sys.exit(1)
    elif options.how == "absurd":
        torch.empty(size, 1 << 50)


for epoch in range(100):
    for step, (batch,) in enumerate(loader):
        end(len(batch))
        loss = model(batch).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if options.how == "evaluation" and step % 5 == 4:
            for (rows,) in validation:  # with gradients
                torch.empty(len(rows), 1 << 40)
