"""Devices that run slower: for heat, which passes; by a cap, which is how they are run; by kind."""

import pytest
import torch
from batchadvisor.advisor.advise import advise
from batchadvisor.probes.devices.torch_devices import CudaProbe
from batchadvisor.probes.windows.interleaved_window import TurnsWindow
from batchadvisor.probes.windows.step_evidence import Reading
from batchadvisor.records import TrialRequest, TurnsPlan

from ..splits import plan_of
from .device import VirtualGpu
from .machine import timed
from .script import Loop, Script, truth_of
from .supply import CAP, HEAT, Phase, Supply
from .test_truths import EAGER, check
from .torch_cuda import install

SCRIPT = Script()


def gpu_with(*phases, **power):
    return VirtualGpu(**EAGER, supply=Supply(phases=phases, **power))


@pytest.mark.parametrize("until_s", [8.0, 10.0])
def test_heat_is_a_doubt_and_passes(machine, tmp_path, until_s):
    """A trial that met it says so and is timed again; the answer is that of the cool device."""
    hot = Phase(from_s=6.0, until_s=until_s, slower=1.4, bits=HEAT, mhz=1000)
    result = machine(gpu_with(hot), SCRIPT).run(tmp_path)
    doubted = [trial for trial in timed(result.record) if trial.doubts]
    assert doubted
    for trial in doubted:
        assert trial.doubts == ("the GPU was slowed down: hw_thermal_slowdown",)
        assert trial.counters.throttled_pct > 0
    for size in {trial.batch_size for trial in doubted}:
        trials = [trial for trial in timed(result.record) if trial.batch_size == size]
        assert len(trials) > 1, f"{size} was not timed again"
        assert until_s > 9 or not trials[-1].doubts
    for trial in timed(result.record):
        if not trial.doubts:
            check(trial, truth_of(SCRIPT, gpu_with(), trial.batch_size))
    chosen = result.advice.recommended
    truth = truth_of(SCRIPT, gpu_with(), chosen.batch_size)
    assert chosen.samples_per_s.median == pytest.approx(truth.samples_per_s, rel=0.02)
    best = max(
        truth_of(SCRIPT, gpu_with(), size).samples_per_s for size in (chosen.batch_size, 424)
    )
    assert truth.samples_per_s > 0.94 * best


def test_a_cap_is_a_setting(machine, tmp_path):
    """It is in the counters, and every size meets it: no doubt, nothing is timed again."""
    capped = Phase(slower=1.15, bits=CAP, mhz=1300)
    result = machine(gpu_with(capped, busy_w=250.0), SCRIPT).run(tmp_path)
    trials = timed(result.record)
    for trial in trials:
        check(trial, truth_of(SCRIPT, gpu_with(capped, busy_w=250.0), trial.batch_size))
        assert trial.counters.throttle_reasons == ("sw_power_cap",)
        assert trial.counters.throttled_pct == 0
    searched = [trial.batch_size for trial in trials if trial.purpose == "search"]
    assert len(searched) == len(set(searched))


def test_two_unlike_gpus(machine, tmp_path):
    """Each is measured by itself; a global batch is split so that both are done together."""
    scripts = {
        "fast": Script(device_ms=lambda size: 10 + size / 4),
        "slow": Script(device_ms=lambda size: 20 + size),
    }
    answers = {}
    for name, script in scripts.items():
        folder = tmp_path / name
        folder.mkdir()
        result = machine(VirtualGpu(**EAGER), script).run(folder)
        for trial in timed(result.record):
            check(trial, truth_of(script, VirtualGpu(**EAGER), trial.batch_size))
        answers[name] = (result.record, advise(result.record))
    plan = plan_of(answers, global_batch=240)
    sizes = {share.device: share.batch_size for share in plan.shares}
    assert sum(sizes.values()) == 240
    times = {
        name: truth_of(script, VirtualGpu(**EAGER), sizes[name]).step_s
        for name, script in scripts.items()
    }
    assert max(times.values()) == pytest.approx(plan.predicted_step_s, rel=0.02)
    ideal_s = 0.060  # 200 and 40 samples
    assert max(times.values()) == pytest.approx(ideal_s, rel=0.05)


class Waits:
    """Evidence of a host that waited for a core now and then."""

    unavailable = {}  # noqa: RUF012

    def __init__(self):
        self.delay_ns = 0

    def read(self):
        self.delay_ns += 2_000_000
        return Reading({1: self.delay_ns}, 0.0, None, 0, 0.0, 0.0, 0)


@pytest.mark.parametrize("evidence", [None, Waits()], ids=["quiet", "the host waits for a core"])
def test_sizes_in_turn(monkeypatch, evidence):
    """Times are the device's, whatever its host does meanwhile."""
    gpu = VirtualGpu(**EAGER)
    install(gpu, monkeypatch)
    sizes = (32, 64, 128)
    plan = TurnsPlan(sizes=sizes, num_steps=(4, 2, 1), num_rounds=6)
    request = TrialRequest(batch_size=128, kind="turns", turns=plan)
    window = TurnsWindow(
        request,
        CudaProbe(torch.device("cuda:0"), None),
        seed=1,
        time_limit_s=30.0,
        evidence=evidence,
        asynchronous=True,
        clock=lambda: gpu.clock() / 1e9,
    )
    loop = Loop(SCRIPT, gpu)
    window.resume()
    while True:
        size = window.size
        window.arrived(size, "shape", loop.fetch(size), primary=True)
        loop.step(size)
        if window.boundary():
            break
        window.resume()
    turns = window.result(0, 0).turns
    assert len(turns.step_s) >= 6
    for row in turns.step_s:
        for size, seconds in zip(sizes, row, strict=True):
            assert seconds == pytest.approx(truth_of(SCRIPT, VirtualGpu(), size).step_s, rel=0.02)
    assert not any(lost for row in turns.lost_s for lost in row)
