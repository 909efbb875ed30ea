"""One optimizer a parameter, each stepped in a hook of the backward pass, as soon as its gradient is
there; and a OneCycle schedule that is exactly as long as the training."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def main():
    torch.manual_seed(7)
    x = torch.randn(256, 16)
    loader = DataLoader(TensorDataset(x, x.sum(1, keepdim=True)), batch_size=16, shuffle=True)
    model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 1))
    optimizers = {weight: torch.optim.SGD([weight], lr=0.01, momentum=0.9) for weight in model.parameters()}
    first = next(iter(optimizers.values()))
    schedule = torch.optim.lr_scheduler.OneCycleLR(first, max_lr=0.1, total_steps=len(loader))

    def step(parameter):
        optimizers[parameter].step()
        optimizers[parameter].zero_grad()

    for weight in model.parameters():
        weight.register_post_accumulate_grad_hook(step)
    for inputs, targets in loader:
        nn.functional.mse_loss(model(inputs), targets).backward()
        schedule.step()


if __name__ == "__main__":
    main()
