"""A steered run of Lightning's Trainer.fit."""

import pytest

from ..needs import framework
from .runs import assert_steered, probed

framework("lightning")
pytestmark = pytest.mark.frameworks


def test_it_is_steered(tmp_path):
    done = probed("lightning_fit.py", tmp_path)
    assert_steered(done, native=20, micro_batches=1, num_samples=2600)
    found = done.record.discovery
    assert [one.batch_size for one in found.loaders if one.trains] == [20]
    assert {one.batch_size for one in found.loaders if not one.trains} <= {20, 50}
    assert "batch_size=20 → batch_size=64" in done.advice.change
    # No checkpoint was written.
    assert not list(tmp_path.rglob("*.ckpt"))
