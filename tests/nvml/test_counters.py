"""Each group of counters of a window: what it says, and what it says instead."""

import os
import time

import pytest
from batchadvisor.probes.nvml import windows
from batchadvisor.probes.nvml.counters import Sample, decode_throttle
from batchadvisor.probes.nvml.sampler import NvmlSampler
from batchadvisor.records import GPU_SETTINGS
from batchadvisor.session.workers.gpu_watch import GpuWatch, doubts_of

from .windows import GPM, MIB, PCIE, QUIET, missing, window


@pytest.mark.parametrize(
    ("first", "last", "words"), [(9000, 100, "started anew"), (9000, 9000, "did not move")]
)
def test_no_energy_from_a_counter_that_did_not_rise(stub, clock, first, last, words):
    stub.set(energy_mj=first)
    counters = window(clock, meanwhile=lambda: stub.set(energy_mj=last))
    assert missing(counters) == {"energy_j"}
    assert words in counters.unavailable["energy_j"]


@pytest.mark.parametrize(
    ("function", "lost"),
    [("nvmlDeviceGetTotalEnergyConsumption", {"energy_j"}), ("nvmlGpmSampleGet", GPM | PCIE)],
)
def test_refused_at_the_end_only(stub, clock, function, lost):
    assert missing(window(clock, meanwhile=lambda: stub.set(**{function: 15}))) == lost


class TestGpm:
    @pytest.fixture
    def older(self, stub, clock, wait_until):
        """The counters of a window of a GPU without GPM, whose thread samples."""

        def counters(**driver):
            stub.set(gpm=0, **driver)
            with NvmlSampler(0, clock=clock, period_s=0.01) as sampler:
                sampler.begin()
                wait_until(sampler.samples)
                clock.advance(5.0)
                return sampler.end()

        return counters

    def test_older_gpus_have_none_and_pcie_comes_from_samples(self, older):
        counters = older(pcie_tx_kb=2_000, pcie_rx_kb=3_000)
        assert missing(counters) == GPM
        assert "Hopper" in counters.unavailable["sm_active_pct"]
        assert counters.pcie_tx_bytes_per_s == 2_000_000.0
        assert counters.pcie_rx_bytes_per_s == 3_000_000.0

    def test_pcie_refused_on_an_older_gpu(self, older):
        counters = older(nvmlDeviceGetPcieThroughput=4)
        assert missing(counters) == GPM | PCIE
        assert "Permissions" in counters.unavailable["pcie_tx_bytes_per_s"]

    def test_gpm_gpus_are_not_asked_for_pcie(self, stub, clock, wait_until):
        with NvmlSampler(0, clock=clock, **QUIET) as sampler:
            wait_until(sampler.samples)
        assert stub.calls("nvmlDeviceGetPcieThroughput") == 0

    def test_one_metric_refused(self, stub, clock):
        stub.set(**{"gpm_code.5": 3, "gpm_nan.10": 1, "gpm.2": 98_765})
        counters = window(clock)
        assert missing(counters) == {"tensor_active_pct", "dram_active_pct"}
        assert "Not Supported" in counters.unavailable["tensor_active_pct"]
        assert "nan" in counters.unavailable["dram_active_pct"]
        assert counters.sm_active_pct == 98.765

    @pytest.mark.parametrize("lasted_s", [0.05, 0.15, 0.45])
    def test_a_window_too_short_for_it(self, stub, clock, lasted_s):
        """0.15 s of an H100 whose kernels filled it were counted as 23 %."""
        counters = window(clock, lasted_s=lasted_s)
        assert missing(counters) >= GPM | PCIE
        assert f"{lasted_s:.2f} s" in counters.unavailable["sm_active_pct"]

    def test_a_buffer_that_cannot_be_freed_costs_nothing(self, stub, clock):
        stub["nvmlGpmSampleFree"] = 999
        assert missing(window(clock)) == set()
        stub._library.nvml_reset()


class TestProcesses:
    @pytest.mark.parametrize(
        ("driver", "options", "others", "why"),
        [
            ({}, {}, [], ""),
            ({"others": 2}, {}, ["trainer-4000001, 1.00 GiB", "trainer-4000002, 1.00 GiB"], ""),
            ({"others": 1, "nvmlSystemGetProcessName": 4}, {}, ["name unknown, 1.00 GiB"], ""),
            ({"others": 1, "name_is_no_text": 4}, {}, ["name unknown, 1.00 GiB"], ""),
            ({"others": 1, "bytes_hidden": 1}, {}, ["trainer-4000001"], "hides"),
            ({"others": 1, "pid": 0}, {"host_numbers": True}, ["trainer-4000001, 1.00 GiB"],
             "not on this GPU"),
            # In a container numbers differ, or the list is empty: nobody is called a stranger.
            ({"others": 1, "pid": 77}, {"host_numbers": False, "pids": [12]}, None, "4000001, 77"),
            ({"pid": 0}, {"host_numbers": False}, None, "not even the probed one"),
        ],
        ids=[
            "nobody", "two", "name refused", "name is no text", "bytes hidden", "own is not there",
            "other numbers", "empty list",
        ],
    )  # fmt: skip
    def test_others_are_named(self, stub, clock, driver, options, others, why):
        stub.set(**driver)
        counters = window(clock, **options)
        named = [f"{4000001 + at} ({text})" for at, text in enumerate(others or [])]
        assert counters.other_processes == tuple(named)
        lost = {"process_memory_bytes"} if why else set()
        assert missing(counters) == lost | ({"other_processes"} if others is None else set())
        assert all(why in reason for reason in counters.unavailable.values())

    def test_several_probed_processes_are_added(self, stub, clock):
        stub.set(others=2, pid=77)
        counters = window(clock, pids=[77, 4000001])
        assert counters.process_memory_bytes == (2048 + 1024) * MIB
        assert counters.other_processes == ("4000002 (trainer-4000002, 1.00 GiB)",)

    def test_the_most_memory_is_kept(self, stub, clock):
        with NvmlSampler(0, clock=clock, **QUIET) as sampler:
            stub.set(own_mib=9000)
            sampler.begin()
            clock.advance(1.0)
            sampler.end()
            stub.set(own_mib=100)
            clock.advance(1.0)
            assert sampler.stop().process_memory_bytes == 9000 * MIB


class TestAveragedValues:
    """Utilisation and power tell of the last second, so a window's first second is not its own."""

    def test_the_first_second_is_left_out(self, stub, clock, wait_until):
        stub.set(utilization_pct=3, power_mw=90_000)
        with NvmlSampler(0, clock=clock, period_s=0.01) as sampler:
            sampler.begin()
            clock.advance(0.5)
            wait_until(lambda: sampler.samples() and sampler.samples()[-1].time_s > 100.4)
            stub.set(utilization_pct=96, power_mw=300_000)
            clock.advance(1.0)
            counters = sampler.end()
        assert (counters.utilization_pct, counters.power_w) == (96.0, 300.0)

    def test_a_short_window_has_none(self, stub, clock):
        counters = window(clock, lasted_s=0.9)
        assert missing(counters) == {"utilization_pct", "power_w"}
        assert "averages" in counters.unavailable["utilization_pct"]

    def test_a_refusal_goes_before_the_short_window(self, stub, clock):
        stub["nvmlDeviceGetUtilizationRates"] = 3
        assert "Not Supported" in window(clock, lasted_s=0.9).unavailable["utilization_pct"]

    def test_unless_the_same_work_ran_before(self, stub, clock):
        assert missing(window(clock, lasted_s=0.6, steady_s=0.5)) == set()


def test_how_often_the_energy_counter_moves():
    for joules, update_s in (
        ([1, 2, 3, 4, 5], None),  # faster than it is read
        ([1, 1, 2, 2, 3], pytest.approx(0.2)),
        ([1, 1, 1], None),
        ([], None),
    ):
        samples = [Sample(time_s=at / 10, energy_j=value) for at, value in enumerate(joules)]
        assert windows.energy_update_s(samples) == update_s


class TestTheEnd:
    """The window ends with the timed steps, whatever runs between them and the reading."""

    def test_what_comes_after_it_is_left_out(self, stub, clock, wait_until):
        stub.set(utilization_pct=90, power_mw=300_000, energy_mj=1000)
        with NvmlSampler(0, clock=clock, period_s=0.5) as sampler:
            wait_until(sampler.samples)
            clock.advance(0.001)
            sampler.begin(steady_s=2.0)
            clock.advance(0.6)
            wait_until(lambda: len(sampler.samples()) == 2)
            ended_s = clock()
            stub.set(utilization_pct=1, power_mw=60_000, energy_mj=9000)
            clock.advance(1.0)  # a profiler starts
            wait_until(lambda: len(sampler.samples()) == 3)
            counters = sampler.end(ended_s)
        assert counters.window_s == pytest.approx(0.6)
        assert (counters.utilization_pct, counters.power_w) == (90, 300)
        assert counters.energy_j is None
        assert "1.00 s after the timed steps" in counters.unavailable["energy_j"]
        assert counters.sm_active_pct is None

    def test_a_message_takes_a_moment(self, stub, clock):
        stub.set(energy_mj=1000)
        with NvmlSampler(0, clock=clock, **QUIET) as sampler:
            sampler.begin(steady_s=2.0)
            clock.advance(3.0)
            ended_s = clock()
            clock.advance(0.01)
            stub.set(energy_mj=601_000)
            counters = sampler.end(ended_s)
        assert counters.window_s == pytest.approx(3.0)
        assert counters.energy_j == 600

    def test_an_end_before_the_begin_or_in_the_future(self, clock):
        for at_s in (0.0, 1e9):
            with NvmlSampler(0, clock=clock, **QUIET) as sampler:
                sampler.begin()
                clock.advance(0.05)
                assert 0 <= sampler.end(at_s).window_s <= 0.05 + 1e-9


def test_the_watch_ends_with_the_timed_steps(stub):
    """A worker's stamp ends it, in whatever phase it comes."""
    watch = GpuWatch([0])
    watch.follow(os.getpid())
    try:
        before_s = time.monotonic()
        watch.phase("timing")
        time.sleep(0.05)
        ended_s = time.monotonic()
        time.sleep(0.2)
        watch.phase("timing", ended_s)
        assert not watch._open
        assert 0.05 <= watch._counters.window_s <= ended_s - before_s
    finally:
        watch.close()


class TestThrottle:
    def test_share_and_order(self, stub, clock, wait_until):
        with NvmlSampler(0, clock=clock, period_s=0.01) as sampler:
            wait_until(sampler.samples)
            clock.advance(0.001)
            sampler.begin(steady_s=1.0)
            for count, bits in ((2, 0x4), (3, 0x24), (4, 0x1)):
                stub.set(throttle=bits)
                clock.advance(0.011)
                wait_until(lambda count=count: len(sampler.samples()) == count)
            stub.set(throttle=0x1)
            clock.advance(0.001)
            counters = sampler.end()
        assert counters.throttle_reasons == ("sw_power_cap", "sw_thermal_slowdown")
        assert counters.num_samples == 4
        assert counters.throttled_pct == 25.0  # a power cap is how it is set up
        assert sampler.samples()[-1].throttle_reasons == ("gpu_idle",)

    @pytest.mark.parametrize("bit", [0x2, 0x4, 0x10, 0x100, 0x8, 0x20, 0x40, 0x80])
    def test_a_limit_is_a_doubt_and_a_setting_is_none(self, stub, clock, bit):
        stub.set(throttle=bit | 0x4)  # and its power cap, of which nothing is said
        counters = window(clock)
        (name,) = decode_throttle(bit)
        assert name in counters.throttle_reasons
        limits = name not in GPU_SETTINGS
        assert limits == (bit in (0x8, 0x20, 0x40, 0x80))
        assert counters.throttled_pct == (100.0 if limits else 0.0)
        doubt = f"the GPU was slowed down: {name}"
        assert doubts_of(counters) == ([doubt] if limits else [])
