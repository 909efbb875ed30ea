"""An accelerate script for several processes on the CPU whose first process reads for all."""

import sys

import torch
from accelerate import Accelerator, DataLoaderConfiguration
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def main(split):
    torch.manual_seed(0)
    config = DataLoaderConfiguration(dispatch_batches=True, split_batches=split)
    accelerator = Accelerator(cpu=True, dataloader_config=config)
    x = torch.randn(4001, 16)
    loader = DataLoader(TensorDataset(x, x.sum(1, keepdim=True)), batch_size=16)
    model = nn.Sequential(nn.Linear(16, 64), nn.BatchNorm1d(64), nn.Linear(64, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    for _ in range(3):
        for inputs, targets in loader:
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(model(inputs), targets)
            accelerator.backward(loss)
            optimizer.step()


if __name__ == "__main__":
    main(sys.argv[1:] == ["split"])
