"""The probes of `scripts/gpu-check`: their arithmetic on planted truths, and what they say here."""

from __future__ import annotations

import argparse
import importlib
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch.overrides import TorchFunctionMode

from ..virtual_gpu import VirtualGpu, install

ROOT = Path(__file__).parents[2]
PROBES = ROOT / "scripts/gpu_probes"
NO_GPU = pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
GIB = 2**30


@pytest.fixture
def load(monkeypatch):
    """Imports a probe, as its own process would."""
    monkeypatch.syspath_prepend(PROBES)
    return importlib.import_module


@pytest.fixture
def finding(load):
    return load("harness").Finding("any", "Is it so?", "cuda")


def call(script, *arguments):
    paths = [str(PROBES), *filter(None, [os.environ.get("PYTHONPATH")])]
    done = subprocess.run(
        [sys.executable, str(script), *map(str, arguments)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=200,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


class TestHarness:
    def script(self, folder, body):
        path = folder / "some_probe.py"
        lines = [
            "import sys, time",
            "from harness import child, main",
            "def probe(finding, given):",
        ]
        lines += [f"    {line}" for line in body]
        path.write_text("\n".join([*lines, "sys.exit(main(probe, 'Is it so?'))"]))
        return path

    def test_an_error_is_an_answer(self, tmp_path):
        body = ["finding.keep(half_s=0.5)", "raise ValueError('the driver said no')"]
        said = call(self.script(tmp_path, body), "--device", "cpu", "--out", tmp_path / "out")
        assert said["probe"] == "some_probe"
        assert said["answer"] == "unavailable: the driver said no"
        assert said["errors"][0]["type"] == "ValueError"
        assert said["numbers"] == {"half_s": 0.5}
        assert json.loads((tmp_path / "out/finding.json").read_bytes())["numbers"] == {
            "half_s": 0.5
        }

    def test_its_time_is_over(self, tmp_path):
        body = ["finding.keep(half_s=0.5)", "child(['-c', 'import time; time.sleep(60)'], 50)"]
        started_s = time.monotonic()
        said = call(self.script(tmp_path, body), "--device", "cpu", "--limit", "1")
        assert time.monotonic() - started_s < 20
        assert said["answer"] == "unavailable: the time of 1 s was over"
        assert said["numbers"] == {"half_s": 0.5}

    def test_a_child_that_dies_leaves_its_words(self, load):
        code = "import os, sys; print('no room', file=sys.stderr, flush=True); os.abort()"
        said = load("harness").child(["-c", code], 20)
        assert said["error"] == "exit code -6"
        assert "no room" in said["stderr"]

    def test_a_run_without_a_record(self, load, tmp_path):
        with pytest.raises(RuntimeError, match=r"run gave no record: .*no_such_script"):
            load("harness").product_run(["no_such_script.py"], tmp_path, 60)

    def test_one_assumption_that_fails_is_a_contradiction(self, finding):
        finding.assume("a.py: A", 1, None, "nothing")
        assert finding.data()["contradicts"] is None
        finding.assume("a.py: A", 1, True, "1")
        assert finding.data()["contradicts"] is False
        finding.assume("a.py: B", 1, False, "2")
        assert finding.data()["contradicts"] is True


@pytest.mark.parametrize("name", ["occupancy", "largest_size", "memory_fill"])
def test_without_cuda_a_probe_says_so(name):
    said = call(PROBES / f"{name}.py", "--device", "cpu")
    assert said["answer"] == "unavailable: no CUDA device"
    assert said["contradicts"] is None


@NO_GPU
def test_cuda_that_is_not_there_is_an_answer():
    said = call(PROBES / "refusals.py", "--device", "cuda")
    assert said["answer"] == "unavailable: no CUDA device"


class TestDriver:
    """The counters of the stand-in library, whose periods are planted."""

    def asked(self, load, finding, **settings):
        probe = load("update_periods").probe
        probe(finding, argparse.Namespace(device="cpu", seconds=0.7, **settings))
        return finding.data()

    def test_update_periods(self, stub, load, finding):
        stub.set(energy_update_ms=100, power_update_ms=50)
        said = self.asked(load, finding)
        periods = said["numbers"]["periods"]
        assert periods["energy, idle"]["median_s"] == pytest.approx(0.1, rel=0.15)
        assert periods["power, busy"]["median_s"] == pytest.approx(0.05, rel=0.3)
        assert said["contradicts"] is False, said["assumptions"]

    def test_a_slow_counter_speaks_against_the_product(self, load, finding):
        load("update_periods").judge(finding, {"energy, busy": {"median_s": 0.25}})
        said = finding.data()
        assert said["contradicts"] is True
        assert "250 ms" in said["answer"]

    @NO_GPU
    def test_without_a_driver(self):
        said = call(PROBES / "throttle.py", "--device", "cpu")
        assert said["answer"].startswith("unavailable: nvmlInit: ")

    @pytest.mark.parametrize(("bits", "against"), [(0x4, False), (0x8, True), (1 << 20, True)])
    def test_throttle_reasons(self, stub, load, finding, bits, against):
        stub.set(throttle=bits)
        load("throttle").probe(finding, argparse.Namespace(device="cpu", seconds=0.4))
        said = finding.data()
        assert said["contradicts"] is against, said["assumptions"]
        assert "saturated: " in said["answer"]
        assert said["numbers"]["idle"]["sm_clock_mhz"] == 1500

    def test_energy_of_windows(self, stub, load, finding, monkeypatch):
        """The whole probe, with short windows of its own."""
        energy_windows = load("energy_windows")
        monkeypatch.setattr(energy_windows, "REAL_S", (0.1,))
        stub.set(energy_update_ms=50)
        given = argparse.Namespace(device="cpu", seconds=1.5, ends_s=time.monotonic() + 60)
        energy_windows.probe(finding, given)
        numbers = finding.data()["numbers"]
        assert numbers["mean_power_w"] == pytest.approx(250, rel=0.1)
        assert numbers["windows_of_the_sampler"][0]["window_s"] == pytest.approx(0.1, abs=0.1)
        errors = numbers["relative_errors"]
        assert set(errors) == {"0.1", "0.3"}  # the recording is too short for more
        assert errors["0.1"]["standard_deviation"] > 1.5 * errors["0.3"]["standard_deviation"]


def recording(update_s, seconds=20.0, watts=300.0):
    """What polling every 4 ms sees of a counter that moves every `update_s`."""
    times = [0.004 * number for number in range(int(seconds / 0.004))]
    return [(one, watts * update_s * int(one / update_s)) for one in times]


class TestEnergyArithmetic:
    @pytest.mark.parametrize("length_s", [0.25, 1.03, 2.0])
    def test_the_error_is_that_of_two_edges(self, load, length_s):
        from batchadvisor.advisor.energy import EDGE_SD

        found = load("energy_windows").cut_errors(recording(0.1), length_s)
        # A difference of whole updates: its largest deviation is what rounding leaves.
        assert found["standard_deviation"] <= 1.3 * EDGE_SD * 0.1 / length_s
        assert found["worst"] <= 1.2 * 0.1 / length_s
        assert abs(found["bias"]) < 0.02

    def test_too_short_a_recording_says_nothing(self, load):
        assert load("energy_windows").cut_errors(recording(0.1, seconds=3.0), 2.0) is None

    def test_a_drifting_power_speaks_against_two_seconds(self, load, finding):
        rows = [(time_s, joules * (1 + time_s / 20)) for time_s, joules in recording(0.1)]
        energy_windows = load("energy_windows")
        finding.keep(relative_errors={"2.0": energy_windows.cut_errors(rows, 2.0)})
        energy_windows.judge(finding, rows)
        assert finding.data()["contradicts"] is True


OPTIMIZER = SimpleNamespace(
    defaults={"lr": 0.1},
    param_groups=[
        {"lr": 0.1, "params": [SimpleNamespace(device=torch.device("cuda:0"), numel=lambda: 9)]}
    ],
)


class TestOnTheVirtualGpu:
    @pytest.mark.parametrize("item_every", [None, 1, 10, 50])
    def test_the_bare_time_of_a_loop_that_runs_ahead(self, load, monkeypatch, item_every):
        """50 ms of kernels a step, which the host queues in 5 ms."""
        gpu = VirtualGpu()
        install(gpu, monkeypatch)

        def step():
            for _ in range(10):
                gpu.clock.pass_ms(0.5)
                gpu.launch(5.0)

        work = (step, gpu.item, gpu.synchronize, {"optimizer": OPTIMIZER})
        row = load("callback_async").measured(work, item_every, 200)
        # A number read each step leaves the device idle while the host queues the next one.
        assert row["true_step_s"] == pytest.approx(0.0505 if item_every == 1 else 0.05, rel=0.02)
        assert row["ratio"] == pytest.approx(1, abs=0.02)
        assert row["clock"] == "the device's events"

    def test_a_wrong_callback_is_named(self, load, finding):
        rows = [
            {"graph": False, "item_every": None, "ratio": 1.001},
            {"graph": True, "item_every": 10, "ratio": 9.8},
        ]
        load("callback_async").judge(finding, rows)
        said = finding.data()
        assert said["contradicts"] is True
        assert "CUDA graphs, item() every 10: +880.0 %" in said["answer"]

    def filled(self, load, monkeypatch, disturb=lambda gpu: None, shares=(0.5, 0.9)):
        gpu = VirtualGpu(capacity_bytes=16 * GIB)
        install(gpu, monkeypatch)
        calls = []

        def allocate(num_bytes):
            calls.append(num_bytes)
            if len(calls) == 100:
                disturb(gpu)
            return gpu.allocate(num_bytes)

        return load("memory_fill").filled(allocate, gpu.free, gpu.capacity_bytes, shares)

    def test_a_device_that_fills_up(self, load, monkeypatch, finding):
        answer = self.filled(load, monkeypatch)
        for row in answer["rows"]:
            assert row["refused"] is None
            assert row["steps_made"] == 22
            share = row["fit"]["peak_allocated_bytes"] / answer["capacity_bytes"]
            assert share == pytest.approx(row["share"], abs=0.01)
        load("memory_fill").judge(finding, {"default": answer})
        assert finding.data()["contradicts"] is False
        assert "up to 90 % of the capacity runs" in finding.data()["answer"]

    def test_a_size_that_passes_and_is_refused_later(self, load, monkeypatch, finding):
        def leak(gpu):
            gpu.allocate(3 * GIB)

        answer = self.filled(load, monkeypatch, leak, shares=(0.9,))
        assert answer["rows"][0]["refused"].startswith("CUDA out of memory")
        assert 2 < answer["rows"][0]["steps_made"] < 22
        load("memory_fill").judge(finding, {"default": answer})
        assert finding.data()["contradicts"] is True

    @pytest.mark.parametrize("bound", [70, 300])
    def test_the_largest_size(self, load, monkeypatch, bound):
        """100 samples fit; the bound may be too low or too high."""
        gpu = VirtualGpu(capacity_bytes=100 * 2**27)
        install(gpu, monkeypatch)

        def step(batch):
            gpu.free(gpu.allocate(2**27 * len(batch)))

        found = load("hungry").largest(step, 50, bound)
        assert found["largest"] == 100
        assert len(found["tried"]) < 12


class RealClock:
    """The virtual GPU's, where the host really computes: nobody can set it."""

    def __call__(self):
        return time.monotonic_ns()

    now_ns = property(__call__, lambda self, value: None)

    def pass_ms(self, ms):
        return

    def reach(self, then_ns):
        return


class OnTheCpu(TorchFunctionMode):
    """What is made on `cuda` is made on the CPU: the lines that only a GPU runs can be run."""

    def __torch_function__(self, function, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        if str(kwargs.get("device")) == "cuda":
            kwargs["device"] = "cpu"
        if function is torch.Tensor.cuda:
            return args[0]
        return function(*args, **kwargs)


@NO_GPU
class TestLinesThatOnlyAGpuRuns:
    """They run here on the CPU, against the allocator and the events of the virtual GPU."""

    @pytest.fixture(autouse=True)
    def pretended(self, monkeypatch):
        clocks = {
            name: getattr(time, name) for name in ("perf_counter", "perf_counter_ns", "sleep")
        }
        install(VirtualGpu(RealClock()), monkeypatch)
        for name, clock in clocks.items():
            monkeypatch.setattr(time, name, clock)
        native = torch.nn.Module.to
        monkeypatch.setattr(torch.nn.Module, "cuda", lambda module: module)
        monkeypatch.setattr(
            torch.nn.Module,
            "to",
            lambda module, *to: module if to == ("cuda",) else native(module, *to),
        )
        with OnTheCpu():
            yield

    def test_load(self, load, monkeypatch):
        module = load("load")
        monkeypatch.setitem(module.SIZES, "cuda", 64)
        work = module.Load("cuda")
        work.run(0.05)
        work.wait()
        assert work.product_s > 0

    def test_callback_async(self, load, monkeypatch):
        module = load("callback_async")
        monkeypatch.setattr(module, "MATRIX", 64)
        step, item, wait, options = module.cuda_work(graph=False)
        step()
        assert isinstance(item(), float)
        wait()
        assert isinstance(options["model"], torch.nn.Module)

    def test_occupancy(self, load, monkeypatch):
        module = load("occupancy")
        for name, size in {"MATRIX": 16, "VALUES": 64, "IMAGES": 1, "REPEATS": 2}.items():
            monkeypatch.setattr(module, name, size)
        for make in module.WORKS.values():
            module.run_for(make(), 0.01)

    @pytest.mark.parametrize("case", ["plain", "cudnn.benchmark"])
    def test_live_or_fresh(self, load, monkeypatch, case):
        monkeypatch.setattr(torch.backends.cudnn, "benchmark", False)
        module = load("live_or_fresh")
        monkeypatch.setitem(module.WIDTHS, "cuda", 2)
        monkeypatch.setattr(module, "BLOCK_S", 0.01)
        monkeypatch.setattr(module, "SIDE", 8)
        rows = module.timed(case, [1, 2], "cuda")
        assert [row["batch_size"] for row in rows] == [1, 2]
        assert {"step_s", "peak_reserved_bytes"} <= set(rows[0])

    @pytest.mark.filterwarnings("ignore:CUDA is not available")
    @pytest.mark.filterwarnings("ignore:.*Profiler clears events")
    def test_occupancy_beside_the_driver(self, load, finding, stub, monkeypatch, tmp_path):
        module = load("occupancy")
        monkeypatch.setattr(module, "GPM_S", 0.3)
        monkeypatch.setattr(module, "REPEATS", 2)
        x = torch.ones(64)
        monkeypatch.setattr(module, "WORKS", {"tiny": lambda: lambda: torch.add(x, 1.0, out=x)})
        with torch._C.DisableTorchFunction():  # what the profiler imports is slow under the mode
            module.probe(finding, argparse.Namespace(device="cuda", folder=tmp_path))
        said = finding.data()
        assert not said["errors"]
        row = said["numbers"]["works"]["tiny"]
        assert row["gpm_sm_occupancy_pct"] == 53.0
        assert row["occupancy_pct"] is None
        assert said["answer"].startswith("unavailable: ")
        assert [path.name for path in tmp_path.iterdir()] == ["tiny.pt.trace.json.gz"]

    @pytest.mark.parametrize("name", ["update_periods", "throttle", "energy_windows"])
    def test_the_driver(self, load, finding, stub, monkeypatch, name):
        monkeypatch.setitem(load("load").SIZES, "cuda", 64)
        monkeypatch.setattr(load("energy_windows"), "REAL_S", (0.1,))
        monkeypatch.setattr(time, "sleep", lambda seconds, native=time.sleep: native(seconds / 10))
        stub.set(energy_update_ms=20, power_update_ms=20)
        ends_s = time.monotonic() + 60
        load(name).probe(finding, argparse.Namespace(device="cuda", seconds=0.4, ends_s=ends_s))
        assert not finding.errors
        assert finding.data()["contradicts"] in (False, None)

    def test_train(self, load, monkeypatch, capsys):
        module = load("train")
        words = ["train.py", "--batch-size", "8", "--device", "cuda", "--width", "8"]
        monkeypatch.setattr(sys, "argv", [*words, "--mode", "bare", "--seconds", "0.01"])
        monkeypatch.setattr(torch.Tensor, "to", lambda tensor, _: tensor)
        module.main()
        said = json.loads(capsys.readouterr().out)
        assert said["samples_per_s"] > 0
        assert "peak_reserved_bytes" in said

    def test_hungry(self, load, monkeypatch, capsys):
        module = load("hungry")
        monkeypatch.setattr(module, "CHANNELS", 64)
        monkeypatch.setattr(sys, "argv", ["hungry.py", "--batch-size", "3", "--steps", "2"])
        module.main()
        assert json.loads(capsys.readouterr().out)["steps_made"] == 2

    def test_memory_fill(self, load):
        """As far as the device's memory is asked; the blocks themselves come from nowhere."""
        assert load("memory_fill").retries() == 0
        assert load("memory_fill").peaks()["peak_reserved_bytes"] == 0

    def test_refusals(self, load, monkeypatch):
        """A full device is one whose blocks are refused down to the smallest."""
        cases = load("refusal_cases")
        asked = []

        def refuse(size, **_):
            asked.append(size)
            raise torch.OutOfMemoryError("full")

        monkeypatch.setattr(torch, "empty", refuse)
        assert cases.full() == []
        assert asked[0] == 16 * GIB
        assert asked[-1] == 512


class TestRefusals:
    def test_what_a_cpu_refuses(self, load):
        said = load("refusals").provoked("allocator", "cpu")
        assert said["recognised"]
        assert "can't allocate memory" in said["raised"]["text"]
        assert not load("refusals").provoked("wrong shapes", "cpu")["recognised"]

    def test_another_process_s_words_are_its_own(self, load, monkeypatch):
        cases = load("refusal_cases")

        def provoke(_):
            raise cases.Heard("CUDA error: out of memory")

        monkeypatch.setitem(cases.CASES, "heard", cases.Case(provoke))
        assert load("refusals").provoked("heard", "cpu")["recognised"]

    def test_what_is_missed_and_what_is_mistaken(self, load, finding):
        texts = {
            "a": {"expected": True, "recognised": False},
            "b": {"expected": False, "recognised": True},
            "c": {"expected": None, "recognised": True},
            "d": {"expected": True, "error": "ended after 25 s"},
        }
        load("refusals").judge(finding, texts)
        said = finding.data()
        assert said["contradicts"] is True
        assert "not recognised: a; taken for a refusal: b; nothing raised: d" in said["answer"]
        assert said["unavailable"]["d"].startswith("ended after 25 s")


class TestJudgements:
    def test_run_and_callback_against_the_bare_loop(self, load, finding):
        bare = {"samples_per_s": 100.0, "peak_reserved_bytes": 1000}
        rows = {
            32: {
                "bare": bare,
                "run": {"samples_per_s": 101.0, "peak_reserved_bytes": 1000},
                "callback": {"samples_per_s": 97.0, "outside": {"samples_per_s": 99.0}},
            },
            64: {"bare": {"error": "exit code 1"}},
        }
        load("bare_loop").judge(finding, rows)
        said = finding.data()
        assert said["answer"].startswith("samples/s against the bare loop: run at 32: +1.0 %, call")
        assert [entry["holds"] for entry in said["assumptions"]] == [False, True]
        assert said["unavailable"]["run at 64"] == "exit code 1"

    @pytest.mark.parametrize(("refused", "retries", "holds"), [
        (None, 0, True), (None, 3, False), ("CUDA out of memory", 1, False),
    ])  # fmt: skip
    def test_an_optimistic_size(self, load, finding, refused, retries, holds):
        fresh = {"refused": refused, "num_alloc_retries": retries, "steps_made": 4}
        load("largest_size").judge(finding, 95, fresh, 100)
        said = finding.data()
        assert said["assumptions"][0]["holds"] is holds
        assert said["answer"].endswith("The largest that fits is 100: -5.0 %.")

    def test_a_live_process_that_is_slower(self, load, finding):
        row = {"step_s": 1.0, "peak_reserved_bytes": 100}
        cases = {
            "plain": {"live": [row, row], "fresh": [row]},
            "torch.compile": {"live": [row | {"step_s": 1.2}], "fresh": [row]},
            "cudnn.benchmark": {"live": [row]},
        }
        load("live_or_fresh").judge(finding, cases)
        holds = [entry["holds"] for entry in finding.data()["assumptions"]]
        assert holds == [True, False]

    def test_occupancy(self, load, finding):
        fields = {"estimated_sm_efficiency_pct": 50.0, "gpm_sm_active_pct": 40.0, "unavailable": {}}
        near = {"occupancy_times_busy_pct": 41.0, "gpm_sm_occupancy_pct": 36.0, **fields}
        occupancy = load("occupancy")
        occupancy.judge(finding, {"near": near})
        assert finding.data()["contradicts"] is False
        occupancy.judge(finding, {"far": near | {"gpm_sm_occupancy_pct": 5.0}})
        assert finding.data()["contradicts"] is True


def test_a_profiled_window_is_timed(load):
    """The product's own profiler, around a step that is there on any machine."""
    work = load("profiling_work")
    found = work.profiled(lambda: torch.ones(4).sum(), "cpu")
    assert found["start_s"] > 0
    assert len(found["step_s"]) == 4
    assert found["trace_bytes"] > 0


@pytest.mark.slow
@pytest.mark.parametrize(("name", "options"), [
    ("bare_loop", ("--sizes", "8", "--seconds", "0.2", "--budget", "5s")),
    ("callback_async", ("--steps", "50")),
    ("step_after_profile", ("--steps", "2")),
    ("live_or_fresh", ("--only", "plain", "--sizes", "1,2")),
])  # fmt: skip
def test_what_a_cpu_can_measure(name, options):
    said = call(PROBES / f"{name}.py", "--device", "cpu", *options)
    assert not said["errors"], said
    assert not said["answer"].startswith("unavailable"), said
    assert said["contradicts"] is None  # nothing of it speaks of a GPU


class TestSummary:
    def results(self, findings):
        environment = {
            "device": {"name": "NVIDIA H200", "driver": "580.1", "torch": "2.11", "cuda": "13.0"},
            "python": "3.12.3",
            "started_at": "2026-11-22T10:00:00+0000",
        }
        step = {"name": "occupancy", "ok": False, "exit_code": 124}
        return {"environment": environment, "steps": [step], "findings": findings}

    def test_one_page(self, load, finding, monkeypatch):
        monkeypatch.syspath_prepend(ROOT / "scripts")
        summary = importlib.import_module("gpu_check_summary")
        finding.answer = "the counter moves every 250 ms."
        finding.assume("advisor/energy.py: UPDATE_S", 0.1, False, "every 250 ms")
        silent = load("harness").Finding("silent", "Is it?", "cpu")
        silent.lack("everything", "no CUDA device")
        text = summary.page([self.results([finding.data()] * 11 + [silent.data()])])
        assert len(text.splitlines()) <= 60
        assert text.splitlines()[0] == (
            "gpu-check: NVIDIA H200, driver 580.1, torch 2.11 (CUDA 13.0), Python 3.12.3, "
            "2026-11-22T10:00:00+0000"
        )
        assert "any [AGAINST]: Is it so?\n  the counter moves every 250 ms.\n" in text
        assert "  against advisor/energy.py: UPDATE_S = 0.1: every 250 ms\n" in text
        assert "step occupancy ended with code 124\n" in text
        assert text.endswith("unavailable: silent.\n")
