"""Rank 0 starts the second rank as a program of its own, as Lightning's launcher does.

With a second argument it does so past `subprocess`.
"""

import os
import signal
import subprocess
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

if "RANK" not in os.environ:
    os.environ.update(RANK="0", WORLD_SIZE="2", MASTER_ADDR="127.0.0.1", MASTER_PORT=sys.argv[1])
    command, environment = [sys.executable, *sys.argv], {**os.environ, "RANK": "1"}
    if len(sys.argv) > 2:
        os.spawnve(os.P_NOWAIT, sys.executable, command, environment)
    else:
        subprocess.Popen(command, env=environment)
traces = [text for text in (*os.environ.items(), *sys.path) if "start_hook" in text or "STEERED" in text]
assert not traces, traces
dist.init_process_group("gloo")
data = TensorDataset(torch.randn(4000, 8), torch.randn(4000, 1))
model = DistributedDataParallel(nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(2):
    for x, y in DataLoader(data, batch_size=16):
        if os.environ["RANK"] == "1" and len(x) >= 200:  # a fault of this rank alone
            planted = os.environ.get("PLANT")
            if planted == "oom":
                raise torch.OutOfMemoryError("planted: out of memory")
            if planted == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            if planted == "hang":
                time.sleep(3600)
        optimizer.zero_grad()
        nn.functional.mse_loss(model(x), y).backward()
        optimizer.step()
