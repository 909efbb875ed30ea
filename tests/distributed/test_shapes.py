"""Shapes of parallelism are recognised in the process that holds them."""

import pytest
from batchadvisor.advisor.explain.distribution_findings import distribution_findings
from batchadvisor.advisor.measured.measurements import Measurements
from batchadvisor.records import (
    DeviceMemory,
    DeviceShare,
    Distribution,
    Goal,
    Memory,
    Parallelism,
    Profile,
    RunRecord,
    ScriptInfo,
    Trial,
)

from ..end_to_end.preloaded import run_code

CODE = """
import os, sys
import torch, torch.distributed as dist
from torch import nn
from batchadvisor.probes.worker.parallelism import recognise
kind = sys.argv[1]
model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4))
if kind in ("DistributedDataParallel", "FSDP2"):
    dist.init_process_group("gloo", init_method=f"file://{sys.argv[2]}", rank=0, world_size=1)
if kind == "DistributedDataParallel":
    model = nn.parallel.DistributedDataParallel(model)
elif kind == "DataParallel":
    model = nn.DataParallel(model)
elif kind == "FSDP2":
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.device_mesh import init_device_mesh
    fully_shard(model, mesh=init_device_mesh("cpu", (1,)))
elif kind == "SyncBatchNorm":
    model = nn.SyncBatchNorm.convert_sync_batchnorm(model)
elif kind == "spread model":
    model.append(nn.Linear(4, 4, device="meta"))
parallelism = recognise(model.parameters())
shapes, unknown = ",".join(parallelism.shapes), len(parallelism.not_measured)
print(shapes, parallelism.world_size, unknown, flush=True)
os._exit(0)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "world_size", "num_unknown"),
    [
        ("plain", None, 0),
        ("DistributedDataParallel", 1, 0),
        ("DataParallel", None, 1),
        ("FSDP2", 1, 1),
        ("SyncBatchNorm", None, 1),
        ("spread model", None, 1),
    ],
)
def test_recognised(kind, world_size, num_unknown, tmp_path):
    _, said, errors = run_code(CODE, kind, tmp_path / "store", folder=tmp_path)
    shapes = "" if kind == "plain" else kind
    assert said.strip() == f"{shapes} {world_size} {num_unknown}".strip(), errors


def findings(batch_size=9, trials=(), **seen):
    record = RunRecord(
        state="finished", started_at="", command=(), script=ScriptInfo(path="a.py"), goal=Goal(),
        trials=trials,
        distribution=Distribution(
            world_size=1, launcher="none", parallelism=Parallelism(**seen)
        ),
    )  # fmt: skip
    return {
        finding.rule: finding
        for finding in distribution_findings(Measurements.of(record), batch_size, None)
    }


class TestFindings:
    @pytest.mark.parametrize(
        ("batch_size", "num", "layout", "bias"),
        [(9, 4, "3 + 3 + 3; 1 of 4 GPUs stay idle", None), (10, 3, "4 + 4 + 2", "x2.00")],
    )
    def test_data_parallel_says_its_layout_and_whose_samples_weigh_more(
        self, batch_size, num, layout, bias
    ):
        replicas = tuple(f"cuda:{index}" for index in range(num))
        by_rule = findings(batch_size, shapes=("DataParallel",), replicas=replicas)
        assert layout in by_rule["data_parallel.layout"].message
        assert ("data_parallel.bias" in by_rule) is (bias is not None)  # the parts are equal
        assert bias is None or bias in by_rule["data_parallel.bias"].message

    def test_the_fullest_device_is_named_and_each_ones_idle_time(self):
        devices = (
            DeviceMemory(device="cuda:0", peak_bytes=8 << 30, capacity_bytes=16 << 30),
            DeviceMemory(device="cuda:1", peak_bytes=6 << 30, capacity_bytes=8 << 30),
        )
        idle = (
            DeviceShare(device=0, busy_pct=60.0, idle_pct=40.0),
            DeviceShare(device=1, busy_pct=45.0, idle_pct=55.0),
        )
        trial = Trial(
            ordinal=0, worker=0, batch_size=9, kind="timed", purpose="search", outcome="ok",
            arrived_batch_size=9,
            memory=Memory(peak_bytes=6 << 30, peak_source="", devices=devices),
            profile=Profile(devices=idle),
        )  # fmt: skip
        seen = {"shapes": ("spread model",), "devices": {"cuda:0": 1 << 30, "cuda:1": 1 << 20}}
        by_rule = findings(trials=(trial,), **seen)
        assert "cuda:0 1" in by_rule["spread.devices"].message
        assert "cuda:1" in by_rule["spread.devices"].message
        assert by_rule["spread.memory"].message.startswith("cuda:1 has the least room")
        assert "cuda:0 8.00 GiB of 16.00 GiB" in by_rule["spread.memory"].message
        bubble = by_rule["spread.bubble"]
        assert "GPU 0 40 %, GPU 1 55 %" in bubble.message
        assert bubble.severity == "warning"
        assert [evidence.value for evidence in bubble.evidence] == [40.0, 55.0]
        # Without a trace that is said.
        assert "not known" in findings(**seen)["spread.bubble"].message

    def test_what_is_not_measured_is_said(self):
        by_rule = findings(not_measured=("what FSDP2 costs",))
        assert by_rule["distribution.not_measured"].message == "not measured: what FSDP2 costs"
        assert findings() == {}
