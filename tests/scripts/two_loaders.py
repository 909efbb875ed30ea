"""Semi-supervised: zip of a labelled loader (batch 8) and an unlabelled one (batch 24), one model,
one optimizer."""

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset


def blobs(n, generator):
    labels = torch.randint(0, 4, (n,), generator=generator)
    centres = torch.tensor([[2.0, 0.0], [-2.0, 0.0], [0.0, 2.0], [0.0, -2.0]])
    return centres[labels] + 0.7 * torch.randn(n, 2, generator=generator), labels


def main():
    torch.manual_seed(7)
    generator = torch.Generator().manual_seed(7)
    labelled_set = TensorDataset(*blobs(800, generator))
    unlabelled_set = TensorDataset(blobs(2400, generator)[0])
    labelled = DataLoader(labelled_set, batch_size=8, shuffle=True)
    unlabelled = DataLoader(unlabelled_set, batch_size=24, shuffle=True)

    model = nn.Sequential(
        nn.Linear(2, 48), nn.ReLU(), nn.Linear(48, 48), nn.ReLU(), nn.Linear(48, 4)
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)

    for epoch in range(8):
        for (x, y), (u,) in zip(labelled, unlabelled):
            supervised = F.cross_entropy(model(x), y)
            with torch.no_grad():
                target = model(u).softmax(1)
            noisy = model(u + 0.1 * torch.randn_like(u))
            consistency = F.kl_div(noisy.log_softmax(1), target, reduction="batchmean")
            loss = supervised + 0.5 * consistency
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(
            f"epoch {epoch}: supervised {supervised.item():.4f} consistency {consistency.item():.4f}"
        )


if __name__ == "__main__":
    main()
