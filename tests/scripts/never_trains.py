"""Has a loader, a model and even an optimizer, but only evaluates."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def main():
    torch.manual_seed(16)
    x = torch.randn(3000, 24)
    ds = TensorDataset(x, (x[:, 0] > 0).long())
    loader = DataLoader(ds, batch_size=16)
    model = nn.Sequential(nn.Linear(24, 64), nn.ReLU(), nn.Linear(64, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    model.eval()
    correct = 0
    with torch.no_grad():
        for inputs, labels in loader:
            correct += (model(inputs).argmax(1) == labels).sum().item()
    print(f"accuracy {correct / len(ds):.3f}, learning rate {optimizer.param_groups[0]['lr']}")


if __name__ == "__main__":
    main()
