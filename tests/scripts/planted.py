"""A training loop with one planted cost: `--in loader`, `--in host` or `--in compute`."""

import argparse
import time

import torch
from torch.utils.data import DataLoader, Dataset

parser = argparse.ArgumentParser()
parser.add_argument("--in", dest="place", choices=["loader", "host", "compute"], required=True)
place = parser.parse_args().place

LOADER_S = 0.001  # a sample
HOST_S = 0.020  # a step, whatever its size
WIDTH = 512 if place == "compute" else 16


class Noise(Dataset):
    def __len__(self):
        return 20_000

    def __getitem__(self, index):
        if place == "loader":
            time.sleep(LOADER_S)
        return torch.full((WIDTH,), index / 20_000), index % 4


torch.set_num_threads(1)
layers = [torch.nn.Linear(WIDTH, WIDTH), torch.nn.ReLU()] * (6 if place == "compute" else 1)
model = torch.nn.Sequential(*layers, torch.nn.Linear(WIDTH, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
loss_of = torch.nn.CrossEntropyLoss()
loader = DataLoader(Noise(), batch_size=32, shuffle=True)

for _ in range(3):
    for inputs, targets in loader:
        if place == "host":
            time.sleep(HOST_S)
        optimizer.zero_grad()
        loss_of(model(inputs), targets).backward()
        optimizer.step()
