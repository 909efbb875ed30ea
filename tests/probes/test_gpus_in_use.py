"""Which GPUs a process uses, and its limit on them: torch's own counters on paper, no GPU here."""

import os
from types import SimpleNamespace

import pytest
import torch
from batchadvisor.probes.devices.gpu_in_use import GpuInUse
from batchadvisor.probes.devices.gpus_in_use import MemoryLimit, gpus_in_use
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

    @pytest.mark.parametrize(
        ("gpus", "kind", "expected"),
        [
            (FourGpus(0, started=False), "cpu", [5]),
            (FourGpus(0, started=False), "cuda", []),
            (FourGpus(1), "cpu", []),
        ],
        ids=["a step on the CPU", "a step on a GPU", "a GPU in use"],
    )
    def test_beside_a_gpu_once_it_is_known(self, monkeypatch, gpus, kind, expected):
        gpus.put(monkeypatch)
        hold, device_known, _ = _limits(self.order("cuda", 5, allowed=5))
        hold()
        assert self.limited == []
        device_known(kind)
        assert self.limited == expected


@pytest.mark.parametrize(
    ("device", "chosen", "cuda", "hip"),
    [
        ("cuda", {}, "MIG-1", "0,1"),
        ("cuda", {"CUDA_VISIBLE_DEVICES": "GPU-2"}, "GPU-2", "0,1"),
        ("cpu", {}, "", "-1"),
    ],
    ids=["the user's variables stay", "what was chosen", "the CPU hides all"],
)
def test_the_gpus_that_a_worker_sees(monkeypatch, tmp_path, device, chosen, cuda, hip):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "MIG-1")
    monkeypatch.setenv("HIP_VISIBLE_DEVICES", "0,1")
    monkeypatch.delenv("CUDA_DEVICE_ORDER", raising=False)
    variables = worker_environment(device, tmp_path, chosen)
    assert (variables["CUDA_VISIBLE_DEVICES"], variables["HIP_VISIBLE_DEVICES"]) == (cuda, hip)
    assert "CUDA_DEVICE_ORDER" not in variables
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "MIG-1"
