"""A script by itself, at one size: what a clock and the card's own counters say of its steps.

    python bare.py SCRIPT SIZE WARMUP STEPS

Nothing of batchadvisor runs here. Steps are counted by the optimizer's.
"""

import ctypes
import json
import os
import runpy
import sys
import time

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.utils.data import DataLoader

script, size, warmup, steps = sys.argv[1], *map(int, sys.argv[2:5])
made = DataLoader.__init__
library = ctypes.CDLL(os.environ["LD_PRELOAD"].split(":")[0])
done = []
readings = []


def with_size(self, dataset, batch_size=1, *words, **options):
    made(self, dataset, size, *words, **options)


def read():
    torch.cuda.synchronize()
    sums = (ctypes.c_double * 4)()
    library.software_gpu_usage(0, sums)
    readings.append([time.perf_counter(), *sums])


def count(*_):
    done.append(None)
    if len(done) not in {warmup, warmup + steps}:
        return
    read()
    if len(done) == warmup:
        return
    host_s, card_s, busy_s, sm_s, joules = (
        after - before for before, after in zip(*readings, strict=True)
    )
    truth = {
        "step_s": host_s / steps,
        "busy_pct": 100 * busy_s / card_s,
        "sm_pct": 100 * sm_s / card_s,
        "joules": joules / steps,
    }
    sys.stdout.write(f"TRUTH {json.dumps(truth)}")
    sys.stdout.flush()
    os._exit(0)


DataLoader.__init__ = with_size
register_optimizer_step_post_hook(count)
sys.argv = [script]
runpy.run_path(script, run_name="__main__")
