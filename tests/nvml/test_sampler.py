"""The sampler over the stand-in: what it measures, and what each refusal costs."""

import threading

import msgspec
import pytest
from batchadvisor.probes.nvml import windows
from batchadvisor.probes.nvml.counters import Sample
from batchadvisor.probes.nvml.gpus import devices
from batchadvisor.probes.nvml.sampler import THREAD_NAME, NvmlSampler, next_due
from batchadvisor.records import Counters
from hypothesis import given
from hypothesis import strategies as st

from .windows import GPM, MIB, PCIE, QUIET, missing, window, window_of


def test_everything(stub, clock):
    stub.set(energy_mj=10_000, power_mw=123_456, throttle=0x44, others=1)
    counters = window(clock, meanwhile=lambda: stub.set(energy_mj=25_500))
    assert missing(counters) == set()
    assert counters.num_samples >= 1
    assert msgspec.structs.replace(counters, num_samples=1) == Counters(
        num_samples=1,
        window_s=5.0,
        utilization_pct=87.0,
        memory_used_bytes=4096 * MIB,
        process_memory_bytes=2048 * MIB,
        power_w=123.456,
        energy_j=15.5,
        temperature_c=61.0,
        sm_clock_mhz=1500.0,
        throttle_reasons=("sw_power_cap", "hw_thermal_slowdown"),
        throttled_pct=100.0,
        other_processes=("4000001 (trainer-4000001, 1.00 GiB)",),
        sm_active_pct=52.0,
        sm_occupancy_pct=53.0,
        tensor_active_pct=55.0,
        dram_active_pct=60.0,
        pcie_tx_bytes_per_s=70.0 * MIB,
        pcie_rx_bytes_per_s=71.0 * MIB,
    )
    assert msgspec.json.decode(msgspec.json.encode(counters), type=Counters) == counters


# What the refusal of one function must cost, and nothing else.
COSTS = {
    "nvmlInitWithFlags": set(windows.MEASURED) - {"window_s"},
    "nvmlDeviceGetHandleByIndex_v2": set(windows.MEASURED) - {"window_s"},
    "nvmlDeviceGetUtilizationRates": {"utilization_pct"},
    "nvmlDeviceGetMemoryInfo": {"memory_used_bytes"},
    "nvmlDeviceGetPowerUsage": {"power_w"},
    "nvmlDeviceGetTotalEnergyConsumption": {"energy_j"},
    "nvmlDeviceGetTemperatureV": {"temperature_c"},
    "nvmlDeviceGetClockInfo": {"sm_clock_mhz"},
    "nvmlDeviceGetCurrentClocksEventReasons": {"throttle_reasons", "throttled_pct"},
    "nvmlDeviceGetComputeRunningProcesses_v3": {"process_memory_bytes", "other_processes"},
    "nvmlSystemGetProcessName": set(),
    "nvmlGpmQueryDeviceSupport": GPM | PCIE,  # PCIe is then the thread's, which sleeps here
    "nvmlGpmSampleAlloc": GPM | PCIE,
    "nvmlGpmSampleGet": GPM | PCIE,
    "nvmlGpmMetricsGet": GPM | PCIE,
}


@pytest.mark.parametrize("code", [3, 4, 15, 999])
@pytest.mark.parametrize("function", COSTS)
def test_a_refused_call_costs_its_own_fields_only(stub, clock, function, code):
    stub.set(others=1)
    stub[function] = code
    counters = window(clock)
    costs = COSTS[function]
    asked_by_thread = PCIE if function == "nvmlGpmQueryDeviceSupport" else set()
    assert missing(counters) - asked_by_thread == costs - asked_by_thread
    words = {3: "Not Supported", 4: "Permissions", 15: "GPU is lost", 999: "Unknown Error"}
    for field in costs - asked_by_thread:
        assert words[code] in counters.unavailable[field]
        assert f"(NVML code {code})" in counters.unavailable[field]


@pytest.mark.parametrize("code", [*range(1, 31), 999, 12345])
def test_any_code_becomes_a_reason(stub, clock, code):
    stub["nvmlDeviceGetPowerUsage"] = code
    assert "power_w" in missing(window(clock))


@pytest.mark.parametrize("function", sorted(COSTS.keys() - {"nvmlSystemGetProcessName"}))
def test_a_call_that_fails_once_is_asked_again(stub, clock, function):
    stub["once:" + function] = 999
    window(clock)
    assert missing(window(clock)) == set()


def test_one_lost_sample_leaves_the_others(stub, clock, wait_until):
    with NvmlSampler(0, clock=clock, period_s=0.01) as sampler:
        wait_until(lambda: len(sampler.samples()) == 1)
        sampler.begin(steady_s=1.0)
        stub["nvmlDeviceGetPowerUsage"] = 999
        clock.advance(0.01)
        wait_until(lambda: len(sampler.samples()) == 2)
        stub["nvmlDeviceGetPowerUsage"] = 0
        clock.advance(1.0)
        counters = sampler.end()
    assert counters.power_w == 250.0
    assert "power_w" not in counters.unavailable
    assert "Unknown Error" in sampler.samples()[1].unavailable["power_w"]


def test_a_driver_without_the_newer_functions_is_asked_the_older_ones(stub, clock):
    stub["nvmlDeviceGetTemperatureV"] = 13
    stub["nvmlDeviceGetCurrentClocksEventReasons"] = 13
    stub.set(throttle=0x20)
    counters = window(clock)
    assert missing(counters) == set()
    assert counters.temperature_c == 61.0
    assert counters.throttle_reasons == ("sw_thermal_slowdown",)
    stub["nvmlDeviceGetComputeRunningProcesses_v3"] = 13  # which has no older one
    counters = window(clock)
    assert missing(counters) == {"process_memory_bytes", "other_processes"}
    assert "driver does not have it" in counters.unavailable["other_processes"]


class TestWindows:
    def test_many_on_one_sampler(self, stub, clock):
        with NvmlSampler(0, clock=clock, **QUIET) as sampler:
            for mhz in (1000, 1200, 1400):
                stub.set(sm_mhz=mhz)
                clock.advance(1.0)
                sampler.begin()
                clock.advance(2.0)
                counters = sampler.end()
                assert (counters.sm_clock_mhz, counters.window_s) == (mhz, 2.0)
            assert sampler.stop().window_s == 9.0

    def test_of_the_right_gpu(self, stub, clock):
        stub.set(gpus=2, **{"1.power_mw": 111_000})
        assert window_of(devices()[1].uuid, clock).power_w == 111.0

    def test_a_window_left_open_is_dropped(self, stub, clock):
        with NvmlSampler(0, clock=clock, **QUIET) as sampler:
            sampler.begin()
            clock.advance(50.0)
            sampler.begin()
            clock.advance(2.0)
            assert sampler.end().window_s == 2.0
            sampler.begin()

    def test_calls_come_in_turn(self, stub):
        with pytest.raises(ValueError, match="period_s"):
            NvmlSampler(0, period_s=0)
        sampler = NvmlSampler(0, **QUIET)
        with pytest.raises(RuntimeError, match="not started"):
            sampler.stop()
        sampler.start()
        with pytest.raises(RuntimeError, match="runs already"):
            sampler.start()
        with pytest.raises(RuntimeError, match="begin"):
            sampler.end()
        sampler.stop()
        sampler.start()
        assert sampler.stop().temperature_c == 61.0


class TestThread:
    def test_it_samples_in_real_time_and_ends(self, stub, wait_until):
        sampler = NvmlSampler(0, period_s=0.01)
        sampler.start()
        thread = next(running for running in threading.enumerate() if running.name == THREAD_NAME)
        assert thread.daemon
        wait_until(lambda: len(sampler.samples()) >= 10)
        sampler.stop()
        assert not thread.is_alive()

    def test_raw_samples(self, stub, wait_until):
        with NvmlSampler(0, period_s=0.01) as sampler:
            wait_until(lambda: len(sampler.samples()) >= 5)
        samples = sampler.samples()
        times = [sample.time_s for sample in samples]
        assert times == sorted(times)
        assert sampler.samples(since_s=times[2]) == samples[3:]
        line = msgspec.json.encode(samples[0])
        assert msgspec.json.decode(line, type=Sample) == samples[0]
        assert b"null" not in line

    def test_slow_questions_are_rare(self, stub, clock, wait_until):
        with NvmlSampler(0, clock=clock, period_s=0.01) as sampler:
            for count in range(1, 60):
                wait_until(lambda count=count: len(sampler.samples()) >= count)
                clock.advance(0.011)
            listed = [sample for sample in sampler.samples() if sample.other_processes is not None]
        assert len(listed) == 1

    def test_no_thread_without_a_gpu(self, stub, clock):
        stub.set(gpus=0)
        with NvmlSampler(0, clock=clock) as sampler:
            assert not [thread for thread in threading.enumerate() if thread.name == THREAD_NAME]
            assert "Invalid Argument" in sampler.unavailable
            sampler.begin()
            clock.advance(1.0)
            assert missing(sampler.end()) == set(windows.MEASURED) - {"window_s"}


@given(due_s=st.floats(0, 1e6), late_s=st.floats(0, 1e3), period_s=st.floats(1e-2, 10))
def test_the_period_does_not_drift(due_s, late_s, period_s):
    """The next time lies on the grid, after now, and less than a period away."""
    now_s = due_s + late_s
    after = next_due(due_s, now_s, period_s)
    steps = (after - due_s) / period_s
    assert abs(steps - round(steps)) < 1e-6 * max(1, steps) + 1e-3
    assert round(steps) >= 1
    assert -1e-6 < after - now_s <= period_s * (1 + 1e-6) + 1e-6
