"""NVML: what batchadvisor counts of planted work, power, heat and slices."""

import json

import pytest

pytestmark = pytest.mark.gpu_build
LOAD = """
import json
import sys
import time
import torch
from batchadvisor.probes.nvml.sampler import NvmlSampler
blocks, seconds = int(sys.argv[1]), float(sys.argv[2])
x = torch.zeros(blocks * 1024, device="cuda")
torch.cuda.synchronize()
uuid = str(torch.cuda.get_device_properties(0).uuid)

def work(until):
    while time.monotonic() < until:
        x.add_(1)

with NvmlSampler(uuid) as sampler:
    work(time.monotonic() + 1.5)
    sampler.begin()
    work(time.monotonic() + seconds)
    counters = sampler.end()
import msgspec
print(msgspec.json.encode(counters).decode())
"""
TRAIN = """
import torch
from torch.utils.data import DataLoader, TensorDataset
model = torch.nn.Linear(1024, 1024).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(1000):
    for (x,) in DataLoader(TensorDataset(torch.zeros(2048, 1024)), batch_size=16):
        optimizer.zero_grad()
        model(x.cuda()).sum().backward()
        optimizer.step()
"""
CARD = """
capability = 9.0
sms = 100
kernel_us = 2000
bandwidth_gb_s = 1000000
launch_us = 5000
idle_w = 100
busy_w = 500
sm_mhz = 1700
"""
"""A launch each 5 ms, a kernel of 2 ms."""


def counted(machine, cards, blocks=50, seconds=2.5, busy_pct=0):
    """Of up to three windows the busiest: a host that is held up launches less, and never more.

    Args:
        busy_pct: what was planted; a window that is as busy is the last.
    """
    gpu, windows = machine(cards), []
    for _ in range(3):
        windows.append(json.loads(gpu.script(LOAD, blocks, seconds).splitlines()[-1]))
        if windows[-1]["utilization_pct"] >= busy_pct - 2:
            break
    return max(windows, key=lambda counters: counters["utilization_pct"])


@pytest.mark.alone
def test_a_steady_load_counts_as_it_was_planted(machine):
    counters = counted(machine, CARD, busy_pct=40)
    assert counters["energy_j"] / counters["window_s"] == pytest.approx(100 + 0.4 * 400, rel=0.05)
    assert counters["power_w"] == pytest.approx(260, rel=0.05)
    assert counters["utilization_pct"] == pytest.approx(40, abs=2)
    assert counters["sm_active_pct"] == pytest.approx(0.5 * 40, abs=2)
    assert counters["sm_clock_mhz"] == 1700
    assert counters["throttle_reasons"] == []
    assert counters["energy_update_s"] == pytest.approx(0.1, rel=0.1)
    assert counters["sm_occupancy_pct"] == pytest.approx(40 * 0.5 * 128 / 2048, abs=0.3)
    assert set(counters["unavailable"]) == {"tensor_active_pct", "dram_active_pct"}


@pytest.mark.alone
def test_a_power_cap_slows_it_down_and_is_named(machine):
    capped = CARD + "phase = 0 1000 1.5 0x4 1100\n"
    counters = counted(machine, capped, busy_pct=60)
    assert counters["throttle_reasons"] == ["sw_power_cap"]
    assert counters["throttled_pct"] == 0  # each size meets it
    assert counters["sm_clock_mhz"] == 1100
    assert counters["utilization_pct"] == pytest.approx(60, abs=2)


def test_heat_is_named_and_felt(machine):
    counters = counted(machine, CARD + "phase = 0 1000 1.2 0x40 1200\n", seconds=1.0, busy_pct=48)
    assert counters["throttle_reasons"] == ["hw_thermal_slowdown"]
    assert counters["throttled_pct"] == 100
    assert counters["temperature_c"] >= 85


SLICE = "name = A100 MIG 3g.40gb\nsms = 42\nmemory_mib = 40192\nmig_memory_mib = 81920\n"


def test_a_slice_is_told_from_the_whole(machine):
    text = """
import json
import msgspec
import torch
from batchadvisor.probes.nvml.gpus import devices, find_handle
from batchadvisor.probes.nvml.gpus import whole_of
about = torch.cuda.get_device_properties(0)
handle = find_handle(f"MIG-{about.uuid}")
print(json.dumps([msgspec.to_builtins(devices()), whole_of(handle)[1], about.total_memory]))
"""
    gpus, instance, total = json.loads(machine(SLICE).script(text))
    (whole,) = gpus
    (part,) = whole["instances"]
    assert whole["mig_enabled"]
    assert whole["total_bytes"] == 81920 << 20
    assert part["total_bytes"] == total == 40192 << 20
    assert part["uuid"].startswith("MIG-")
    assert instance == 8
    assert "software GPU" in part["name"]


def test_a_run_on_a_slice_counts_what_a_slice_can_tell(machine, tmp_path):
    (tmp_path / "train.py").write_text(TRAIN)
    gpu = machine(SLICE)
    visible = "MIG-50f70000-0000-4000-8000-000000000000"
    options = ("--sizes", "16,64", "--no-profile", "--budget", "15s", "train.py")
    record = gpu.advise(*options, CUDA_VISIBLE_DEVICES=visible)
    assert record.device.uuid == visible
    assert record.device.total_bytes == 40192 << 20
    counters = record.trials[0].counters
    assert counters.memory_used_bytes is not None
    assert counters.energy_j is None
    assert "Not Supported" in counters.unavailable["energy_j"]


def test_who_else_is_on_the_card(machine):
    text = """
import json
import os
import subprocess
import sys
import torch
from batchadvisor.probes.nvml.calls import ask
from batchadvisor.probes.nvml.processes import ProcessTable
other = "import sys, torch; x = torch.zeros(3 << 28, device='cuda'); print(1, flush=True); "
other += "sys.stdin.read()"
x = torch.zeros(1 << 28, device="cuda")
with subprocess.Popen([sys.executable, "-c", other], stdin=-1, stdout=-1) as neighbour:
    neighbour.stdout.readline()
    seen = ProcessTable([os.getpid()], host_numbers=True).look(ask("nvmlDeviceGetHandleByIndex", 0))
    neighbour.stdin.close()
free, total = torch.cuda.mem_get_info()
print(json.dumps([seen.own_bytes, [(p.name, p.memory_bytes) for p in seen.others], total - free]))
"""
    own, others, used = json.loads(machine("context_mib = 400\n").script(text))
    ((name, other_bytes),) = others
    assert own == used == (1024 + 400) << 20
    assert other_bytes == (3 * 1024 + 400) << 20
    assert "python" in name
