"""Steps on fake tensors against torch's own CUDA code: what they ask for at once, in bytes, what is
reserved for it, and the largest batch that there is room for.

The recording is of a stand-in for a GPU (`scripts/stand_in_gpu/record_steps.py`).
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fake_step.cuda_steps import RECORDED

ROOT = Path(__file__).parents[2]
APART = 0.0005
"""Requests are counted here in blocks of 512 bytes."""
FURTHER_APART = {
    # Torch's own derivative has no grouped heads there, so they are repeated.
    ("gpt, grouped", "fp32"): 0.05,
    ("encoder, dropout", "fp32"): 0.005,
    ("perceptron, squares", "fp32"): 0.01,
    ("perceptron, squares", "bf16"): 0.01,
}
RESERVED_APART = {
    ("gpt, grouped", "fp32"): 0.07,
    ("gpt, scores", "fp32"): 0.015,
    ("encoder, dropout", "bf16"): 0.015,
    ("perceptron", "bf16"): 0.015,
    ("perceptron, squares", "fp32"): 0.015,
}
"""The others are as torch's to the byte."""
LARGEST_APART = {
    # Blocks of 2 MiB more or less decide whether a piece is left over.
    ("gpt", "bf16"): 0.07,
    ("gpt, grouped", "fp32"): 0.05,
    # The buffer of a sum is no line in the batch size.
    ("encoder", "fp32"): 0.03,
    ("encoder", "fp16"): 0.03,
    ("encoder, length first", "fp32"): 0.03,
    ("encoder, dropout", "fp32"): 0.04,
    ("translator", "bf16"): 0.02,
}
"""The others are as torch's within half a percent, as near as they are sought."""
QUICK = {
    ("gpt", "bf16", "AdamW"),
    ("gpt, checkpointed", "bf16", "AdamW"),
    ("encoder", "fp32", "AdamW"),
    ("perceptron", "fp16", "SGD"),
}


def figures_of(numbers):
    done = subprocess.run(
        [sys.executable, "-m", "tests.fake_step.cuda_steps", *map(str, numbers)],
        cwd=ROOT, capture_output=True, text=True, check=False, timeout=280,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return dict(map(json.loads, done.stdout.splitlines()))


def check(rows):
    for number, (peak, reserved, largest) in figures_of(rows).items():
        row = rows[number]
        case = tuple(row["case"][:2])
        real = row["requested_bytes"] - row["cublas_bytes"]
        assert peak == pytest.approx(real, rel=FURTHER_APART.get(case, APART)), case
        apart = RESERVED_APART.get(case, 0)
        assert reserved == pytest.approx(row["reserved_bytes"], rel=apart, abs=0), case
        if "largest_batch" in row:
            apart = LARGEST_APART.get(case, 0.005)
            assert largest == pytest.approx(row["largest_batch"], rel=apart), case


def test_a_few():
    rows = {at: row for at, row in enumerate(RECORDED) if tuple(row["case"]) in QUICK}
    assert len(rows) == len(QUICK)
    check(rows)


@pytest.mark.slow
def test_all():
    check({at: row for at, row in enumerate(RECORDED) if tuple(row["case"]) not in QUICK})
