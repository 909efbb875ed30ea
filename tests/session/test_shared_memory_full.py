"""A /dev/shm that is too small: a fault of its own, with a remedy that removes it. A real one."""

import json
import os
import shutil
import subprocess
import sys

import pytest
from batchadvisor.advisor.explain.findings import findings_of
from batchadvisor.advisor.explain.known_failures import (
    SHARED_MEMORY,
    TOO_LARGE_FOR_KERNELS,
    known_failure,
)
from batchadvisor.advisor.measured.measurements import Measurements
from batchadvisor.errors import RunError
from batchadvisor.probes.process.endings import over
from batchadvisor.probes.process.messages import Raised
from batchadvisor.records import Goal, RunRecord, ScriptInfo, Trial
from batchadvisor.session.setup.options import RunOptions
from batchadvisor.session.workers.failures import error_of, nothing_fits

from ..on_paper import trial_of

NO_ROOM = "No space left on device (28)"
DATALOADER = (  # torch/utils/data/dataloader.py
    "DataLoader worker (pid 37) is killed by signal: Bus error. It is possible that dataloader's "
    "workers are out of shared memory. Please try to raise your shared memory limit."
)
BUS_ERROR = (  # DataLoader.cpp
    "Unexpected bus error encountered in worker. This might be caused by insufficient shared "
    "memory (shm)."
)
IN_A_WORKER = (
    "Caught RuntimeError in DataLoader worker process 0.\nOriginal Traceback (most recent call "
    f"last):\n  File 'x.py', line 3\nRuntimeError: unable to write to file </torch_7>: {NO_ROOM}"
)
PROVOKED = f"unable to allocate shared memory(shm) for file </torch_21713_3892634848_0>: {NO_ROOM}"
"""Here, with torch 2.13."""
TEXTS = (PROVOKED, DATALOADER, DATALOADER[:59], BUS_ERROR, IN_A_WORKER)
SCRIPT = """
import torch
from torch.utils.data import DataLoader, TensorDataset

model = torch.nn.Linear(50_000, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
loader = DataLoader(TensorDataset(torch.ones(400, 50_000)), batch_size=100, num_workers=1)
for epoch in range(1000):
    for (batch,) in loader:
        optimizer.zero_grad()
        model(batch).sum().backward()
        optimizer.step()
"""


def error_for(text, tmp_path):
    raised = Raised(kind="RuntimeError", text=text, traceback="", out_of_memory=False)
    return error_of(over(raised), RunOptions(script="a.py", device="cpu"), tmp_path, None)


@pytest.mark.parametrize("text", TEXTS)
def test_its_words(text, tmp_path):
    error = error_for(text, tmp_path)
    assert type(error) is RunError
    assert "/dev/shm is full" in str(error)
    assert "--shm-size" in error.remedy


@pytest.mark.parametrize(
    "text", ["OSError: No space left on device", "CUDA out of memory", "the process died by SIGBUS"]
)
def test_other_words(text):
    assert known_failure(text, smaller_ran=True) is None


def _record(*trials):
    return RunRecord(
        state="running", started_at="", command=(), script=ScriptInfo(path="a.py"), goal=Goal(),
        trials=trials,
    )  # fmt: skip


def _failed(size, detail):
    return Trial(
        ordinal=1, worker=0, batch_size=size, kind="timed", purpose="search",
        outcome="exception", detail=detail,
    )  # fmt: skip


def test_a_size_that_needs_more_of_it_is_left_out_and_the_answer_stands(tmp_path):
    record = _record(trial_of(32, 0.1), _failed(512, f"RuntimeError: {PROVOKED}"))
    assert nothing_fits(record, "", tmp_path) is None
    findings = {
        finding.rule: finding for finding in findings_of(Measurements.of(record), 32, None, None)
    }
    finding = findings["trial.exception"]
    assert SHARED_MEMORY.what in finding.message
    assert SHARED_MEMORY.remedy in finding.remedy


def test_at_the_own_size_nothing_is_measured(tmp_path):
    record = _record(_failed(32, f"RuntimeError: {PROVOKED}"))
    assert "/dev/shm is full" in str(nothing_fits(record, "", tmp_path))


def test_a_kernel_that_takes_no_such_size():
    text = "cuDNN error: CUDNN_STATUS_NOT_SUPPORTED. This error may appear if you passed in a"
    assert known_failure(text) is None  # it may not take any
    assert known_failure(text, smaller_ran=True) == TOO_LARGE_FOR_KERNELS


@pytest.mark.slow
@pytest.mark.parametrize("size", ["8m", "256m"])
def test_a_small_one_and_its_remedy(tmp_path, size):
    """Batches of 20 MB through a mount of 8 MB, and through one of 256 MB."""
    if shutil.which("unshare") is None:
        pytest.skip("no unshare: /dev/shm cannot be made small for one process")
    (tmp_path / "train.py").write_text(SCRIPT)
    run = f"{sys.executable} -m batchadvisor run --device cpu --sizes 100 --budget 20s --json"
    mount = f"mount -t tmpfs -o size={size} tmpfs /dev/shm"
    inside = f"{mount} || exit 77; exec {run} --no-profile -o run train.py"
    command = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", inside]
    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=240,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    if done.returncode == 77 or "unshare" in done.stderr:
        pytest.skip(f"no mount of its own here: {done.stderr.strip()}")
    if size == "8m":
        assert done.returncode == 1
        assert "/dev/shm is full" in done.stderr
        assert "--shm-size" in done.stderr
    else:
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)
