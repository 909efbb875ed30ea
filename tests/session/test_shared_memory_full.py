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
from batchadvisor.session.setup.options import RunOptions
from batchadvisor.session.workers.failures import error_of, nothing_fits

from ..on_paper import discovery_of, failure_of, record_of, trial_of

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


@pytest.mark.parametrize("text", TEXTS)
def test_its_words(text, tmp_path):
    raised = Raised(kind="RuntimeError", text=text, traceback="", out_of_memory=False)
    error = error_of(over(raised), RunOptions(script="a.py", device="cpu"), tmp_path, None)
    assert type(error) is RunError
    assert "/dev/shm is full" in str(error)
    assert "--shm-size" in error.remedy


@pytest.mark.parametrize(
    "text", ["OSError: No space left on device", "CUDA out of memory", "the process died by SIGBUS"]
)
def test_other_words(text):
    assert known_failure(text, smaller_ran=True) is None


def failed(size):
    return failure_of(size, "exception", detail=f"RuntimeError: {PROVOKED}")


def test_a_size_that_needs_more_of_it_is_left_out_and_the_answer_stands(tmp_path):
    record = record_of([trial_of(32, 0.1), failed(512)])
    assert nothing_fits(record, "", tmp_path) is None
    findings = findings_of(Measurements.of(record), 32, None, None)
    (finding,) = (each for each in findings if each.rule == "trial.exception")
    assert SHARED_MEMORY.what in finding.message
    assert SHARED_MEMORY.remedy in finding.remedy


def test_at_the_own_size_nothing_is_measured(tmp_path):
    record = record_of([failed(32)], discovery=discovery_of(native=32))
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
