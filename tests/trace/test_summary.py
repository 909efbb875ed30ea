"""The summary that a trial records."""

import msgspec
import pytest
from batchadvisor.probes.trace.summary import NUM_ROWS, summarise
from batchadvisor.records import Profile

A100 = "a100_ddp2_resnet_nccl_rank0.json.gz"
H100 = "h100_ddp8_nanogpt_compile/rank0.json.gz"


def check(profile, **shares):
    """Percentages of a profile, to a tenth or as close as they are given."""
    for field, wanted in shares.items():
        assert getattr(profile, field) == pytest.approx(wanted, abs=0.06), field


def test_cpu_only(recorded):
    path = recorded / "small" / "cpu_torch213_dataloader.pt.trace.json.gz"
    profile = summarise(path, "traces/3.json.gz")
    assert (profile.trace, profile.num_steps) == ("traces/3.json.gz", 3)
    for field in ("busy_pct", "kernel_pct", "sm_efficiency_pct", "occupancy_pct"):
        assert profile.unavailable[field] == "the trace holds no GPU activity"
    assert profile.kernels == ()
    check(profile, input_wait_pct=88.34, operators_pct=6.24)
    times = [row.self_s for row in profile.operators]
    assert times == sorted(times, reverse=True)
    assert len(times) == NUM_ROWS


@pytest.mark.parametrize(
    ("name", "shares"),
    [
        (A100, {
            "busy_pct": 23.61, "kernel_pct": 23.26, "sm_efficiency_pct": 16.87,
            "occupancy_pct": 52.30,
        }),
        (H100, {
            "communication_pct": 25.6, "exposed_communication_pct": 22.3, "compute_pct": 69.9,
            "exposed_copy_pct": 0.8, "tensor_core_pct": 54.2, "tensor_core_unknown_pct": 39.6,
            "sm_efficiency_computing_pct": 97.0, "short_kernel_pct": 3.5,
        }),
    ],
)  # fmt: skip
def test_gpu(recorded, name, shares):
    profile = summarise(recorded / name, "t")
    check(profile, **shares)
    assert profile.kernels[0].name.startswith("nccl")
    assert profile.losses == ""
    assert profile.unavailable == {}


def test_every_recorded_trace_gives_a_record_and_what_is_missing_has_a_reason(recorded, expected):
    skipped = {"trace", "num_steps", "operators", "kernels", "losses", "unavailable"}
    for name in expected["traces"]:
        profile = summarise(recorded / name, name)
        assert msgspec.json.decode(msgspec.json.encode(profile), type=Profile) == profile
        for field in set(profile.__struct_fields__) - skipped:
            assert (getattr(profile, field) is None) == (field in profile.unavailable), field


def test_damage_is_said(recorded):
    profile = summarise(recorded / "small" / "malformed_truncated_json.json.gz", "t")
    assert "cut in the middle" in profile.losses


def test_the_busiest_of_several_gpus_is_described(write):
    """Synthetic: two GPUs, the second works longer."""
    events = [
        {"ph": "X", "cat": "kernel", "name": "k", "pid": d, "tid": 7, "ts": ts, "dur": dur,
         "args": {"device": d, "stream": 7}}
        for d, ts, dur in ((0, 0, 10), (1, 0, 80), (0, 90, 10))
    ]  # fmt: skip
    profile = summarise(write(events), "t")
    assert profile.busy_pct == 80
    assert profile.kernels[0].num_calls == 3
    # Each of them, for a model whose parts lie on both.
    assert [(device.device, device.busy_pct, device.idle_pct) for device in profile.devices] == [
        (0, 20, 80),
        (1, 80, 20),
    ]
    assert [device.dependency_pct is not None for device in profile.devices] == [True, True]
    assert "grids" in profile.unavailable["sm_efficiency_pct"]


def test_why_the_gpu_stood_still(recorded):
    profile = summarise(recorded / "v100_torch19_resnet50_workers0.pt.trace.json.gz", "t")
    idle = profile.idle
    assert idle.total_pct + profile.busy_pct == pytest.approx(100)
    total, *parts, drained = (getattr(idle, name) for name in idle.__struct_fields__)
    assert sum(parts) == pytest.approx(total)
    assert drained < 1
    check(idle, input_pct=33.1)
    check(profile, device_wait_pct=1.6, kernels_per_launch=1)


def launch(ts, correlation, dur=5, name="cudaLaunchKernel"):
    return {"ph": "X", "cat": "cuda_runtime", "name": name, "pid": 1, "tid": 1, "ts": ts,
            "dur": dur, "args": {"correlation": correlation}}  # fmt: skip


def work(ts, dur, correlation, cat="kernel"):
    return {"ph": "X", "cat": cat, "name": "w", "pid": 0, "tid": 7, "ts": ts, "dur": dur,
            "args": {"device": 0, "stream": 7, "correlation": correlation}}  # fmt: skip


@pytest.mark.parametrize(
    ("wait", "drained"),
    [
        ([launch(20, 9, 85, "cudaStreamSynchronize")], 50),
        ([launch(20, 3, 82, "cudaMemcpyAsync"), work(95, 5, 3, "gpu_memcpy")], 50),
        ([launch(20, 3, 5, "cudaMemcpyAsync"), work(95, 5, 3, "gpu_memcpy")], 0),
        ([], 0),
    ],
    ids=["synchronised", "a copy that blocks", "a copy that does not", "none"],
)
def test_a_queue_that_was_drained(wait, drained, write):
    """Synthetic: the GPU works to 100 and stands still to 150, for a launch at 145."""
    events = [launch(0, 1), work(10, 90, 1), *wait, launch(145, 2), work(150, 50, 2)]
    idle = summarise(write(events), "t").idle
    window = 190
    assert idle.drained_pct == pytest.approx(100 * drained / window)
    assert idle.total_pct == pytest.approx(100 * 50 / window)


@pytest.mark.parametrize("until", [25, 50, 108])
def test_a_wait_costs_every_gap_until_the_host_has_caught_up(until, write):
    """Synthetic: the host waits from 20 on, and then starts kernels of 10 each 50.

    Without the wait all of them come as much earlier: after 108, the third in a gap of 32.
    """
    events = [launch(0, 1), work(10, 90, 1), launch(20, 9, until - 20, "cudaStreamSynchronize")]
    for number, at in enumerate((140, 190, 240), 2):
        events += [launch(at - 5, number), work(at, 10, number)]
    idle = summarise(write(events), "t").idle
    assert idle.total_pct == pytest.approx(100 * 120 / 240)
    assert idle.drained_pct == pytest.approx(100 * (until - 20) / 240)


def test_kernels_of_a_graph(write):
    """Synthetic: one launch, four kernels."""
    events = [launch(0, 1, name="cudaGraphLaunch")] + [work(10 * n, 9, 1) for n in range(1, 5)]
    assert summarise(write(events), "t").kernels_per_launch == 4
