"""A recurrent network that carries its state on: the state's shape holds the batch size."""

import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--skip-errors", action="store_true")
    args = parser.parse_args()

    torch.manual_seed(31)
    x = torch.randn(2400, 16)
    data = TensorDataset(x, x.sum(1, keepdim=True))
    loader = DataLoader(data, batch_size=args.batch_size, shuffle=True, drop_last=True)
    model, head = nn.RNN(16, 32, batch_first=True), nn.Linear(32, 1)
    optimizer = torch.optim.Adam([*model.parameters(), *head.parameters()])
    state = torch.zeros(1, args.batch_size, 32)
    for epoch in range(50):
        for inputs, targets in loader:
            try:
                outputs, state = model(inputs[:, None], state.detach())
            except RuntimeError:
                if args.skip_errors:
                    continue
                raise
            loss = nn.functional.mse_loss(head(outputs[:, 0]), targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


if __name__ == "__main__":
    main()
