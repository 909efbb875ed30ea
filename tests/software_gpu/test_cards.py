"""Two unlike cards: each is measured by itself, and a step is split so that both end together."""

import msgspec
import pytest
from batchadvisor.advisor.advise import advise
from batchadvisor.records import DevicesRecord
from batchadvisor.session.recording.store import read_record

from ..splits import plan_of
from .bare_loop import bare
from .planted import Planted, card

pytestmark = [pytest.mark.gpu_build, pytest.mark.alone]
SIZES = (32, 64, 128)
WAVES = {"fast": 100.0, "slow": 200.0}


def bare_step_s(gpu, index, size):
    """Seconds of the script's step by itself on that card."""
    return bare(gpu, size, CUDA_VISIBLE_DEVICES=str(index))["step_s"]


def test_each_is_measured_and_a_step_is_split(machine, tmp_path):
    gpu = machine("".join(card(wave_us, name=name) for name, wave_us in WAVES.items()))
    planted = Planted("saturated", "does not help", sizes=SIZES, blocks=400)
    (tmp_path / "train.py").write_text(planted.script())
    options = ("--gpus", "all", "--sizes", ",".join(map(str, SIZES)), "--budget", "30s")
    gpu.run("-m", "batchadvisor", "run", "-q", "-o", "out", *options, "train.py", timeout_s=280)
    found = msgspec.json.decode((tmp_path / "out/devices.json").read_bytes(), type=DevicesRecord)
    assert found.state == "finished"
    answers, places = {}, {}
    for index, run in enumerate(found.devices):
        record = read_record(tmp_path / "out" / run.folder)
        name = record.device.name.rpartition(" ")[2]
        answers[name], places[name] = (record, advise(record)), index
        for trial in record.trials:
            if trial.step_s is None or trial.purpose != "search":
                continue
            size = trial.batch_size
            truth_s = bare_step_s(gpu, index, size)
            assert trial.step_s.median == pytest.approx(truth_s, rel=0.03), (name, size)
    assert answers.keys() == WAVES.keys()
    plan = plan_of(answers, global_batch=120)
    shares = {share.device: share.batch_size for share in plan.shares}
    assert sum(shares.values()) == 120
    assert shares["fast"] == pytest.approx(80, abs=4)  # a wave of the slow one takes twice as long
    for name, size in shares.items():
        truth_s = bare_step_s(gpu, places[name], size)
        assert plan.predicted_step_s == pytest.approx(truth_s, rel=0.05), (name, size)
