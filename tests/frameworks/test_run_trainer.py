"""A steered run of the Hugging Face Trainer."""

import pytest

from ..needs import framework
from .runs import OPTIONS, assert_longest_first, assert_steered, probed

framework("transformers")
framework("accelerate")
pytestmark = pytest.mark.frameworks


def test_it_is_steered(tmp_path):
    done = probed("hf_trainer.py", tmp_path, options=(*OPTIONS, "--worst-case"))
    assert_longest_first(done)
    assert_steered(done, native=8, micro_batches=2, num_samples=2000)
    assert done.record.discovery.optimizers[0].learning_rate == pytest.approx(1e-3)
    size = "per_device_train_batch_size"
    assert f"  {size}=8 → {size}=64" in done.advice.change
