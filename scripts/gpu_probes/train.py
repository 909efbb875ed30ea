"""An ordinary training script, and the same loop timed bare or under the callback.

    python train.py --batch-size 64                     # trains, for `batchadvisor run`
    python train.py --mode bare --seconds 3             # one loop between two synchronisations
    python train.py --mode callback --seconds 3         # the same, watched

`bare` and `callback` print one JSON object.
"""

import argparse
import json
import statistics
import tempfile
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

WARMUP_STEPS = 10
BLOCKS = 3

parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, default=32)
parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
parser.add_argument("--width", type=int, default=4096)
parser.add_argument("--length", type=int, default=64)
parser.add_argument("--mode", choices=("plain", "bare", "callback"), default="plain")
parser.add_argument("--seconds", type=float, default=1.0, help="of each of three blocks")


class Net(nn.Module):
    """Rows are repeated to sequences, so that a step is long and its batch quick to load."""

    def __init__(self, width, length):
        super().__init__()
        self.length = length
        self.inner = nn.Sequential(
            nn.Linear(32, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(),
            nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 1),
        )  # fmt: skip

    def forward(self, x):
        return self.inner(x[:, None, :].expand(-1, self.length, -1)).mean(dim=1)


def wait(device):
    if device.startswith("cuda"):
        torch.cuda.synchronize()


def forever(loader):
    while True:
        yield from loader


def measured(args, batches, step):
    """Samples/s of whole blocks, each between two synchronisations."""
    for _ in range(WARMUP_STEPS):
        step(next(batches))
    wait(args.device)
    if args.device.startswith("cuda"):
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    start = time.perf_counter()
    step(next(batches))
    wait(args.device)
    num = max(5, int(args.seconds / (time.perf_counter() - start)))
    speeds = []
    for _ in range(BLOCKS):
        wait(args.device)
        start = time.perf_counter()
        for _ in range(num):
            step(next(batches))
        wait(args.device)
        speeds.append(num * args.batch_size / (time.perf_counter() - start))
    result = {
        "batch_size": args.batch_size,
        "samples_per_s": statistics.median(speeds),
        "blocks_samples_per_s": speeds,
        "steps_a_block": num,
    }
    if args.device.startswith("cuda"):
        result["peak_allocated_bytes"] = torch.cuda.max_memory_allocated()
        result["peak_reserved_bytes"] = torch.cuda.max_memory_reserved()
    return result


def main():
    args = parser.parse_args()
    torch.manual_seed(0)
    data = TensorDataset(torch.randn(65536, 32), torch.randn(65536, 1))
    loader = DataLoader(data, batch_size=args.batch_size, shuffle=True, drop_last=True)
    model = Net(args.width, args.length).to(args.device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4, momentum=0.9)

    def step(batch):
        x, y = (part.to(args.device) for part in batch)
        optimizer.zero_grad()
        nn.functional.mse_loss(model(x), y).backward()
        optimizer.step()

    if args.mode == "plain":
        for _ in range(1000):
            for batch in loader:
                step(batch)
        return
    if args.mode == "bare":
        print(json.dumps(measured(args, forever(loader), step)))
        return
    from batchadvisor import ProfilingCallback

    with tempfile.TemporaryDirectory() as folder:
        with ProfilingCallback(folder, model=model, optimizer=optimizer, profile=False,
                               quiet=True) as prof:  # fmt: skip

            def watched(batch):
                step(batch)
                prof.step()

            truth = measured(args, forever(prof.watch(loader)), watched)
        (trial,) = prof.record.trials
        memory = trial.memory
    speed = trial.samples_per_s
    print(
        json.dumps(
            {
                "outside": truth,
                "samples_per_s": None if speed is None else speed.median,
                "low": None if speed is None else speed.low,
                "high": None if speed is None else speed.high,
                "peak_allocated_bytes": None if memory is None else memory.allocated_bytes,
                "peak_reserved_bytes": None if memory is None else memory.reserved_bytes,
            }
        )
    )


if __name__ == "__main__":
    main()
