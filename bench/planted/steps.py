"""A training whose step is made longer by a known share: one layer more, or a sleep.

python bench/planted/steps.py --layers 21
python bench/planted/steps.py --sleep-ms 0.7

It trains on a GPU where there is one, and reads its loss in every step: a sleep then adds to it.
"""

import argparse
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

LAYERS, WIDTH, SAMPLES = 20, 256, 1 << 15


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--layers", type=int, default=LAYERS)
    parser.add_argument("--sleep-ms", type=float, default=0.0)
    options = parser.parse_args()

    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(0)
    data = TensorDataset(torch.randn(SAMPLES, WIDTH), torch.randn(SAMPLES, WIDTH))
    loader = DataLoader(data, batch_size=options.batch_size, shuffle=True)
    layers = [nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU()) for _ in range(options.layers)]
    model = nn.Sequential(*layers).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for _ in range(100):
        for inputs, targets in loader:
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(model(inputs.to(device)), targets.to(device))
            loss.backward()
            optimizer.step()
            loss.item()
            if options.sleep_ms:
                time.sleep(options.sleep_ms / 1000)


if __name__ == "__main__":
    main()
