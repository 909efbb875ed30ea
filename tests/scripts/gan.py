"""A GAN with two optimizers; the generator steps on every second batch only."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

LATENT = 8


def ring(n, generator):
    angle = torch.randint(0, 8, (n,), generator=generator) * (torch.pi / 4)
    centres = torch.stack([angle.cos(), angle.sin()], dim=1)
    return centres + 0.05 * torch.randn(n, 2, generator=generator)


def mlp(n_in, n_out):
    return nn.Sequential(
        nn.Linear(n_in, 64), nn.LeakyReLU(0.2), nn.Linear(64, 64), nn.LeakyReLU(0.2),
        nn.Linear(64, n_out),
    )  # fmt: skip


def main():
    torch.manual_seed(9)
    data = TensorDataset(ring(4000, torch.Generator().manual_seed(9)))
    loader = DataLoader(data, batch_size=32, shuffle=True)
    netG, netD = mlp(LATENT, 2), mlp(2, 1)
    optG = torch.optim.Adam(netG.parameters(), lr=1e-3, betas=(0.5, 0.999))
    optD = torch.optim.Adam(netD.parameters(), lr=1e-3, betas=(0.5, 0.999))
    criterion = nn.BCEWithLogitsLoss()

    batches = 0
    for epoch in range(6):
        for (real,) in loader:
            ones, zeros = torch.ones(len(real), 1), torch.zeros(len(real), 1)
            fake = netG(torch.randn(len(real), LATENT))

            optD.zero_grad()
            lossD = criterion(netD(real), ones) + criterion(netD(fake.detach()), zeros)
            lossD.backward()
            optD.step()

            batches += 1
            if batches % 2 == 0:
                optG.zero_grad()
                lossG = criterion(netD(fake), ones)
                lossG.backward()
                optG.step()
        print(f"epoch {epoch}: loss D {lossD.item():.3f}, loss G {lossG.item():.3f}")


if __name__ == "__main__":
    main()
