"""Recorded traces against independent reference values, and where these are known to be wrong."""

import functools
import json
from pathlib import Path

import numpy as np
import pytest
from batchadvisor.probes.trace import intervals, kineto_names, tables
from batchadvisor.probes.trace.metrics import Analysis
from batchadvisor.probes.trace.reader import read_trace
from batchadvisor.probes.trace.steps import UNKNOWN

TRACES = Path(__file__).parents[2].parent / "shared" / "traces"

OLD = (
    "v100_torch18_gpu_metrics_input.json",
    "v100_torch19_resnet50_workers0.pt.trace.json.gz",
    "v100_torch19_resnet50_workers4.pt.trace.json.gz",
)
SHARES = {
    "kernel_pct": "kernel_busy_pct",
    "busy_pct": "any_gpu_activity_pct",
    "compute_pct": "compute_busy_pct",
    "communication_pct": "comm_busy_pct",
    "sm_efficiency_pct": "est_sm_efficiency_pct",
    "occupancy_pct": "occupancy_recomputed_non_nccl_pct",
}
TIMES = {"exposed_communication_pct": "exposed_comm_us", "exposed_copy_pct": "memcpy_exposed_us"}
IDLE = {
    "total": "total",
    "launch_latency": "queued_gap_lt_30us",
    "dependency": "queued_gap_ge_30us",
    "unknown": "no_launch_record",
    "tail": "tail",
}
HOST = {"input": "dataloader", "synchronize": "sync_call", "launch": "launch_call"}
MISSED_TENSOR_CORES = {
    "a100_ddp2_resnet_nccl_rank0.json.gz",
    "small/a100_alexnet_cuda_sync_no_steps.json.gz",
    "h100_ddp8_nanogpt_compile/rank0.json.gz",
    "h100_ddp8_nanogpt_compile/rank4.json.gz",
}
DIGITS = 6e-5
"""The reference is rounded to four decimals."""


@functools.cache
def analysed(path):
    return Analysis(read_trace(path))


def names_with_reference():
    if not (TRACES / "expected.json").exists():
        return ["recorded traces"]  # the fixture says that they are absent
    traces = json.loads((TRACES / "expected.json").read_text())["traces"]
    return [name for name, entry in traces.items() if "ref" in entry]


@pytest.fixture(params=names_with_reference())
def case(request, recorded, expected):
    """(analysis, reference) of each recorded trace that has one."""
    return analysed(recorded / request.param), expected["traces"][request.param]["ref"]


def near(ours, reference, digits=DIGITS):
    """Within 0.1 %, or the rounding of the reference."""
    return abs(ours - reference) <= max(1e-3 * abs(reference), digits)


def test_events_and_steps(case):
    analysis, reference = case
    result = analysis.result()
    trace = analysis.trace
    assert not trace.losses.any
    assert trace.num_complete == reference["n_events_X"]
    assert len(trace.launches) == reference["n_runtime"]
    for kind, name in ((0, "n_kernels"), (1, "n_memcpy"), (2, "n_memset")):
        assert int((trace.gpu.kind == kind).sum()) == reference[name]
    assert [device.number for device in analysis.devices] == reference["devices"]
    unlaunched = np.count_nonzero(analysis.launched == UNKNOWN)
    assert unlaunched == reference["gpu_events_without_launch_record"]
    assert [step.name for step in result.steps] == [step["name"] for step in reference["steps"]]
    steps = analysis.steps
    assert steps.num_launched.tolist() == [
        wanted["gpu_events_launched"] for wanted in reference["steps"]
    ]
    ahead = steps.gpu_end_ns - steps.end_ns
    for index, (step, wanted) in enumerate(zip(result.steps, reference["steps"], strict=True)):
        exact = wanted["host_start_us"].partition(".")
        assert steps.start_ns[index] == int(exact[0]) * 1000 + int((exact[2] or "0").ljust(3, "0"))
        assert near(step.host_s * 1e6, wanted["host_dur_us"])
        if wanted["gpu_end_after_host_end_us"] is None:
            assert steps.gpu_end_ns[index] == UNKNOWN
        else:
            assert near(ahead[index] / 1e3, wanted["gpu_end_after_host_end_us"])


def test_step_time(case):
    analysis, reference = case
    wanted = reference.get("step_time_us")
    result = analysis.result()
    if wanted is None:
        assert result.step_s is None
        assert result.unavailable["step_s"]
    else:
        assert near(result.step_s * 1e6, wanted["best_estimate"])


def windows(analysis, reference):
    """(start, end, reference) of each window that the reference has.

    Its windows of steps begin on the host, with what is left of older steps; ours begin after that.
    """
    gpu, steps = analysis.trace.gpu, analysis.steps
    for name, wanted in reference["windows"].items():
        if name == "host_steps":
            yield int(steps.start_ns[0]), int(steps.end_ns.max()), wanted
        elif name == "gpu_span":
            yield int(gpu.start_ns.min()), int(gpu.end_ns.max()), wanted
        else:
            start, end, source = analysis.window()
            yield int(steps.start_ns[0]) if source == "steps" else start, end, wanted


def test_window_and_host(case):
    analysis, reference = case
    for start, end, wanted in windows(analysis, reference):
        assert near((end - start) / 1e3, wanted["length_us"])
        for covered, name in (
            (analysis.inputs, "dataloader_us"),
            (analysis.synchronize, "sync_calls_us"),
        ):
            clipped = intervals.clip(covered, start, end)
            assert near(intervals.length(clipped) / 1e3, wanted[name], 1.0)


def test_devices(case):
    analysis, reference = case
    for start, end, window in windows(analysis, reference):
        for device in analysis.device_metrics(start, end):
            wanted = window[f"device_{device.device}"]
            for ours, theirs in SHARES.items():
                if wanted[theirs] is not None:
                    assert near(getattr(device, ours), wanted[theirs]), ours
            compute_only = wanted["est_sm_efficiency_compute_only_pct"]
            if compute_only is not None and device.sm_efficiency_computing_pct is not None:
                ours = device.sm_efficiency_computing_pct * device.compute_pct / 100
                assert near(ours, compute_only)
            part_us = (end - start) / 1e5  # of a percent
            for ours, theirs in TIMES.items():
                assert near(getattr(device, ours) * part_us, wanted[theirs], 1.0), ours
            idle_us = {
                field.removesuffix("_pct"): getattr(device.idle, field) * part_us
                for field in device.idle.__struct_fields__
            }
            for ours, theirs in IDLE.items():
                assert near(idle_us[ours], wanted["idle_us"].get(theirs, 0), 1.0), ours
            host_us = sum(map(idle_us.get, ("input", "synchronize", "launch", "call", "host")))
            assert near(host_us, wanted["idle_us"].get("host_bound", 0), 1.0)
            for ours, theirs in HOST.items():
                reference_us = wanted["host_bound_idle_us_while"][theirs]
                assert near(idle_us[ours], reference_us, 1.0), ours


def test_every_missing_number_has_a_reason(case):
    analysis, _ = case
    result = analysis.result()
    for device in result.devices:
        for field in device.__struct_fields__:
            if getattr(device, field) is None:
                assert device.unavailable[field], field
    for field in ("step_s", "operators_pct", "input_wait_pct", "input_wait_s", "device_wait_s"):
        if getattr(result, field) is None:
            assert result.unavailable[field], field


def test_copies_and_kernels(case):
    analysis, reference = case
    trace = analysis.trace
    if not analysis.devices:
        assert reference["top5_kernels_whole_trace"] == []
        return
    span = int(trace.gpu.start_ns.min()), int(trace.gpu.end_ns.max())
    copies = {copy.direction: copy for d in analysis.device_metrics(*span) for copy in d.copies}
    assert copies.keys() == reference["memcpy"].keys()
    for direction, wanted in reference["memcpy"].items():
        assert copies[direction].num_copies == wanted["count"]
        assert near(copies[direction].total_s * 1e6, wanted["sum_us"])
        assert copies[direction].num_bytes in (None, wanted["bytes"])
    kernels = trace.gpu.select(trace.gpu.kind == kineto_names.KERNEL)
    durations = kernels.end_ns - kernels.start_ns
    unknown = np.full(len(kernels), np.nan)
    rows = tables.kernel_table(kernels.name, durations, unknown, trace.names)
    for row, wanted in zip(rows, reference["top5_kernels_whole_trace"], strict=False):
        assert near(row.total_s * 1e6, wanted["sum_us"])
    by_name = {row.name: row for row in rows}
    for wanted in reference["top5_kernels_whole_trace"]:
        match = [row for name, row in by_name.items() if name.startswith(wanted["name"])]
        assert wanted["count"] in {row.num_calls for row in match}


def test_breakdown_adds_up(case):
    analysis, _ = case
    result = analysis.result()
    for breakdown in [result.breakdown, *(step.breakdown for step in result.steps)]:
        parts = [getattr(breakdown, field) for field in breakdown.__struct_fields__[:-1]]
        assert all(part >= 0 for part in parts)
        assert sum(parts) == pytest.approx(breakdown.total_s, abs=1e-9)


@pytest.mark.parametrize("name", OLD)
def test_tensorboard_plugin_agrees_on_old_traces(name, recorded, expected):
    """torch-tb-profiler 0.4.3 is right on traces older than torch 1.12: equal to its last digit."""
    result = analysed(recorded / name).result()
    plugin = expected["traces"][name]["tb_0.4.3"]
    device, gpu = result.devices[0], plugin["gpu"]["0"]
    for field, title in (
        ("kernel_pct", "gpu_utilization_pct"),
        ("sm_efficiency_pct", "est_sm_efficiency_pct"),
    ):
        assert getattr(device, field) == pytest.approx(gpu[title], abs=DIGITS), field
    names = [step.name.removeprefix("ProfilerStep#") for step in result.steps]
    assert names == plugin["steps_names"]
    per_step = [step.window_s * 1e6 for step in result.steps]
    assert per_step == pytest.approx(plugin["per_step_total_us"], abs=1e-3)
    ours, theirs = result.breakdown, plugin["avg_step_us"]
    for field, title in (
        ("compute_s", "Kernel"),
        ("communication_s", "Communication"),
        ("memcpy_s", "Memcpy"),
        ("memset_s", "Memset"),
        ("runtime_s", "Runtime"),
        ("input_s", "DataLoader"),
        ("operator_s", "CPU Exec"),
        ("other_s", "Other"),
        ("total_s", "Total"),
    ):
        assert getattr(ours, field) * 1e6 == pytest.approx(theirs[title], abs=1e-3), title
    assert device.tensor_core_pct == pytest.approx(plugin["tc_used_ratio_pct"], abs=DIGITS)


class TestKnownDisagreements:
    """Where another tool or the reference says something else, and why.

    What the reference settles is compared above: TensorBoard's plugin counts the device's copies of
    steps as steps, takes NCCL's kernels for compute and finds no DataLoader among annotations;
    HTA takes Triton's CPU records for kernels and fails without a GPU; Kineto writes an occupancy
    of 0 for blocks with more than 48 KiB of shared memory.
    """

    def test_occupancy_of_the_oldest_trace(self, recorded, expected):
        """torch 1.8 wrote no occupancy, so other tools have none; the grid is enough for ours."""
        device = analysed(recorded / OLD[0]).result().devices[0]
        plugin = expected["traces"][OLD[0]]["tb_0.4.3"]["gpu"]["0"]
        assert plugin["est_achieved_occupancy_pct"] is None
        assert 0 < device.occupancy_pct < 0.1

    @pytest.mark.parametrize("name", names_with_reference())
    def test_tensor_core_names(self, name, recorded, expected):
        """The reference's list of names is shorter than ours: it misses sm80_xmma_*_tf32 kernels
        and FlashAttention on Hopper. On all other traces both find the same kernels.
        """
        analysis, reference = analysed(recorded / name), expected["traces"][name]["ref"]
        for start, end, window in windows(analysis, reference):
            for device in analysis.device_metrics(start, end):
                wanted = window[f"device_{device.device}"]
                share = wanted["tensor_core_pct_extended_names_non_nccl"]
                if name in MISSED_TENSOR_CORES:
                    assert share < device.tensor_core_pct < share + 17
                elif None not in (device.tensor_core_pct, share):
                    assert near(device.tensor_core_pct, share)

    def test_runtime_of_newer_traces(self, recorded, expected):
        """The plugin does not know the category `cuda_runtime`."""
        name = "a100_ddp2_resnet_nccl_rank0.json.gz"
        result = analysed(recorded / name).result()
        assert expected["traces"][name]["tb_0.4.3"]["avg_step_us"]["Runtime"] == 0
        assert result.breakdown.runtime_s > 0.005
