"""A compiled model and a compiled optimizer step. --backend inductor needs a compiler.

It prints when a graph is compiled, and the size of every batch."""

import argparse

import torch
from torch import nn
from torch._dynamo.backends.registry import lookup_backend
from torch.utils.data import DataLoader, TensorDataset


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--backend", default="aot_eager")
    parser.add_argument("--compile-step", action="store_true")
    args = parser.parse_args()
    print("started", flush=True)

    def backend(graph, inputs):
        print("compiling", flush=True)
        return lookup_backend(args.backend)(graph, inputs)

    torch.manual_seed(6)
    x = torch.randn(3000, 16)
    loader = DataLoader(TensorDataset(x, x.sum(1, keepdim=True)), batch_size=16, shuffle=True)
    model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 1))
    compiled = torch.compile(model, backend=backend)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

    def step():
        optimizer.step()

    if args.compile_step:
        step = torch.compile(step, backend=backend)
    for _ in range(3):
        for inputs, targets in loader:
            print("batch", len(inputs))
            loss = nn.functional.mse_loss(compiled(inputs), targets)
            optimizer.zero_grad()
            loss.backward()
            step()


if __name__ == "__main__":
    main()
