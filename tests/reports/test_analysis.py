"""The page of `analyze`, from reports written by hand. No number here was measured."""

from __future__ import annotations

import pytest
from batchadvisor.records import (
    Analysis,
    Breakdown,
    Collectives,
    Copies,
    Evidence,
    IdleShares,
    KernelTime,
    Profile,
    RankTimes,
    StepTimes,
    TraceReport,
    Verdict,
)
from batchadvisor.reports.builder.analysis import build_analysis
from batchadvisor.reports.builder.sections.limit import larger_text
from batchadvisor.reports.terminal.document import render
from msgspec.structs import replace

from .golden import agrees


def profile(**changes):
    idle = IdleShares(
        total_pct=40.0, input_pct=5.0, synchronize_pct=1.0, launch_pct=4.0, call_pct=1.0,
        host_pct=27.0, launch_latency_pct=1.0, dependency_pct=0.5, unknown_pct=0.3, tail_pct=0.2,
    )  # fmt: skip
    values = {
        "num_steps": 2, "busy_pct": 60.0, "kernel_pct": 59.0, "compute_pct": 35.0,
        "communication_pct": 30.0, "exposed_communication_pct": 24.0, "exposed_copy_pct": 1.0,
        "sm_efficiency_computing_pct": 91.0, "occupancy_pct": 44.0, "tensor_core_pct": 52.0,
        "tensor_core_unknown_pct": 8.0, "idle": idle, "operators_pct": 80.0, "input_wait_pct": 6.0,
        "kernels": (
            KernelTime(name="ncclDevKernel_AllReduce", num_calls=12, total_s=0.03),
            KernelTime(name="gemm" * 60, num_calls=48, total_s=0.01, occupancy_pct=31.0),
        ),
    }  # fmt: skip
    return Profile(**{**values, **changes})


VERDICT = Verdict(
    limit="communication",
    message="communication that no computation covers takes 24% of the step",
    evidence=(Evidence(metric="share of the step", value=0.24, threshold=0.15),),
    remedy="overlap it.",
    gain_at_most=2.27,
)


def report(rank, **changes):
    values = {
        "trace": f"traces/rank{rank}.json.gz", "rank": rank, "world_size": 4, "device": rank,
        "device_name": "Synthetic GPU", "window_s": 0.1, "window_source": "steps", "step_s": 0.05,
        "step_source": "GPU end to GPU end", "profile": profile(), "verdict": VERDICT,
        "input_pct": 5.0, "host_pct": 34.0, "synchronisation_pct": 0.0,
        "steps": tuple(
            StepTimes(name=f"ProfilerStep#{n}", window_s=0.05, host_s=0.048, busy_pct=60.0,
                      compute_pct=35.0, exposed_communication_pct=24.0, exposed_copy_pct=1.0,
                      input_pct=5.0, host_pct=34.0)
            for n in (7, 8)
        ),
    }  # fmt: skip
    return TraceReport(**{**values, **changes})


def job():
    ranks = tuple(
        RankTimes(rank=rank, communication_s=wait_s, transfer_s=0.002, wait_s=wait_s - 0.002,
                  caused_s=0.02 if rank == 1 else 0.0, num_last=6 if rank == 1 else 0)
        for rank, wait_s in enumerate((0.012, 0.002, 0.012))
    )  # fmt: skip
    collectives = Collectives(
        ranks=ranks, world_size=4, num_matched=6, num_unmatched=2, straggler=1, straggler_share=1.0
    )
    return Analysis(
        traces=tuple(report(rank) for rank in range(3)), collectives=collectives, verdict=VERDICT
    )


def shown(analysis, width=100, **rest):
    asked = {"steps": True, "kernels": 5, **rest}
    command = asked.pop("next_command", "batchadvisor analyze x")
    encoding = asked.pop("encoding", "utf-8")
    page = build_analysis(analysis, **asked)
    return render(page, next_command=command, width=width, color=False, encoding=encoding)


@pytest.mark.parametrize("width", [60, 100])
def test_whole_page(width):
    agrees(f"analysis-{width}.txt", shown(job(), width))


@pytest.mark.parametrize("width", [20, 40, 55, 72, 100, 160])
def test_no_line_is_too_long(width):
    assert max(map(len, shown(job(), width).splitlines())) <= max(width, 40)


def test_occupancy_and_step_time_keep_their_columns_and_what_went_is_named():
    long = report(0, trace="v100_ns_resolution_of_a_resnet_of_somebody_rank0.json.gz")
    for analysis in (job(), Analysis(traces=(long,))):
        shares = shown(analysis, 80, steps=False, kernels=0).split("Shares of the time\n")[1]
        assert {"step", "time", "busy", "occup.", "limit"} <= set(shares.splitlines()[0].split())
        assert "no room at 80 columns for" in shares
        assert "tensor" in shares.split("no room at 80 columns for")[1]
    assert "no room" not in shown(job(), 160)


def test_only_what_was_asked_for():
    text = shown(job(), steps=False, kernels=0, next_command="")
    assert "Steps of" not in text
    assert "Kernels of" not in text
    assert "Next:" not in text


def test_nothing_from_a_trace_is_obeyed():
    evil = "a\x1b[31mb\x07\nc"
    bad = report(0, trace=f"{evil}.json", device_name=evil, notes=(evil,))
    bad = replace(bad, profile=profile(kernels=(KernelTime(name=evil, num_calls=1, total_s=1.0),)))
    text = shown(Analysis(traces=(bad,)))
    assert "\x1b" not in text
    assert "\x07" not in text
    shown(Analysis(traces=(bad,)), encoding="ascii").encode("ascii")


@pytest.mark.parametrize(
    ("helps", "most", "text"),
    [
        ("helps", 1.5, "A larger batch helps, by at most x1.50 samples per second, an estimate."),
        ("helps", 27.0, "more than x10"),
        ("helps", None, "A larger batch helps."),
        ("does not help", None, "A larger batch does not help."),
        ("does not help", 1.004, "A larger batch does not help."),
        ("does not help", 27.0, "A larger batch does not help."),
        (
            "does not help",
            1.25,
            (
                "A larger batch is not what helps: what it could spread over more samples is worth "
                "at most x1.25 samples per second, an estimate."
            ),
        ),
        ("unknown", None, "is not known."),
        ("unknown", 2.0, "is not known; if it does, by at most x2.00 samples per second"),
    ],
)
def test_larger(helps, most, text):
    verdict = Verdict(limit="host", message="", larger_batch=helps, gain_at_most=most)
    assert text in larger_text(verdict)
    if text.startswith("A"):
        assert text == larger_text(verdict)


def of(*traces):
    """Traces by name, as rank 0 has them."""
    return Analysis(traces=tuple(report(0, trace=name) for name in traces))


BARE = report(0, device=None, step_s=None, steps=(), profile=Profile())
NOTHING = dict.fromkeys(Breakdown.__struct_fields__, 0.0)
WENT = report(
    0,
    breakdown=Breakdown(**{**NOTHING, "compute_s": 0.03, "input_s": 0.001, "total_s": 0.04}),
    copies=(
        Copies(direction="HtoD", num_copies=2, total_s=0.001, num_bytes=1 << 20),
        Copies(direction="DtoH", num_copies=1, total_s=0.001, num_bytes=None),
    ),
)
SIZES = [f"traces/batch_size=00{size}/w0t0.{size}.json.gz" for size in (16, 64)]
TWICE = "traces/batch_size=0016/w0t2.18.json.gz"
PAGES = {
    "unknowns are dashes": Analysis(traces=(BARE,)),
    "unknowns beside what is known": Analysis(traces=(BARE, report(1))),
    "where the time went": Analysis(traces=(WENT,)),
    "the sizes of a run": of(*SIZES),
    "a size that was timed twice": of(*SIZES, TWICE),
    "folders with files of one name": of("a/t.json", "b/t.json"),
    "folders with several files": of("a/t.json", "a/u.json", "b/t.json"),
    "of a long name the end is shown": of(
        "v100_ns_resolution_of_a_resnet_of_somebody_rank0.json.gz"
    ),
    "names that would become one stay whole": of(
        *(f"{name * 30}_and_then_the_same_end.json" for name in "ab")
    ),
}


def test_whole_pages_of_odd_traces():
    pages = (
        f"== {what} ==\n\n{shown(each, steps=False, kernels=0)}" for what, each in PAGES.items()
    )
    agrees("analysis-odd.txt", "\n".join(pages))
