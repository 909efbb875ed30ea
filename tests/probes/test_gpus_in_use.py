"""Which GPUs a process uses, and its limit on them: torch's own counters on paper, no GPU here."""

import os
from types import SimpleNamespace

import pytest
import torch
from batchadvisor.probes.devices.gpu_in_use import GpuInUse
from batchadvisor.probes.devices.gpus_in_use import MemoryLimit, devices_of, gpus_in_use
from batchadvisor.probes.process.faults import memory_is_short
from batchadvisor.probes.process.worker_environment import worker_environment
from batchadvisor.probes.worker.run_script import _limits

GIB = 1024**3


class FourGpus:
    """`torch.cuda` with four GPUs of 80 GiB, and what it was asked to make a context for."""

    def __init__(self, *reserved_gib, started=True):
        self.reserved = [gib * GIB for gib in reserved_gib]
        self.started = started
        self.contexts = []
        self.limits = {}
        self.num_ooms = [0] * len(self.reserved)

    def put(self, monkeypatch):
        patch = monkeypatch.setattr
        patch(torch.cuda, "is_initialized", lambda: self.started)
        patch(torch.cuda, "is_available", lambda: pytest.fail("this starts the driver"))
        patch(torch.cuda, "device_count", lambda: len(self.reserved))
        patch(torch.cuda, "memory_reserved", lambda index: self.reserved[index])
        patch(torch.cuda, "memory_stats", lambda index: {"num_ooms": self.num_ooms[index]})
        patch(torch.cuda, "mem_get_info", self._info)
        patch(torch.cuda, "set_per_process_memory_fraction", self._limit)
        patch(
            torch.cuda,
            "get_device_properties",
            lambda index: SimpleNamespace(total_memory=80 * GIB, uuid=f"{index}abc"),
        )
        return self

    def _info(self, index):
        self.contexts.append(index)
        return 80 * GIB - self.reserved[index], 80 * GIB

    def _limit(self, share, index):
        self.contexts.append(index)
        self.limits[index] = share


def test_those_with_memory(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1,2,3")
    FourGpus(0, 3, 0, 1).put(monkeypatch)
    assert gpus_in_use() == (
        GpuInUse(index=1, uuid="GPU-1abc"),
        GpuInUse(index=3, uuid="GPU-3abc"),
    )


def test_none_before_cuda_has_started(monkeypatch):
    FourGpus(1, 1, started=False).put(monkeypatch)
    assert gpus_in_use() == ()
    MemoryLimit(GIB).hold()
    assert not memory_is_short()


def test_the_limit_touches_no_gpu_that_nobody_uses(monkeypatch):
    gpus = FourGpus(0, 3, 0, 0).put(monkeypatch)
    limit = MemoryLimit(8 * GIB)
    limit.hold()
    assert gpus.limits == {1: 0.1}
    gpus.reserved[2] = GIB
    limit.hold()
    assert gpus.limits == {1: 0.1, 2: 0.1}
    assert gpus.contexts == [1, 2]  # once each


def test_short_memory_is_looked_for_where_there_is_some(monkeypatch):
    gpus = FourGpus(0, 79, 0, 0).put(monkeypatch)
    assert memory_is_short()
    assert gpus.contexts == [1]
    gpus.reserved[1] = GIB
    assert not memory_is_short()
    gpus.num_ooms[3] = 1  # its first request was refused, so that it has nothing
    assert memory_is_short()
    assert set(gpus.contexts) == {1}


def test_a_model_of_several_gpus():
    in_use = [GpuInUse(index=0), GpuInUse(index=2)]
    assert devices_of(torch.device("cuda:0"), ["cuda:0", "cuda:1"], in_use) == [
        "cuda:0",
        "cuda:1",
        "cuda:2",
    ]
    assert devices_of(torch.device("cpu"), ["cpu"], in_use) == ["cpu"]


class TestLimitsOfTheProcess:
    """No GPU is asked before the script runs, and the CPU is limited once it is known."""

    @pytest.fixture(autouse=True)
    def limited(self, monkeypatch):
        from batchadvisor.probes.devices import torch_devices

        self.limited = []
        monkeypatch.setattr(torch_devices, "limit_process_memory", self.limited.append)

    @staticmethod
    def order(device, data=None, allowed=None):
        return SimpleNamespace(device=device, data_limit_bytes=data, memory_limit_bytes=allowed)

    def test_the_cpu_at_once(self):
        _, device_known, _ = _limits(self.order("cpu", 5))
        assert self.limited == [5]
        device_known("cpu")
        assert self.limited == [5]

    @pytest.mark.parametrize(("kind", "expected"), [("cpu", [5]), ("cuda", [])])
    def test_beside_a_gpu_once_it_is_known(self, monkeypatch, kind, expected):
        FourGpus(0, started=False).put(monkeypatch)
        hold, device_known, _ = _limits(self.order("cuda", 5, allowed=5))
        hold()
        assert self.limited == []
        device_known(kind)
        assert self.limited == expected

    def test_not_where_the_gpu_is_in_use(self, monkeypatch):
        FourGpus(1).put(monkeypatch)
        _, device_known, _ = _limits(self.order("cuda", 5))
        device_known("cpu")
        assert self.limited == []


class TestEnvironment:
    def test_the_users_variables_stay(self, monkeypatch, tmp_path):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "MIG-1")
        monkeypatch.delenv("CUDA_DEVICE_ORDER", raising=False)
        variables = worker_environment("cuda", tmp_path)
        assert variables["CUDA_VISIBLE_DEVICES"] == "MIG-1"
        assert "CUDA_DEVICE_ORDER" not in variables

    def test_what_was_chosen(self, tmp_path):
        variables = worker_environment("cuda", tmp_path, {"CUDA_VISIBLE_DEVICES": "GPU-2"})
        assert variables["CUDA_VISIBLE_DEVICES"] == "GPU-2"
        assert "CUDA_VISIBLE_DEVICES" not in os.environ or (
            os.environ["CUDA_VISIBLE_DEVICES"] != "GPU-2"
        )

    def test_the_cpu_hides_all(self, monkeypatch, tmp_path):
        monkeypatch.setenv("HIP_VISIBLE_DEVICES", "0,1")
        variables = worker_environment("cpu", tmp_path)
        assert (variables["CUDA_VISIBLE_DEVICES"], variables["HIP_VISIBLE_DEVICES"]) == ("", "-1")
