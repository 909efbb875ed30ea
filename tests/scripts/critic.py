"""A Wasserstein GAN: the critic steps on every batch, the generator on every fifth."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def mlp(n_in, n_out):
    return nn.Sequential(nn.Linear(n_in, 32), nn.ReLU(), nn.Linear(32, n_out))


def main():
    torch.manual_seed(8)
    loader = DataLoader(TensorDataset(torch.randn(3000, 2)), batch_size=30, shuffle=True)
    generator, critic = mlp(4, 2), mlp(2, 1)
    slow = torch.optim.RMSprop(generator.parameters(), lr=5e-5)
    fast = torch.optim.RMSprop(critic.parameters(), lr=5e-5)
    frozen = torch.optim.SGD(mlp(3, 3).requires_grad_(False).parameters(), lr=0.1)  # never steps
    for _ in range(5):
        for number, (real,) in enumerate(loader):
            fake = generator(torch.randn(len(real), 4))
            loss = critic(fake.detach()).mean() - critic(real).mean()
            fast.zero_grad()
            loss.backward()
            fast.step()
            if number % 5 == 4:
                slow.zero_grad()
                (-critic(fake).mean()).backward()
                slow.step()
    del frozen


if __name__ == "__main__":
    main()
