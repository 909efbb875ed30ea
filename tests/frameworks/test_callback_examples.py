"""The examples of the callback that need a framework, as a user runs them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from batchadvisor.session.recording.store import read_record

from ..needs import framework

pytestmark = pytest.mark.frameworks

EXAMPLES = Path(__file__).parents[2] / "examples"
CASES = {
    "lightning": ("lightning", 157, 5000),
    "huggingface": ("transformers", 63, 2000),
    "accelerate": ("accelerate", 157, 5000),
    "keras": ("keras", 157, 5000),
}
"""What it needs, and the steps and samples of its one epoch."""


@pytest.mark.parametrize("name", CASES)
def test_it_runs(name, tmp_path):
    needs, steps, samples = CASES[name]
    os.environ.setdefault("KERAS_BACKEND", "torch")
    framework(needs)
    environment = {
        **os.environ,
        "KERAS_BACKEND": "torch",
        "ACCELERATE_USE_CPU": "true",
        "OMP_NUM_THREADS": "1",
    }
    script = EXAMPLES / f"callback_{name}.py"
    done = subprocess.run(
        [sys.executable, script, "--epochs", "1"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert " as it ran: " in done.stderr
    record = read_record(tmp_path / "runs" / f"callback_{name}")
    assert record.state == "finished"
    assert (record.observed.num_steps, record.observed.num_samples) == (steps, samples)
