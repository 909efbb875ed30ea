"""The driver's energy counter on its way into a trial. The library is a stand-in: no GPU here."""

import os
import time

import msgspec
import pytest
from batchadvisor.probes.devices.gpu_in_use import GpuInUse
from batchadvisor.probes.nvml.sampler import NvmlSampler
from batchadvisor.records import Counters, DeviceInfo, Trial
from batchadvisor.session.recording.store import RunStore
from batchadvisor.session.workers.gpu_watch import GpuWatch, of_all

from ..on_paper import trial_of

TRIAL = trial_of(32, 0.1, half_width=0.0)
UUIDS = [f"GPU-0000000{number}-1111-2222-3333-444444444444" for number in range(3)]


@pytest.fixture
def watched(stub, tmp_path):
    """Runs a timed phase in which the energy counter rises; returns the trial."""

    def run(lasts_s=0.4, watch=None, **settings):
        stub.set(**settings)
        watch = watch or GpuWatch([UUIDS[0]])
        watch.follow(os.getpid())
        try:
            watch.phase("warming up")
            watch.phase("timing")
            time.sleep(lasts_s)
            watch.phase("timing", time.monotonic())
            return watch.into(TRIAL, RunStore(tmp_path))
        finally:
            watch.close()

    return run


@pytest.mark.parametrize("step", [1, 2])
def test_an_end_that_ctrl_c_cut_short_is_made_again(stub, monkeypatch, step):
    """In the window of a trial, or in that of the whole run."""
    watch = GpuWatch(["any"])
    watch.follow(os.getpid())
    watch.phase("timing")
    (sampler,) = watch._samplers
    real, calls = sampler._close, []

    def interrupted(window, at_s=None):
        calls.append(window)
        if len(calls) == step:
            raise KeyboardInterrupt
        return real(window, at_s)

    monkeypatch.setattr(sampler, "_close", interrupted)
    with pytest.raises(KeyboardInterrupt):
        watch.close()
    watch.close()
    assert not watch._samplers


def test_a_trial_that_died_as_it_warmed_up_steadies_no_other(stub, monkeypatch):
    began = []
    native = NvmlSampler.begin

    def begin(self, steady_s=0.0):
        began.append(steady_s)
        native(self, steady_s)

    monkeypatch.setattr(NvmlSampler, "begin", begin)
    watch = GpuWatch([UUIDS[0]])
    watch.follow(os.getpid())
    watch.phase("warming up")
    time.sleep(0.3)
    watch.follow(None)
    watch.follow(os.getpid())
    watch.phase("warming up")
    watch.phase("timing")
    watch.close()
    assert 0 <= began[0] < 0.2


def test_a_short_window_has_energy_and_no_verdict_on_it(watched):
    """Whole runs on the virtual GPU tell what a long one says."""
    trial = watched()
    power = trial.counters.energy_j / trial.counters.window_s
    assert power == pytest.approx(250, rel=0.2)  # what the stand-in says
    assert trial.samples_per_joule is None
    assert msgspec.json.decode(msgspec.json.encode(trial), type=Trial) == trial


def test_neither(watched):
    trial = watched(nvmlDeviceGetTotalEnergyConsumption=3, nvmlDeviceGetPowerUsage=3)
    assert trial.samples_per_joule is None
    assert set(trial.counters.unavailable) >= {"energy_j", "power_w"}


def test_all_gpus_of_a_script_together(stub, watched):
    """A script on two GPUs takes the energy of both; a limit on either slows its steps."""
    settings = {"0.power_mw": 100_000, "2.power_mw": 300_000, "2.throttle": 0x20}
    device = DeviceInfo(
        kind="cuda", name="x", uuid=UUIDS[0], total_bytes=1, capacity_bytes=1, capacity_source=""
    )
    in_use = [GpuInUse(index=at, uuid=UUIDS[number]) for at, number in enumerate((0, 2))]
    watch = GpuWatch.for_device(device, in_use)
    counters = watched(1.0, watch, gpus=3, **settings).counters
    assert counters.energy_j == pytest.approx(2 * 250 * counters.window_s, rel=0.3)
    assert counters.throttle_reasons == ("sw_thermal_slowdown",)


def test_a_gpu_without_a_counter_leaves_the_sum_unknown():
    known = Counters(energy_j=5.0, power_w=3.0)
    silent = Counters(power_w=4.0, unavailable={"energy_j": "Not Supported"})
    together = of_all([known, silent])
    assert (together.energy_j, together.power_w) == (None, 7.0)
    assert together.unavailable["energy_j"] == "of GPU 1 of 2: Not Supported"
