"""A script by itself, at one size: what a clock and the card's own counters say of its steps.

    python bare.py SCRIPT SIZE WARMUP STEPS

Nothing of batchadvisor runs here. Steps are counted by the optimizer's; of ten in a row the middle
mean stands for all: hosts lose time to other processes now and then, and scripts that read a number
do so once in ten steps. Half of these means lie within `steps_s`: the host's own wandering. What
the card did is exact.
"""

import ctypes
import json
import os
import runpy
import sys
from statistics import quantiles

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.utils.data import DataLoader

script, size, warmup, steps = sys.argv[1], *map(int, sys.argv[2:5])
made = DataLoader.__init__
library = ctypes.CDLL(os.environ["LD_PRELOAD"].split(":")[0])
ends, readings = [], []


def with_size(self, dataset, batch_size=1, *words, **options):
    made(self, dataset, size, *words, **options)


def read():
    torch.cuda.synchronize()
    sums = (ctypes.c_double * 4)()
    library.software_gpu_usage(0, sums)
    readings.append(list(sums))


def count(*_):
    ends.append(torch.cuda.Event(enable_timing=True))
    ends[-1].record()
    if len(ends) not in {warmup, warmup + steps}:
        return
    read()
    if len(ends) == warmup:
        return
    *sums, idle_w = readings[1]
    busy_s, sm_s, joules = (
        after - before for before, after in zip(readings[0][:3], sums, strict=True)
    )
    timed = ends[warmup + 1 :]  # the first has waited
    tens = zip(timed, timed[10:], strict=False)
    low_s, step_s, high_s = quantiles(first.elapsed_time(last) / 1e4 for first, last in tens)
    truth = {
        "step_s": step_s,
        "steps_s": [low_s, high_s],
        "busy_s": busy_s / steps,
        "sm_s": sm_s / steps,
        "joules": joules / steps,  # beside what it takes when idle
        "idle_w": idle_w,
    }
    sys.stdout.write(f"TRUTH {json.dumps(truth)}")
    sys.stdout.flush()
    os._exit(0)


DataLoader.__init__ = with_size
register_optimizer_step_post_hook(count)
sys.argv = [script]
runpy.run_path(script, run_name="__main__")
