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
    done = probed("lightning_fit.py", tmp_path, preload=None)
    assert_steered(done, native=20, micro_batches=1, num_samples=2600)
    discovery = done.record.discovery
    assert [loader.batch_size for loader in discovery.loaders if loader.trains] == [20]
    assert {loader.batch_size for loader in discovery.loaders if not loader.trains} <= {20, 50}
    assert "batch_size=20 → batch_size=64" in done.advice.change
    # Lightning saves every five steps, and nothing of it is there.
    assert list(tmp_path.rglob("*.ckpt")) == [older]
    assert older.read_text() == "of a real training"
    saves = [file for file in done.record.files if file.action == "save (not written)"]
    assert saves
    assert {Path(save.path).parent.name for save in saves} == {"checkpoints"}
