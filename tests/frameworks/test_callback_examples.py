"""The examples of the callback that need a framework, as a user runs them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from batchadvisor.session.recording.store import read_record

from ..end_to_end.preloaded import Forked
from ..needs import framework_of_scripts
from .preloads import HUGGING_FACE, KERAS, LIGHTNING

pytestmark = pytest.mark.frameworks

EXAMPLES = Path(__file__).parents[2] / "examples"
CASES = {
    "lightning": ("lightning", LIGHTNING, 157, 5000),
    "huggingface": ("transformers", HUGGING_FACE, 63, 2000),
    "accelerate": ("accelerate", HUGGING_FACE, 157, 5000),
    "keras": ("keras", KERAS["torch"], 157, 5000),
}
"""What it needs, what is imported before, and the steps and samples of its one epoch."""


@pytest.mark.parametrize("name", CASES)
def test_it_runs(name, tmp_path):
    needs, preload, steps, samples = CASES[name]
    framework_of_scripts(needs)
    environment = {
        **os.environ,
        "KERAS_BACKEND": "torch",
        "ACCELERATE_USE_CPU": "true",
        "OMP_NUM_THREADS": "1",
    }
    script = EXAMPLES / f"callback_{name}.py"
    example = Forked(
        ("--epochs", "1"), script=script, cwd=tmp_path, env=environment, preload=preload
    )
    _, said = example.communicate(timeout=250)
    assert example.returncode == 0, said
    assert " as it ran: " in said
    record = read_record(tmp_path / "runs" / f"callback_{name}")
    assert record.state == "finished"
    assert (record.observed.num_steps, record.observed.num_samples) == (steps, samples)
