"""The list of GPUs, and the ways in which there is none."""

import json
import subprocess
import sys

import pytest
from batchadvisor.probes.nvml import calls, gpus

BYTES = {"total_bytes", "used_bytes", "free_bytes"}
SHOW = """
import json, sys
from batchadvisor.probes.nvml import gpus
from batchadvisor.probes.nvml.sampler import NvmlSampler
sampler = NvmlSampler(0)
with sampler:
    sampler.begin()
    counters = sampler.end()
json.dump([
    gpus.nvml_unavailable(),
    [[gpu.index, gpu.uuid, gpu.name] for gpu in gpus.devices()],
    counters.power_w,
    counters.unavailable,
], sys.stdout)
"""


def show(library_path, settings=""):
    """What a fresh process sees, the library found the way the system finds it."""
    environment = {"LD_LIBRARY_PATH": str(library_path), "SOFTWARE_GPU_NVML": settings}
    command = [sys.executable, "-c", SHOW]
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return json.loads(done.stdout)


class TestInAFreshProcess:
    def test_two_gpus(self, stub_folder):
        reason, gpus, _, unavailable = show(stub_folder, "gpus=2")
        assert reason is None
        assert gpus == [
            [0, "GPU-00000000-1111-2222-3333-444444444444", "Stub GPU 0"],
            [1, "GPU-00000001-1111-2222-3333-444444444444", "Stub GPU 1"],
        ]
        assert "temperature_c" not in unavailable

    def test_no_library(self, tmp_path):
        # On a machine with a driver this file hides the real library: the loader stops at it.
        (tmp_path / "libnvidia-ml.so.1").write_bytes(b"not a library")
        reason, gpus, power_w, unavailable = show(tmp_path)
        assert "NVML Shared Library Not Found" in reason
        assert (gpus, power_w) == ([], None)
        assert unavailable["energy_j"] == reason


def test_all_fields(stub):
    stub.set(gpus=2, **{"1.mig": 1, "1.total_mib": 1000, "1.used_mib": 300})
    first, second = gpus.devices()
    assert first.mig_enabled is False
    assert (first.driver, first.unavailable) == ("999.00.1", {})
    assert second.mig_enabled is True
    assert second.total_bytes == 1000 * 1024**2
    assert second.used_bytes + second.free_bytes == second.total_bytes


@pytest.mark.parametrize(
    ("function", "missing"),
    [
        ("nvmlDeviceGetUUID", {"uuid"}),
        ("nvmlDeviceGetName", {"name"}),
        ("nvmlDeviceGetMemoryInfo", BYTES),
        ("nvmlSystemGetDriverVersion", {"driver"}),
        ("nvmlDeviceGetMigMode", {"mig_enabled"}),
        ("nvmlDeviceGetHandleByIndex_v2", {"uuid", "name", "mig_enabled", *BYTES}),
    ],
)
def test_a_refused_question_costs_its_own_fields_only(stub, function, missing):
    stub[function] = 15
    (gpu,) = gpus.devices()
    assert gpu.unavailable.keys() == missing
    assert all("GPU is lost" in reason for reason in gpu.unavailable.values())
    fields = {field for field in gpu.__struct_fields__ if getattr(gpu, field) is None}
    assert fields == missing


def test_mig_is_unknown_to_older_gpus_and_a_count_may_be_refused(stub):
    stub.set(mig=-1)
    (gpu,) = gpus.devices()
    assert gpu.mig_enabled is None
    assert "Not Supported" in gpu.unavailable["mig_enabled"]
    stub["nvmlDeviceGetCount_v2"] = 999
    assert gpus.devices() == []


def test_initialised_once_and_again_after_a_shutdown_by_others(stub):
    import pynvml

    assert stub.calls("nvmlInitWithFlags") == 0
    gpus.devices()
    gpus.devices()
    assert stub.calls("nvmlInitWithFlags") == 1
    pynvml.nvmlShutdown()
    gpus.devices()  # finds out
    assert len(gpus.devices()) == 1
    assert stub.calls("nvmlInitWithFlags") == 2


def test_a_failed_start_is_tried_again(stub):
    stub["nvmlInitWithFlags"] = 9
    for _ in range(2):
        assert "Driver Not Loaded" in gpus.nvml_unavailable()
    stub["nvmlInitWithFlags"] = 0
    assert gpus.nvml_unavailable() is None


def test_words_of_a_code_that_only_the_driver_knows(stub):
    stub["nvmlInitWithFlags"] = 27
    assert gpus.nvml_unavailable() == "nvmlInit: Stub is not ready (NVML code 27)"


def test_without_the_package(stub, monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert "nvidia-ml-py is not installed" in gpus.nvml_unavailable()


def test_an_older_package(stub, monkeypatch):
    import pynvml

    monkeypatch.delattr(pynvml, "nvmlDeviceGetMigMode")
    (gpu,) = gpus.devices()
    assert "nvidia-ml-py does not have it" in gpu.unavailable["mig_enabled"]


class TestFindHandle:
    @pytest.fixture(autouse=True)
    def two_gpus(self, stub):
        stub.set(gpus=2, **{"1.sm_mhz": 1234})

    @pytest.mark.parametrize(
        "gpu",
        [
            1,
            "GPU-00000001-1111-2222-3333-444444444444",
            "00000001-1111-2222-3333-444444444444",  # as torch writes it
        ],
    )
    def test_found(self, gpu):
        assert calls.ask("nvmlDeviceGetClockInfo", gpus.find_handle(gpu), 1) == 1234

    @pytest.mark.parametrize("gpu", [2, "GPU-7", "7", "MIG-7"])
    def test_not_found(self, gpu):
        with pytest.raises(calls.NvmlRefusedError, match=r"Not Found|Invalid Argument"):
            gpus.find_handle(gpu)
