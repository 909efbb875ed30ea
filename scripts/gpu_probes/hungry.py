"""Trains on the GPU with 64 MiB of activations a sample, so that any card is full soon.

    python hungry.py                                   # for `batchadvisor run`
    python hungry.py --batch-size 100 --steps 50       # a fresh process: does it fit?
    python hungry.py --between 50 400                  # the largest that fits, by halving

The last two print one JSON object.
"""

import argparse
import json

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

CHANNELS = 4 * 1024 * 1024
"""Values a sample and layer; four bytes each."""

parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, default=8)
parser.add_argument("--steps", type=int, help="make so many, and say how it went")
parser.add_argument("--between", type=int, nargs=2, metavar=("FITS", "REFUSED"))


def make(scale, optimizer):
    def step(batch):
        x = batch.cuda()
        for layer in range(4):
            x = torch.sigmoid(x * scale[layer])
        optimizer.zero_grad()
        x.mean().backward()
        optimizer.step()

    return step


def loader_of(batch_size):
    return DataLoader(TensorDataset(torch.randn(200_000, 1)), batch_size=batch_size, drop_last=True)


def fits(step, batch_size, num_steps):
    """Whether so many steps run; what torch said if not."""
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    retries = torch.cuda.memory_stats().get("num_alloc_retries", 0)
    text, made = None, 0
    try:
        for _ in range(num_steps):
            step(torch.randn(batch_size, 1))
            made += 1
        torch.cuda.synchronize()
    except torch.OutOfMemoryError as error:
        text = str(error)
    free, total = torch.cuda.mem_get_info()
    after = torch.cuda.memory_stats()
    return {
        "batch_size": batch_size,
        "steps_made": made,
        "refused": text,
        "peak_allocated_bytes": torch.cuda.max_memory_allocated(),
        "peak_reserved_bytes": torch.cuda.max_memory_reserved(),
        "num_alloc_retries": after.get("num_alloc_retries", 0) - retries,
        "device_used_bytes": total - free,
        "device_total_bytes": total,
    }


def largest(step, low, high):
    """The largest size whose two steps fit; `high` grows until one is refused."""
    tried = [fits(step, high, 2)]
    while tried[-1]["refused"] is None:
        low, high = high, high + high // 4 + 1
        tried.append(fits(step, high, 2))
    while high - low > 1:
        middle = (low + high) // 2
        tried.append(fits(step, middle, 2))
        low, high = (middle, high) if tried[-1]["refused"] is None else (low, middle)
    return {"largest": low, "tried": tried}


def main():
    args = parser.parse_args()
    scale = nn.Parameter(torch.ones(4, CHANNELS, device="cuda"))
    step = make(scale, torch.optim.SGD([scale], lr=1e-3))
    if args.steps is not None:
        print(json.dumps(fits(step, args.batch_size, args.steps)))
    elif args.between is not None:
        print(json.dumps(largest(step, *args.between)))
    else:
        for (batch,) in loader_of(args.batch_size):
            step(batch)


if __name__ == "__main__":
    main()
