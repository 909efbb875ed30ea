"""Whole runs on planted truths: what is said of a script is what it does by itself."""

import json
from pathlib import Path

import msgspec
import pytest
from batchadvisor.advisor.advise import advise
from batchadvisor.records import RunRecord

from .planted import Planted

pytestmark = pytest.mark.gpu_build
BARE = Path(__file__).with_name("bare.py")

PLANTED = {
    "saturated from one sample on": Planted(
        "saturated", "does not help", best=2, sizes=(2, 8, 32), native=8, blocks=1600, kernels=60,
        wave_us=20.0,
    ),
    "launch-bound up to a knee": Planted(
        "saturated", "does not help", best=512, sizes=(32, 512, 1024), blocks=20, wave_us=300.0,
        launch_us=1000.0,
    ),
    "a loader that sleeps": Planted("input", "does not help", best=32, fetch_ms=1.0),
    "copies from pageable memory": Planted(
        "copies", "does not help", best=8, pinned=False, row=1 << 18, blocks=10
    ),
    "reads a number every step": Planted(
        "synchronisation", "helps", best=128, last="loss.item()", launch_us=500.0, blocks=200,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", PLANTED)
def test_a_run_says_what_the_script_does(machine, tmp_path, name):
    planted = PLANTED[name]
    gpu = machine(planted.card())
    (tmp_path / "train.py").write_text(planted.script())
    sizes = ",".join(map(str, planted.sizes))
    gpu.advise("--sizes", sizes, "--budget", "25s", "train.py")
    record = msgspec.json.decode((tmp_path / "out/record.json").read_bytes(), type=RunRecord)
    advice = advise(record)
    truths = {}
    for trial in record.trials:
        size = trial.batch_size
        if size not in truths:
            said = gpu.run(BARE, "train.py", size, 10, 40)
            truths[size] = json.loads(said.partition("TRUTH ")[2])
        truth = truths[size]
        print(name, size, trial.purpose, trial.step_s and trial.step_s.median, trial.profile and (trial.profile.busy_pct, trial.profile.sm_efficiency_pct), truth, trial.samples_per_joule)
    print(advice.verdict, advice.recommended.batch_size)
