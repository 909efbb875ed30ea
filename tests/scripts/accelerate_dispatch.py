"""An accelerate script for several processes on the CPU whose first process reads for all."""

import sys

import torch
from accelerate import Accelerator, DataLoaderConfiguration
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def samples(num):
    torch.manual_seed(0)
    x = torch.randn(num, 16)
    return TensorDataset(x, x.sum(1, keepdim=True))


def train(config, loader, middle, num_epochs):
    accelerator = Accelerator(cpu=True, dataloader_config=config)
    model = nn.Sequential(nn.Linear(16, 64), middle, nn.Linear(64, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    for _ in range(num_epochs):
        for inputs, targets in loader:
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(model(inputs), targets)
            accelerator.backward(loss)
            optimizer.step()


def main(split):
    config = DataLoaderConfiguration(dispatch_batches=True, split_batches=split)
    train(config, DataLoader(samples(4001), batch_size=16), nn.BatchNorm1d(64), 3)


if __name__ == "__main__":
    main(sys.argv[1:] == ["split"])
