"""No for loop over the loader: `next(it)` in a while loop with a budget of steps; a StopIteration
starts the next epoch."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

MAX_STEPS = 600


def main():
    torch.manual_seed(12)
    x = torch.randn(1500, 32)
    teacher = torch.randn(32, 3)
    ds = TensorDataset(x, torch.tanh(x @ teacher))
    loader = DataLoader(ds, batch_size=12, shuffle=True)
    model = nn.Sequential(nn.Linear(32, 64), nn.SiLU(), nn.Linear(64, 3))
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)

    it = iter(loader)
    step = epoch = 0
    while step < MAX_STEPS:
        try:
            inputs, targets = next(it)
        except StopIteration:
            epoch += 1
            it = iter(loader)
            continue
        optimizer.zero_grad(set_to_none=True)
        loss = nn.functional.mse_loss(model(inputs), targets)
        loss.backward()
        optimizer.step()
        step += 1
        if step % 100 == 0:
            print(f"step {step} (epoch {epoch}): loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
