"""Truncated backpropagation through time: four optimizer steps on each batch."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def main():
    torch.manual_seed(5)
    x = torch.randn(1000, 32, 6)
    loader = DataLoader(TensorDataset(x, x.cumsum(1)), batch_size=10, shuffle=True, drop_last=True)
    rnn, head = nn.GRU(6, 16, batch_first=True), nn.Linear(16, 6)
    optimizer = torch.optim.Adam([*rnn.parameters(), *head.parameters()], lr=1e-3)
    for _ in range(10):
        for inputs, targets in loader:
            state = torch.zeros(1, len(inputs), 16)
            for part, wanted in zip(inputs.split(8, 1), targets.split(8, 1)):
                out, state = rnn(part, state.detach())
                optimizer.zero_grad()
                nn.functional.mse_loss(head(out), wanted).backward()
                optimizer.step()


if __name__ == "__main__":
    main()
