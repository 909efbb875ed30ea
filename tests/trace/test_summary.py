"""The summary that a trial records."""

from __future__ import annotations

import msgspec
import pytest
from batchadvisor.errors import UsageError
from batchadvisor.probes.trace.summary import summarise
from batchadvisor.records import Profile

GPU_FIELDS = ("busy_pct", "kernel_pct", "sm_efficiency_pct", "occupancy_pct")


def test_cpu_only(recorded):
    path = recorded / "small" / "cpu_torch213_dataloader.pt.trace.json.gz"
    profile = summarise(path, "traces/3.json.gz")
    assert profile.trace == "traces/3.json.gz"
    assert profile.num_steps == 3
    for field in GPU_FIELDS:
        assert getattr(profile, field) is None
        assert profile.unavailable[field] == "the trace holds no GPU activity"
    assert profile.kernels == ()
    assert profile.input_wait_pct == pytest.approx(88.34, abs=0.01)
    assert profile.operators_pct == pytest.approx(6.24, abs=0.01)
    assert len(profile.operators) == 10
    times = [row.self_s for row in profile.operators]
    assert times == sorted(times, reverse=True)


def test_gpu(recorded):
    profile = summarise(recorded / "a100_ddp2_resnet_nccl_rank0.json.gz", "t")
    assert profile.busy_pct == pytest.approx(23.6052, abs=1e-4)
    assert profile.kernel_pct == pytest.approx(23.2628, abs=1e-4)
    assert profile.sm_efficiency_pct == pytest.approx(16.8688, abs=1e-4)
    assert profile.occupancy_pct == pytest.approx(52.3037, abs=1e-4)
    assert profile.kernels[0].name.startswith("ncclKernel_AllReduce")
    assert profile.unavailable == {}


def test_every_recorded_trace_gives_a_record(recorded, expected):
    for name in expected["traces"]:
        profile = summarise(recorded / name, name)
        assert msgspec.json.decode(msgspec.json.encode(profile), type=Profile) == profile
        for field in (*GPU_FIELDS, "operators_pct", "input_wait_pct"):
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
    assert "grids" in profile.unavailable["sm_efficiency_pct"]


def test_no_trace(write):
    with pytest.raises(UsageError):
        summarise(write("nothing"), "t")
