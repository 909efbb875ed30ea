"""Epochs of texts.py, unsteered: sizes in turn, the padding of each by count, or one under a limit.

    python turns.py padded --sizes 4 8 16 --seconds 30
    python turns.py budget --sizes 1024 --limit-mib 800

The first prints paces and shares of padding as JSON, the second whether an epoch ran to its end.
"""

import argparse
import json
import random
import runpy
import sys
import time
from pathlib import Path

import torch
from batchadvisor.probes.devices import host
from batchadvisor.probes.devices.torch_devices import limit_process_memory
from torch.nn import functional

SCRIPT = Path(__file__).parent / "texts.py"
COUNTED_PASSES = 4
"""Passes over a loader that its padding is counted in: it may shuffle."""
LEAST_ROUNDS, MOST_ROUNDS = 5, 60


def made(kind, size):
    """The loader, model and optimizer that the script makes at a size, before its first step."""
    option = "--max-tokens" if kind == "budget" else "--batch-size"
    sys.argv = [str(SCRIPT), kind, option, str(size), "--epochs", "0"]
    return runpy.run_path(str(SCRIPT), run_name="__main__")


def epoch(parts):
    """Trains for an epoch as the script does; seconds of the clock and of the processor."""
    model, optimizer = parts["model"], parts["optimizer"]
    began, cpu = time.perf_counter(), time.process_time()
    for batch in parts["loader"]:
        loss = functional.cross_entropy(model(batch), batch["labels"])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return time.perf_counter() - began, time.process_time() - cpu


def padding_of(parts):
    """The share of positions that hold padding, each counted."""
    positions = real = 0
    for _ in range(COUNTED_PASSES):
        for batch in parts["loader"]:
            positions += batch["input_ids"].numel()
            real += int(batch["input_ids"].ne(0).sum())
    return 1 - real / positions


def in_turn(kind, sizes, seconds):
    every = {size: made(kind, size) for size in sizes}
    tokens = sum(every[sizes[0]]["texts"].lengths)
    padding = {size: padding_of(parts) for size, parts in every.items()}
    generator = random.Random(2)
    order, rounds = list(sizes), []
    for parts in every.values():
        epoch(parts)
    end_s = time.monotonic() + seconds
    while len(rounds) < MOST_ROUNDS and (len(rounds) < LEAST_ROUNDS or time.monotonic() < end_s):
        generator.shuffle(order)
        times = {size: epoch(every[size]) for size in order}
        rounds.append({size: (tokens / times[size][0], tokens / times[size][1]) for size in sizes})
    return {
        "padding": padding,
        "tokens_per_s": {size: [each[size][0] for each in rounds] for size in sizes},
        "tokens_per_cpu_s": {size: [each[size][1] for each in rounds] for size in sizes},
    }


def under_limit(kind, size, limit_mib):
    parts = made(kind, size)
    limit_process_memory(limit_mib * 2**20)
    wall_s, _ = epoch(parts)
    peak = host.status_bytes("VmHWM")
    return {"epoch_s": wall_s, "peak_mib": None if peak is None else peak / 2**20}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("kind")
    parser.add_argument("--sizes", type=int, nargs="+", required=True)
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--limit-mib", type=int)
    args = parser.parse_args()
    torch.set_num_threads(1)
    if args.limit_mib is None:
        said = in_turn(args.kind, args.sizes, args.seconds)
    else:
        said = under_limit(args.kind, args.sizes[0], args.limit_mib)
    print(json.dumps(said))


if __name__ == "__main__":
    main()
