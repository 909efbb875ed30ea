"""What only a CUDA device can show; `scripts/gpu-check` runs these wherever one is."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from batchadvisor.probes.devices.torch_devices import CudaProbe, probe_for
from batchadvisor.probes.nvml.gpus import devices
from batchadvisor.probes.process.faults import is_out_of_memory, memory_is_short

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU"),
]
MIB = 2**20
SCRIPTS = Path(__file__).parents[1] / "scripts"


@pytest.fixture
def little_memory():
    """torch's allocator refuses beyond 256 MiB."""
    total = torch.cuda.get_device_properties(0).total_memory
    torch.cuda.empty_cache()
    torch.cuda.set_per_process_memory_fraction(256 * MIB / total)
    yield
    torch.cuda.set_per_process_memory_fraction(1.0)
    torch.cuda.empty_cache()


class TestRefusals:
    def test_the_allocator(self, little_memory):
        with pytest.raises(torch.OutOfMemoryError) as caught:
            torch.empty(512 * MIB, dtype=torch.uint8, device="cuda")
        assert is_out_of_memory(caught.value)
        assert memory_is_short()

    def test_more_than_the_device_has(self):
        total = torch.cuda.get_device_properties(0).total_memory
        with pytest.raises(torch.OutOfMemoryError) as caught:
            torch.empty(2 * total, dtype=torch.uint8, device="cuda")
        assert is_out_of_memory(caught.value)

    def test_a_bug(self):
        with pytest.raises(RuntimeError) as caught:
            torch.ones(3, 4, device="cuda") @ torch.ones(3, 4, device="cuda")
        assert not is_out_of_memory(caught.value)


class TestMemory:
    def test_the_peak_is_that_of_the_allocator(self):
        probe = probe_for(torch.device("cuda"), None)
        assert isinstance(probe, CudaProbe)
        probe.reset_peaks()
        held = torch.empty(64 * MIB, dtype=torch.uint8, device="cuda")
        torch.empty(128 * MIB, dtype=torch.uint8, device="cuda")
        probe.synchronize()
        memory = probe.read_memory()
        assert memory.allocated_bytes >= 192 * MIB
        assert memory.peak_bytes == memory.reserved_bytes >= memory.allocated_bytes
        assert memory.num_alloc_retries == 0
        assert len(held)

    def test_nvml_sees_the_same_device(self):
        uuid = str(torch.cuda.get_device_properties(0).uuid)
        assert any((device.uuid or "").endswith(uuid) for device in devices())


class TestTime:
    def test_events_and_the_clock_agree(self):
        probe = probe_for(torch.device("cuda"), None)
        matrix = torch.randn(2048, 2048, device="cuda")
        start = probe.mark()
        for _ in range(50):
            matrix = matrix @ matrix / 2048
        end = probe.mark()
        probe.synchronize()
        assert probe.elapsed_s(start, end) > 0


def test_a_run(tmp_path):
    """Under a limit that the allocator enforces, with a trace and the driver's counters."""
    script = tmp_path / "train.py"
    text = (SCRIPTS / "plain.py").read_text()
    text = text.replace("nn.Linear(64, 2))", "nn.Linear(64, 2)).cuda()")
    moved = "inputs, labels = inputs.cuda(), labels.cuda(); optimizer.zero_grad()"
    text = text.replace("optimizer.zero_grad()", moved)
    script.write_text(text)
    command = [sys.executable, "-m", "batchadvisor", "run", "-q", "--json", "-o", tmp_path / "out"]
    command += ["--memory-limit", "2GiB", "--sizes", "16,64", script]
    done = subprocess.run(
        [str(word) for word in command], capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stderr
    record = json.loads(done.stdout)["record"]
    assert record["device"]["kind"] == "cuda"
    assert record["device"]["capacity_bytes"] <= 2 * 2**30
    search = [trial for trial in record["trials"] if trial["purpose"] == "search"]
    assert [trial["outcome"] for trial in search] == ["ok", "ok"]
    assert all(trial["memory"]["reserved_bytes"] > 0 for trial in search)
    assert all(trial["profile"]["kernel_pct"] > 0 for trial in search)
