"""A model on several devices: what limits it. The devices are made up; their figures are known."""

import itertools

import pytest
import torch
from batchadvisor.probes.devices.split_model import SpreadProbe, probe_of_model
from batchadvisor.probes.devices.torch_devices import CpuProbe
from batchadvisor.records import DeviceInfo, Memory


class PaperDevice:
    """Peaks and times that the test chooses."""

    def __init__(self, capacity, peak, elapsed=1.0):
        self.capacity, self.peak, self.elapsed = capacity, peak, elapsed
        self.calls = []

    def info(self):
        return DeviceInfo(
            kind="cuda", name="paper", total_bytes=self.capacity, capacity_bytes=self.capacity,
            capacity_source="free memory",
        )  # fmt: skip

    def reset_peaks(self):
        self.calls.append("reset")

    def synchronize(self):
        self.calls.append("synchronize")

    def read_memory(self):
        return Memory(peak_bytes=self.peak, peak_source="peak", reserved_bytes=self.peak)

    def mark(self):
        return object()

    def elapsed_s(self, start, end):
        assert start is not end
        return self.elapsed

    def reach(self, mark):
        self.calls.append(mark)


def spread(*devices):
    return SpreadProbe({f"cuda:{number}": device for number, device in enumerate(devices)})


def test_each_device_is_in_the_record():
    memory = spread(PaperDevice(1000, 300), PaperDevice(1000, 800)).read_memory()
    devices = [(each.device, each.peak_bytes, each.capacity_bytes) for each in memory.devices]
    assert devices == [("cuda:0", 300, 1000), ("cuda:1", 800, 1000)]
    assert memory.peak_bytes == 800
    assert "on cuda:1, the fullest of 2 devices" in memory.peak_source


def test_all_begin_anew_are_waited_for_and_come_to_their_own_mark():
    devices = PaperDevice(1, 1), PaperDevice(1, 1)
    probe = spread(*devices)
    probe.reset_peaks()
    probe.synchronize()
    mark = probe.mark()
    probe.reach(mark)
    assert [device.calls for device in devices] == [["reset", "synchronize", own] for own in mark]


def test_the_tightest_limits_where_capacities_differ():
    probe = spread(PaperDevice(4000, 1000), PaperDevice(1000, 200))
    assert probe.info().capacity_bytes == 1000
    memory = probe.read_memory()
    assert memory.peak_bytes == 250  # a quarter of 4000 is fuller than a fifth of 1000
    assert "in proportion" in memory.peak_source


@pytest.mark.parametrize("margin", [0.0, 0.05, 0.5])
def test_the_limit_holds_for_it_just_where_it_holds_on_every_device(margin):
    peaks = (1, 250, 500, 949, 951, 1000)
    for first_bytes, second_bytes, capacity in itertools.product(peaks, peaks, (1000, 3000)):
        probe = spread(PaperDevice(capacity, first_bytes), PaperDevice(1000, second_bytes))
        fits = probe.read_memory().peak_bytes <= probe.info().capacity_bytes * (1 - margin)
        room = capacity * (1 - margin) - first_bytes, 1000 * (1 - margin) - second_bytes
        # Whole bytes: at the very edge a rounded peak may fall on either side.
        at_the_edge = min(map(abs, room)) < 2
        assert fits == (min(room) >= 0) or at_the_edge


@pytest.mark.parametrize("last_s", [0.5, None])
def test_a_step_is_over_when_it_is_on_all(last_s):
    probe = spread(PaperDevice(1, 1, 0.2), PaperDevice(1, 1, last_s))
    assert probe.elapsed_s(probe.mark(), probe.mark()) == last_s


def test_one_device_has_its_own_probe():
    cpu = torch.device("cpu")
    assert isinstance(probe_of_model(cpu, ["cpu"], None), CpuProbe)
    assert isinstance(probe_of_model(cpu, ["cpu", "meta"], None), CpuProbe)  # holds nothing
