"""Validates once before it trains, and after every epoch, with a second loader under no_grad."""

import argparse

import torch
from torch import nn, optim
from torch.utils.data import DataLoader, TensorDataset, random_split


def get_data(seed):
    g = torch.Generator().manual_seed(seed)
    x = torch.rand(2500, 2, generator=g) * 4 - 2
    y = torch.exp(-(x**2).sum(1, keepdim=True)) * torch.cos(3 * x[:, :1])
    return random_split(TensorDataset(x, y), [2000, 500], generator=g)


@torch.no_grad()
def validate(model, loader, criterion):
    model.eval()
    total, n = 0.0, 0
    for x, y in loader:
        total += criterion(model(x), y).item() * len(x)
        n += len(x)
    return total / n


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--val-batch-size", type=int, default=50)
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--lr", type=float, default=0.05)
    parser.add_argument("--seed", type=int, default=2)
    args = parser.parse_args()

    torch.manual_seed(args.seed)
    train_set, val_set = get_data(args.seed)
    train_loader = DataLoader(train_set, batch_size=args.batch_size, shuffle=True)
    val_loader = DataLoader(val_set, batch_size=args.val_batch_size)

    model = nn.Sequential(
        nn.Linear(2, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 1)
    )
    criterion = nn.MSELoss()
    optimizer = optim.SGD(model.parameters(), lr=args.lr, momentum=0.9)
    scheduler = optim.lr_scheduler.StepLR(optimizer, step_size=2, gamma=0.5)

    print(f"before training: val loss {validate(model, val_loader, criterion):.5f}")
    for epoch in range(args.epochs):
        model.train()
        for x, y in train_loader:
            optimizer.zero_grad()
            loss = criterion(model(x), y)
            loss.backward()
            optimizer.step()
        scheduler.step()
        val_loss = validate(model, val_loader, criterion)
        print(f"epoch {epoch}: val loss {val_loss:.5f}, lr {scheduler.get_last_lr()[0]:g}")


if __name__ == "__main__":
    main()
