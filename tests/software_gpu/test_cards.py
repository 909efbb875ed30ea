"""Two unlike cards: each is measured by itself."""

import json
from pathlib import Path

import msgspec
import pytest
from batchadvisor.records import DevicesRecord
from batchadvisor.session.recording.store import read_record

from .planted import Planted, card

pytestmark = [pytest.mark.gpu_build, pytest.mark.alone]
BARE = Path(__file__).with_name("bare.py")
SIZES = (32, 64, 128)
WAVES = {"fast": 100.0, "slow": 200.0}


def test_each_is_measured(machine, tmp_path):
    gpu = machine("".join(card(wave_us, name=name) for name, wave_us in WAVES.items()))
    planted = Planted("saturated", "does not help", sizes=SIZES, blocks=400)
    (tmp_path / "train.py").write_text(planted.script())
    options = ("--gpus", "all", "--sizes", ",".join(map(str, SIZES)), "--budget", "30s")
    gpu.run("-m", "batchadvisor", "run", "-q", "-o", "out", *options, "train.py", timeout_s=280)
    found = msgspec.json.decode((tmp_path / "out/devices.json").read_bytes(), type=DevicesRecord)
    assert found.state == "finished"
    names = set()
    for index, run in enumerate(found.devices):
        record = read_record(tmp_path / "out" / run.folder)
        name = record.device.name.rpartition(" ")[2]
        names.add(name)
        for trial in record.trials:
            if trial.step_s is None or trial.purpose != "search":
                continue
            size = trial.batch_size
            said = gpu.run(BARE, "train.py", size, 10, 40, CUDA_VISIBLE_DEVICES=str(index))
            truth = json.loads(said.partition("TRUTH ")[2])
            assert trial.step_s.median == pytest.approx(truth["step_s"], rel=0.03), (name, size)
    assert names == set(WAVES)
