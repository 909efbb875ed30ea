"""Trainings of several kinds by options, for `bench/regret.py`: each is one that people have.

    python bench/planted/training.py --kind gan --workers 2 --batch-size 32

An epoch is long, so that the start of its workers is a small part of it.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

parser = argparse.ArgumentParser()
parser.add_argument("--kind", required=True)
parser.add_argument("--batch-size", type=int, default=16)
parser.add_argument("--workers", type=int, default=0)
parser.add_argument("--device", default="cpu")
args = parser.parse_args()
device = torch.device(args.device)
torch.manual_seed(0)


class Samples(Dataset[Any]):
    """Made-up samples of a shape; each takes its time to be made.

    Args:
        shape: of one sample.
        sleep_s: it waits for so long, as for a disk.
        passes: it computes so often over the sample, as a decoder does.
    """

    def __init__(self, num: int, *shape: int, sleep_s: float = 0.0, passes: int = 0) -> None:
        self.num, self.shape, self.sleep_s, self.passes = num, shape, sleep_s, passes
        self.base = torch.randn(64, *shape)

    def __len__(self) -> int:
        return self.num

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        sample = self.base[index % 64]
        if self.sleep_s:
            time.sleep(self.sleep_s)
        for _ in range(self.passes):
            sample = (sample - sample.mean()) / (sample.std() + 1e-3)
        return sample, index % 10


def convolutions(width: int) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(width, 2 * width, 3, padding=1), nn.BatchNorm2d(2 * width), nn.ReLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2 * width, 10),
    )  # fmt: skip


def perceptron(features: int, width: int, depth: int) -> nn.Module:
    layers: list[nn.Module] = []
    for number in range(depth):
        layers += [
            nn.Linear(width if number else features, width),
            nn.BatchNorm1d(width),
            nn.ReLU(),
        ]
    return nn.Sequential(*layers, nn.Linear(width, 10))


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.LSTM(32, 64, batch_first=True)
        self.head = nn.Linear(64, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.cell(x)[0][:, -1])


KINDS = {
    # a step of a millisecond or two: what it costs to launch it
    "perceptron": lambda: (perceptron(128, 256, 3), Samples(400_000, 128)),
    "deep": lambda: (perceptron(64, 64, 40), Samples(400_000, 64)),
    "cnn": lambda: (convolutions(16), Samples(100_000, 3, 32, 32)),
    "wide_cnn": lambda: (convolutions(48), Samples(100_000, 3, 32, 32)),
    # the loader sets the pace
    "sleeping": lambda: (perceptron(64, 64, 1), Samples(100_000, 64, sleep_s=0.002)),
    "decoding": lambda: (convolutions(8), Samples(100_000, 3, 96, 96, passes=6)),
    "lstm": lambda: (Recurrent(), Samples(100_000, 24, 32)),
    "saturated": lambda: (perceptron(2048, 2048, 4), Samples(50_000, 2048)),
    "growing": lambda: (convolutions(16), Samples(100_000, 3, 32, 32)),
    "accumulating": lambda: (convolutions(16), Samples(100_000, 3, 32, 32)),
}


def train_gan() -> None:
    """Two networks that step in turn, under autocast."""
    generator = nn.Sequential(nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, 1024), nn.Tanh())
    critic = nn.Sequential(nn.Linear(1024, 512), nn.LeakyReLU(0.2), nn.Linear(512, 1))
    generator.to(device)
    critic.to(device)
    of_generator = torch.optim.Adam(generator.parameters(), 2e-4)
    of_critic = torch.optim.Adam(critic.parameters(), 2e-4)
    loss = nn.BCEWithLogitsLoss()
    loader = DataLoader(
        Samples(200_000, 1024), args.batch_size, shuffle=True, num_workers=args.workers
    )
    for _ in range(100):
        for batch, _ in loader:
            real = batch.to(device)
            ones = torch.ones(len(real), 1, device=device)
            zeros = torch.zeros(len(real), 1, device=device)
            with torch.autocast(device.type, torch.bfloat16):
                made = generator(torch.randn(len(real), 64, device=device))
                of_critic.zero_grad()
                found = critic(made.detach())
                wrong = loss(critic(real), ones) + loss(found, zeros)
            wrong.backward()
            of_critic.step()
            with torch.autocast(device.type, torch.bfloat16):
                of_generator.zero_grad()
                fooled = loss(critic(made), ones)
            fooled.backward()
            of_generator.step()


def train() -> None:
    """One network."""
    model, samples = KINDS[args.kind]()
    model.to(device)
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    loss = nn.CrossEntropyLoss()
    loader = DataLoader(samples, args.batch_size, shuffle=True, num_workers=args.workers)
    every = 4 if args.kind == "accumulating" else 1
    kept = []
    for _ in range(100):
        for number, batch in enumerate(loader):
            x, y = (each.to(device) for each in batch)
            value = loss(model(x), y) / every
            value.backward()
            if number % every == every - 1:
                optimizer.step()
                optimizer.zero_grad()
            if args.kind == "growing":  # a history of predictions that nobody empties
                kept.append(x[:, 0].clone())


if __name__ == "__main__":
    train_gan() if args.kind == "gan" else train()
