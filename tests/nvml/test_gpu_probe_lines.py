"""The probes of `scripts/gpu-check` on the virtual GPU: planted truths, a GPU's own lines."""

import argparse
import json
import sys
import time
from types import SimpleNamespace

import pytest
import torch
from torch.overrides import TorchFunctionMode

from ..virtual_gpu.device import VirtualGpu
from ..virtual_gpu.torch_cuda import install

pytestmark = pytest.mark.slow

NO_GPU = pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
GIB = 2**30
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

        result = load("hungry").largest(step, 50, bound)
        assert result["largest"] == 100
        assert len(result["tried"]) < 12


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
        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        with OnTheCpu():
            yield
        torch.set_num_threads(threads)

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
        monkeypatch.setattr(module, "GPM_S", 0.7)
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
        assert not finding.data()["answer"].startswith("unavailable")

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
