"""A steered run of the Hugging Face Trainer."""

import pytest

from ..needs import framework
from .runs import OPTIONS, assert_longest_first, assert_steered, probed

framework("transformers")
framework("accelerate")
pytestmark = pytest.mark.frameworks


def test_it_is_steered(tmp_path):
    options = (*OPTIONS, "--worst-case", "--budget", "20s")
    done = probed("hf_trainer.py", tmp_path, options=options, preload=None)
    assert_longest_first(done)
    assert_steered(done, native=8, micro_batches=2, num_samples=2000)
    assert done.record.discovery.optimizers[0].learning_rate == pytest.approx(1e-3)
    assert done.record.discovery.primary.sampler == "LengthGroupedSampler"
    ((order, option),) = done.record.discovery.order_options
    assert order == "grouped"
    assert "group_by_length" in option
    # Behind the longest its order goes on: texts of like length, whatever the size.
    shares = [trial.tokens.padding_share for trial in done.record.trials if trial.tokens]
    assert shares
    assert max(shares) < 0.25  # 0.45 at random
    size = "per_device_train_batch_size"
    assert f"  {size}=8 → {size}=64" in done.advice.change
