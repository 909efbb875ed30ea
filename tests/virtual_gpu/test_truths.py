"""Whole runs on planted truths: times, energy, what holds the GPU back, the recommended size."""

from dataclasses import dataclass, field

import pytest
import torch
from batchadvisor import ProfilingCallback
from batchadvisor.advisor.measured.energy import too_short
from batchadvisor.session.run import TIMED_SHARE

from ..callback.asynchronous import Optimizer
from .device import VirtualGpu
from .machine import timed
from .script import Loop, Script, truth_of
from .supply import Supply
from .torch_cuda import install

EAGER = {"depth": 16}
"""A step of a thousand kernels and a queue of a thousand, in small: a few steps ahead."""


@dataclass(frozen=True)
class Planted:
    """A script, its machine, and the verdict: what limits it, what a larger batch does."""

    script: Script
    limit: str
    larger_batch: str
    gpu: dict = field(default_factory=lambda: EAGER)
    goal: dict = field(default_factory=dict)

    def machine(self):
        return VirtualGpu(**self.gpu)

    def truth(self, size):
        return truth_of(self.script, self.machine(), size)


def hardly_faster(**changes):
    """A script whose host takes nearly as long as its device."""
    return Script(
        device_ms=lambda size: 10 + size / 512, host_ms=lambda _: 9.0, kernels=2, **changes
    )


PLANTED = {
    "GPU-bound": Planted(Script(), "saturated", "does not help"),
    "host-bound": Planted(
        Script(device_ms=lambda size: 1 + size / 4096, host_ms=lambda _: 20.0, sample_bytes=2**18),
        "host",
        "helps",
    ),
    "host-bound up to memory": Planted(
        Script(device_ms=lambda size: 1 + size / 64, host_ms=lambda _: 20.0), "memory", "helps"
    ),
    "loader-bound": Planted(
        Script(device_ms=lambda size: 1 + size / 16, fetch_ms=lambda size: size / 2.0),
        "input",
        "does not help",
    ),
    "copy-bound": Planted(
        Script(device_ms=lambda size: 1 + size / 16, copy_ms=lambda size: size / 4),
        "copies",
        "does not help",
    ),
    "a sync every step": Planted(
        hardly_faster(item_every=1), "synchronisation", "helps", goal={"max_batch": 64}
    ),
    "a sync every third step": Planted(
        Script(device_ms=lambda size: 10 + size / 8, item_every=3), "saturated", "does not help"
    ),
    "a sync every fourth step, the host hardly faster": Planted(
        hardly_faster(item_every=4, sample_bytes=2**14), "saturated", "does not help"
    ),
    "a sync every tenth step": Planted(
        Script(
            device_ms=lambda size: 18 + size / 512, host_ms=lambda _: 20.0, kernels=2,
            item_every=10, sample_bytes=2**14,
        ),
        "saturated", "does not help",
    ),
    "CUDA graphs": Planted(
        Script(graph=True, sample_bytes=2**20), "saturated", "does not help", {"depth": 1024}
    ),
    "small kernels": Planted(Script(blocks=30), "small kernels", "helps"),
}  # fmt: skip


@pytest.mark.parametrize("name", PLANTED)
def test_a_whole_run(machine, tmp_path, name):
    """Every time within 2 %, every energy within 5 %, the right verdict, a size worth its name."""
    planted = PLANTED[name]
    result = machine(planted.machine(), planted.script).run(tmp_path, **planted.goal)
    assert result.error is None
    assert result.record.state == "finished"
    truths = {}
    for trial in timed(result.record):
        truth = truths[trial.batch_size] = planted.truth(trial.batch_size)
        check(trial, truth)
    advice = result.advice
    found = advice.verdict.limit, advice.verdict.larger_batch
    assert found == (planted.limit, planted.larger_batch)
    best = max(truth.samples_per_s for truth in truths.values())
    assert truths[advice.recommended.batch_size].samples_per_s > 0.94 * best
    assert result.record.search_s < 120


def check(trial, truth):
    """A trial's figures beside what a bare loop says."""
    assert trial.step_s.median == pytest.approx(truth.step_s, rel=0.02)
    assert trial.samples_per_s.median == pytest.approx(truth.samples_per_s, rel=0.02)
    assert trial.doubts == ()
    if trial.samples_per_joule is not None:
        assert trial.samples_per_joule == pytest.approx(truth.samples_per_joule, rel=0.05)
    else:
        assert too_short(trial.counters)


@pytest.mark.parametrize("name", PLANTED)
def test_a_watched_loop(monkeypatch, tmp_path, name):
    """The callback says what a bare loop says."""
    planted, size = PLANTED[name], 64
    gpu = planted.machine()
    install(gpu, monkeypatch)
    loop = Loop(planted.script, gpu)

    def batches():
        for _ in range(300):
            loop.fetch(size)
            yield torch.empty(size, 1)

    options = {"quiet": True, "profile": False, "scalars": False, "optimizer": Optimizer()}
    with ProfilingCallback(tmp_path, **options) as prof:
        for _ in prof.watch(batches()):
            loop.step(size)
            prof.step()
    (trial,) = prof.record.trials
    truth = planted.truth(size)
    assert trial.step_s.median == pytest.approx(truth.step_s, rel=0.02)
    assert trial.samples_per_s.median == pytest.approx(truth.samples_per_s, rel=0.02)
    wait_s = planted.script.fetch_ms(size) / 1e3
    assert trial.input_wait_s.median == pytest.approx(wait_s, rel=0.02, abs=1e-5)


def test_no_trial_of_captured_graphs_outlasts_its_limit(machine, tmp_path):
    """A graph takes one place in the queue, so that its host knows no end of a step for long."""
    planted = PLANTED["CUDA graphs"]
    record = machine(planted.machine(), planted.script).run(tmp_path).record
    assert max(trial.step_s.median for trial in timed(record)) > 0.5
    assert max(trial.elapsed_s for trial in record.trials) < 1.5 * 120 * TIMED_SHARE


class TestEnergy:
    """Samples per joule of a device that takes more the more of it works."""

    SCRIPT = Script(
        device_ms=lambda size: 4 + size / 8,
        host_ms=lambda _: 1.0,
        watts=lambda size: min(650.0, 150 + 2.5 * size),
    )

    @pytest.mark.parametrize("update_ms", [20, 100])
    def test_the_thriftiest_size(self, machine, tmp_path, update_ms):
        def gpu():
            return VirtualGpu(**EAGER, supply=Supply(update_ms=update_ms))

        result = machine(gpu(), self.SCRIPT).run(tmp_path, kind="energy", budget_s=300.0)
        truths = {}
        for trial in timed(result.record):
            truth = truths[trial.batch_size] = truth_of(self.SCRIPT, gpu(), trial.batch_size)
            check(trial, truth)
            assert trial.samples_per_joule is not None
        best = max(truth.samples_per_joule for truth in truths.values())
        chosen = truths[result.advice.recommended.batch_size]
        assert chosen.samples_per_joule > 0.95 * best

    @pytest.mark.parametrize("step_ms", [0.3, 1.0])
    def test_very_short_steps(self, machine, tmp_path, step_ms):
        script = Script(
            device_ms=lambda size: step_ms + size / 1e5, host_ms=lambda _: 0.0, kernels=1
        )
        result = machine(VirtualGpu(**EAGER), script).run(
            tmp_path, kind="energy", max_batch=64, budget_s=100.0
        )
        assert result.advice.recommended is not None
        for trial in timed(result.record):
            check(trial, truth_of(script, VirtualGpu(**EAGER), trial.batch_size))
            assert trial.samples_per_joule is not None
