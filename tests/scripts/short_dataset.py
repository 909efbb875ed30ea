"""Only 40 samples, batches of 8, BatchNorm1d: other batch sizes leave a last batch of another size,
and a last batch of one sample makes BatchNorm raise."""

import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset


def main():
    torch.manual_seed(11)
    x = torch.randn(40, 6)
    y = (x.sum(1) > 0).float()
    loader = DataLoader(TensorDataset(x, y), batch_size=8, shuffle=True)
    model = nn.Sequential(nn.Linear(6, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    for epoch in range(60):
        model.train()
        for xb, yb in loader:
            loss = nn.functional.binary_cross_entropy_with_logits(model(xb).squeeze(1), yb)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if epoch % 10 == 9:
            model.eval()
            with torch.no_grad():
                accuracy = ((model(x).squeeze(1) > 0) == (y > 0)).float().mean()
            print(f"epoch {epoch + 1}: loss {loss.item():.4f}, accuracy {accuracy:.2f}")


if __name__ == "__main__":
    main()
