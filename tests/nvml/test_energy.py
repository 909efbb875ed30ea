"""The driver's energy counter on its way into a trial. The library is a stand-in: no GPU here."""

from __future__ import annotations

import os
import time

import msgspec
import pytest
from batchadvisor.records import Trial
from batchadvisor.session.counters import GpuWatch
from batchadvisor.session.store import RunStore

from ..on_paper import trial_of

TRIAL = trial_of(32, 0.1, half_width=0.0)


@pytest.fixture
def watched(stub, tmp_path):
    """Runs a timed phase in which the energy counter rises; returns the trial."""
    import pynvml

    def run(lasts_s=0.4, **settings):
        stub.set(**settings)
        pynvml.nvmlInit()
        uuid = pynvml.nvmlDeviceGetUUID(pynvml.nvmlDeviceGetHandleByIndex(0))
        pynvml.nvmlShutdown()
        watch = GpuWatch([uuid])
        watch.follow(os.getpid())
        try:
            watch.phase("warming up")
            watch.phase("timing")
            time.sleep(lasts_s)
            watch.phase("profiling")
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


def test_samples_per_joule(watched):
    trial = watched(lasts_s=2.1)
    counters = trial.counters
    power = counters.energy_j / counters.window_s
    assert power == pytest.approx(250, rel=0.2)  # what the stand-in says
    assert trial.samples_per_joule == pytest.approx(320 / power)
    assert msgspec.json.decode(msgspec.json.encode(trial), type=Trial) == trial


def test_a_short_window_has_energy_and_no_verdict_on_it(watched):
    trial = watched()
    assert trial.counters.energy_j is not None
    assert trial.samples_per_joule is None


def test_neither(watched):
    trial = watched(nvmlDeviceGetTotalEnergyConsumption=3, nvmlDeviceGetPowerUsage=3)
    assert trial.samples_per_joule is None
    assert set(trial.counters.unavailable) >= {"energy_j", "power_w"}
