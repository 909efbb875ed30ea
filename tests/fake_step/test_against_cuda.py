"""Steps on fake tensors against torch's own CUDA code: what they ask for at once, in bytes, what is
reserved for it, and the largest batch that there is room for.

The recording is of a stand-in for a GPU (`scripts/software_gpu/record_steps.py`).
"""

import json
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.fake_step.cuda_steps import RECORDED

ROOT = Path(__file__).parents[2]


class Apart(NamedTuple):
    """How far a figure may be from torch's own, as a share of it."""

    peak: float = 0.0005  # requests are counted here in blocks of 512 bytes
    reserved: float = 0.0
    largest: float = 0.005  # as near as it is sought


FURTHER_APART = {
    # Torch's own derivative has no grouped heads there, so they are repeated.
    ("gpt, grouped", "fp32"): Apart(peak=0.05, reserved=0.07, largest=0.05),
    # Blocks of 2 MiB more or less decide whether a piece is left over.
    ("gpt", "bf16"): Apart(largest=0.07),
    ("gpt, scores", "fp32"): Apart(reserved=0.015),
    ("distances", "fp32"): Apart(largest=0.04),
    ("perceptron", "bf16"): Apart(reserved=0.015),
    ("perceptron, squares", "fp32"): Apart(peak=0.01, reserved=0.015),
    ("perceptron, squares", "bf16"): Apart(peak=0.01),
    # The buffer of a sum is no line in the batch size.
    ("encoder", "fp32"): Apart(largest=0.03),
    ("encoder", "fp16"): Apart(largest=0.03),
    ("encoder, length first", "fp32"): Apart(largest=0.03),
    ("encoder, dropout", "fp32"): Apart(peak=0.005, largest=0.04),
    ("encoder, dropout", "bf16"): Apart(reserved=0.015),
    ("translator", "bf16"): Apart(largest=0.02),
    # No fake step asks for what cuDNN works in: there, half types are copied to another layout.
    ("resnet", "bf16"): Apart(peak=0.1, reserved=0.28),
    ("unet", "bf16"): Apart(peak=0.32, reserved=0.47),
    # A block of 20 MiB more is kept, and larger batches are thought not to fit; not explained yet.
    ("resnet", "fp32"): Apart(reserved=0.31, largest=0.41),
    ("resnet, channels last", "fp32"): Apart(reserved=0.31, largest=0.37),
    ("unet, channels last", "fp32"): Apart(largest=0.3),
}
QUICK = {
    ("gpt", "bf16", "AdamW"),
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
        apart = FURTHER_APART.get(case, Apart())
        real = row["requested_bytes"] - row["cublas_bytes"]
        assert peak == pytest.approx(real, rel=apart.peak), case
        assert reserved == pytest.approx(row["reserved_bytes"], rel=apart.reserved, abs=0), case
        assert (largest is None) == ("largest_batch" not in row), case
        if largest is not None:
            assert largest == pytest.approx(row["largest_batch"], rel=apart.largest), case


def test_a_few():
    rows = {at: row for at, row in enumerate(RECORDED) if tuple(row["case"]) in QUICK}
    assert len(rows) == len(QUICK)
    check(rows)


@pytest.mark.slow
def test_all():
    check({at: row for at, row in enumerate(RECORDED) if tuple(row["case"]) not in QUICK})
