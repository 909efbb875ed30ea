"""What the GPU's counters and its allocator say beside the times."""

import msgspec
import pytest
from batchadvisor.advisor.explain.findings import findings_of
from batchadvisor.advisor.measured.measurements import Measurements
from batchadvisor.probes.devices.torch_devices import _with_segments
from batchadvisor.records import CoreMasks, Counters, DeviceInfo, Memory

from ..on_paper import record_of, trial_of

GIB = 1024**3
GPU = DeviceInfo(
    kind="cuda", name="A100", total_bytes=80 * GIB, capacity_bytes=80 * GIB, capacity_source=""
)


def findings(*trials, size=64):
    record = msgspec.structs.replace(record_of(trials), device=GPU)
    return {
        finding.rule: finding for finding in findings_of(Measurements.of(record), size, None, None)
    }


def test_settings_are_information():
    counters = Counters(throttle_reasons=("sw_power_cap", "applications_clocks_setting"))
    by_rule = findings(trial_of(64, 0.1, counters=counters), trial_of(32, 0.1, counters=counters))
    finding = by_rule["gpu.settings"]
    assert finding.severity == "info"
    assert "application clocks that somebody set" in finding.message
    assert "its power limit" in finding.message
    assert [evidence.value for evidence in finding.evidence] == [2, 2]


@pytest.mark.parametrize("reasons", [(), ("hw_thermal_slowdown",), ("unknown_0x100000",)])
def test_limits_are_not_settings(reasons):
    assert "gpu.settings" not in findings(
        trial_of(64, 0.1, counters=Counters(throttle_reasons=reasons))
    )


def memory(reserved, allocated, source="the allocator", retries=0):
    return Memory(
        peak_bytes=reserved * GIB, peak_source=source, reserved_bytes=reserved * GIB,
        allocated_bytes=allocated * GIB, num_alloc_retries=retries,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("retries", "step_s", "said"),
    [
        (40, 384 / 4000, "that is why"),  # 4,000 samples/s against 7,000
        (2, 384 / 4000, "it may be why"),
        (0, 384 / 4000, ""),
        (40, 384 / 7500, ""),  # it flushes, and is faster all the same
    ],
)
def test_retries_are_the_cause_of_a_slower_larger_size(retries, step_s, said):
    by_rule = findings(
        trial_of(256, 256 / 7000, memory=memory(60, 58)),
        trial_of(384, step_s, memory=memory(78, 76, retries=retries)),
        size=256,
    )
    assert ("memory.retries_above" in by_rule) is bool(said)
    if said:
        message = by_rule["memory.retries_above"].message
        assert (
            "batch 384 is slower than batch 256 (4,000 against 7,000 samples per second)" in message
        )
        assert f"flushed its cache {retries} times" in message
        assert said in message


@pytest.mark.parametrize(("reserved", "allocated", "fires"), [(60, 40, True), (60, 55, False)])
def test_memory_in_pieces_without_a_retry(reserved, allocated, fires):
    by_rule = findings(trial_of(64, 0.1, memory=memory(reserved, allocated)))
    assert ("memory.scattered" in by_rule) is fires
    if fires:
        assert "expandable_segments:True" in by_rule["memory.scattered"].remedy
        assert "20.00 GiB lies between" in by_rule["memory.scattered"].message


def test_the_best_of_several_windows_counts():
    worse, better = memory(60, 40), memory(45, 40)
    by_rule = findings(trial_of(64, 0.1, memory=worse), trial_of(64, 0.1, memory=better))
    assert "memory.scattered" not in by_rule


def test_what_is_on_already_is_not_proposed(monkeypatch):
    monkeypatch.setenv("PYTORCH_ALLOC_CONF", "max_split_size_mb:64, expandable_segments: True")
    source = f"the allocator{_with_segments()}"
    by_rule = findings(trial_of(64, 0.1, memory=memory(60, 40, source, retries=2)))
    assert by_rule["memory.scattered"].remedy == ""
    assert "expandable" not in by_rule["memory.retries"].remedy
    monkeypatch.setenv("PYTORCH_ALLOC_CONF", "expandable_segments:False")
    assert _with_segments() == ""


@pytest.mark.parametrize(
    ("at_start", "workers", "in_workers", "fires"),
    [(16, 8, 1, True), (16, 8, 4, True), (16, 8, 16, False), (16, 8, 8, False), (4, 8, 4, False),
     (16, 0, 0, False), (1, 8, 1, False)],
)  # fmt: skip
def test_workers_on_fewer_cores_than_there_were(at_start, workers, in_workers, fires):
    masks = CoreMasks(at_start=at_start, in_loop=1, num_workers=workers, in_workers=in_workers)
    record = record_of((trial_of(64, 0.1),))
    discovery = msgspec.structs.replace(record.discovery, cores=masks)
    record = msgspec.structs.replace(record, discovery=discovery)
    found = findings_of(Measurements.of(record), 64, None, None)
    assert ("workers.share_cores" in {finding.rule for finding in found}) is fires


@pytest.mark.parametrize(
    ("start_s", "workers", "persistent", "fires"),
    [(2.0, 2, False, True), (2.0, 2, True, False), (2.0, 0, False, False), (0.1, 2, False, False),
     (None, 2, False, False)],
)  # fmt: skip
def test_workers_that_each_epoch_starts_anew(start_s, workers, persistent, fires):
    record = record_of((trial_of(64, 0.1),))
    primary = msgspec.structs.replace(
        record.discovery.primary, num_samples=640, num_workers=workers,
        persistent_workers=persistent, start_s=start_s,
    )  # fmt: skip
    discovery = msgspec.structs.replace(record.discovery, loaders=(primary,))
    record = msgspec.structs.replace(record, discovery=discovery)
    found = findings_of(Measurements.of(record), 64, None, None)
    named = {finding.rule: finding for finding in found}
    assert ("workers.start" in named) is fires
    if fires:
        said = named["workers.start"].message
        assert "2 s (measured once), and the steps of an epoch at batch 64 take 1 s" in said
