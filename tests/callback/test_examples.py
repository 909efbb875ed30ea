"""The examples that need torch alone, as a user runs them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from batchadvisor.session.recording.store import read_record

EXAMPLES = Path(__file__).parents[2] / "examples"


def run(folder, command):
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done


@pytest.mark.slow
def test_plain(tmp_path):
    command = [sys.executable, EXAMPLES / "callback_plain.py", "--epochs", "2"]
    done = run(tmp_path, command)
    assert done.stdout.startswith("epoch 0: loss ")
    assert "Batch size 32 as it ran" in done.stderr
    record = read_record(tmp_path / "runs" / "callback_plain")
    assert (record.observed.num_steps, record.observed.num_samples) == (314, 10_000)
    assert record.trials[0].profile.operators_pct > 0


@pytest.mark.slow
def test_ddp(tmp_path):
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"]
    command += ["--rdzv-backend", "c10d", "--rdzv-endpoint", "localhost:0"]
    command += [EXAMPLES / "callback_ddp.py", "--epochs", "2"]
    run(tmp_path, command)
    for name in ("", "rank-0001"):
        record = read_record(tmp_path / "runs" / "callback_ddp" / name)
        assert (record.observed.num_steps, record.observed.num_samples) == (158, 5_000)
    assert record.observed.noise_scale.source == "ranks"
