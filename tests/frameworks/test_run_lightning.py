"""A steered run of Lightning's Trainer.fit."""

from pathlib import Path

import pytest

from ..needs import framework
from .runs import assert_steered, probed

framework("lightning")
pytestmark = pytest.mark.frameworks


def test_it_is_steered(tmp_path):
    older = tmp_path / "checkpoints" / "last.ckpt"
    older.parent.mkdir()
    older.write_text("of a real training")
    done = probed("lightning_fit.py", tmp_path)
    assert_steered(done, native=20, micro_batches=1, num_samples=2600)
    found = done.record.discovery
    assert [one.batch_size for one in found.loaders if one.trains] == [20]
    assert {one.batch_size for one in found.loaders if not one.trains} <= {20, 50}
    assert "batch_size=20 → batch_size=64" in done.advice.change
    # Lightning saves every five steps, and nothing of it is there.
    assert list(tmp_path.rglob("*.ckpt")) == [older]
    assert older.read_text() == "of a real training"
    saves = [one for one in done.record.files if one.action == "save (not written)"]
    assert saves
    assert {Path(one.path).parent.name for one in saves} == {"checkpoints"}
