"""The verdicts on recorded traces of real jobs."""

from __future__ import annotations

import pytest
from batchadvisor.cli import cli
from batchadvisor.session.analyze import analyze
from click.testing import CliRunner

LIMITS = {
    "v100_torch19_resnet50_workers0.pt.trace.json.gz": ("input", "does not help"),
    "v100_torch19_resnet50_workers4.pt.trace.json.gz": ("host", "helps"),
    "v100_ns_resolution_resnet_rank0.pt.trace.json.gz": ("saturated", "does not help"),
    "a100_ddp2_resnet_nccl_rank0.json.gz": ("host", "helps"),
    "h100_launchbound_transformer/steps1-3.pt.trace.json.gz": ("host", "helps"),
    "h100_launchbound_transformer/steps6-8.pt.trace.json.gz": ("host", "helps"),
    "h100_ddp8_nanogpt_compile/rank0.json.gz": ("communication", "unknown"),
    "h100_ddp8_nanogpt_compile/rank4.json.gz": ("communication", "unknown"),
    "h100_torch26_qwen05b_bs16_infer.json.gz": ("saturated", "does not help"),
    "v100_8rank_dlrm/rank1.json.gz": ("communication", "unknown"),
    "v100_8rank_dlrm/rank7.json.gz": ("host", "helps"),
    "small/cpu_torch213_dataloader.pt.trace.json.gz": ("input", "does not help"),
    "small/a100_triton_bogus_step_dur.json.gz": ("cannot tell", "unknown"),
    "small/cpu_only_gloo_rank34of300.pt.trace.json.gz": ("cannot tell", "unknown"),
}


COLUMNS = {"host": "host_pct", "input": "input_pct", "synchronisation": "synchronisation_pct"}


@pytest.mark.parametrize("name", LIMITS)
def test_limits(name, recorded):
    """The share that a verdict names is the share that the table shows."""
    (report,) = analyze([recorded / name]).traces
    verdict = report.verdict
    assert (verdict.limit, verdict.larger_batch) == LIMITS[name], verdict.message
    assert verdict.remedy
    if verdict.limit in COLUMNS and report.device is not None:
        share = getattr(report, COLUMNS[verdict.limit])
        assert f"{share:.0f}% of the" in verdict.message


def test_workers_and_not_a_larger_batch(recorded):
    (report,) = analyze([recorded / "v100_torch19_resnet50_workers0.pt.trace.json.gz"]).traces
    assert "33% of the step the GPU waits for the DataLoader" in report.verdict.message
    assert "num_workers" in report.verdict.remedy
    assert report.verdict.gain_at_most < 1.2


def test_a_launch_bound_step_that_trains_nothing(recorded):
    name = "h100_launchbound_transformer/steps1-3.pt.trace.json.gz"
    (report,) = analyze([recorded / name]).traces
    assert "CUDA graphs" in report.verdict.remedy
    assert report.verdict.gain_at_most > 5
    assert report.profile.trains is False
    assert "training" not in report.verdict.remedy
    assert "optimizer" not in report.verdict.remedy


def test_stragglers_and_not_62_percent_busy(recorded):
    analysis = analyze([recorded / "v100_8rank_dlrm"])
    assert analysis.verdict.limit == "communication"
    found = analysis.collectives
    assert (found.straggler, found.num_matched, found.num_unmatched) == (7, 8, 0)
    assert found.wait_share > 0.9
    assert {round(1e6 * rank.transfer_s) for rank in found.ranks} == {217}
    assert "Rank 7 is the slow one" in analysis.verdict.message
    busiest = max(analysis.traces, key=lambda trace: trace.profile.busy_pct)
    assert busiest.profile.busy_pct == pytest.approx(61.9, abs=0.1)
    assert busiest.profile.compute_pct < 7


def test_equal_ranks(recorded):
    analysis = analyze([recorded / "h100_ddp8_nanogpt_compile"])
    assert analysis.verdict.limit == "communication"
    assert analysis.collectives.num_matched == 56
    assert analysis.collectives.straggler is None
    assert analysis.collectives.wait_share < 0.2
    assert analysis.verdict.gain_at_most < 1.5


def test_every_trace_gives_a_page(recorded):
    """None of them has a graph, but two have no steps, four no GPU, and three are damaged."""
    done = CliRunner().invoke(cli, ["analyze", "--steps", "--kernels", "5", str(recorded)])
    assert done.exit_code == 0, done.output
    assert "expected.json" in done.output
    assert done.output.count("the trace is damaged") >= 2


def test_what_trains_is_told_from_what_does_not(recorded):
    for name, trains in {
        "v100_ns_resolution_resnet_rank0.pt.trace.json.gz": True,
        "a100_ddp2_resnet_nccl_rank0.json.gz": True,
        "h100_ddp8_nanogpt_compile/rank0.json.gz": True,
        "small/mi250_rocm62_minitoy_train.json.gz": True,
        "small/cpu_torch213_dataloader.pt.trace.json.gz": True,
        "h100_torch26_qwen05b_bs16_infer.json.gz": False,
    }.items():
        assert analyze([recorded / name]).traces[0].profile.trains is trains, name


def test_a_window_that_outlasts_its_work_says_so(recorded):
    (report,) = analyze([recorded / "small/a100_triton_bogus_step_dur.json.gz"]).traces
    assert "no more work came until the window's end" in report.verdict.message
    assert "13.3 s" in report.verdict.message
    assert "more steps" not in report.verdict.remedy
