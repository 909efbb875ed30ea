"""A steered run of a loop under Hugging Face Accelerate."""

import pytest

from ..needs import framework
from .runs import assert_steered, probed

framework("accelerate")
pytestmark = pytest.mark.frameworks


def test_it_is_steered(tmp_path):
    done = probed("accelerate_loop.py", tmp_path)
    assert_steered(done, native=16, micro_batches=2, num_samples=3200)
    names = [optimizer.name for optimizer in done.record.discovery.optimizers if optimizer.trains]
    assert names == ["AdamW"]
    assert done.advice.change.startswith("accelerate_loop.py:13  batch_size=16 → batch_size=64")
