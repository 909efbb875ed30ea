"""A synthetic GPU: no number here was measured on any device; see samples.py."""

from __future__ import annotations

from batchadvisor.records import (
    Advice,
    Counters,
    DeviceInfo,
    Evidence,
    Fault,
    FileTouched,
    Finding,
    MemoryLaw,
    Profile,
    Tail,
    Training,
    Verdict,
    Versions,
)
from batchadvisor.units import GIB
from msgspec.structs import replace

from ..on_paper import trial_of
from .builders import choice, discovery, failed, learning_rates, record_of, timed

SYNTHETIC_GPU = "Synthetic GPU 80GB"


def gpu():
    """A finished run on a synthetic GPU: profiles, a fit-only size, out of memory at the top."""

    def profiled(ordinal, size, step_s, peak_gib, *, relative, busy, occupancy, power_w):
        profile = Profile(
            num_steps=3, busy_pct=busy, occupancy_pct=occupancy, sm_efficiency_pct=busy * 0.9,
            tensor_core_pct=31.0, tensor_core_unknown_pct=12.0, operators_pct=70, input_wait_pct=2,
        )  # fmt: skip
        return timed(
            ordinal, size, step_s, peak_gib * GIB, relative=relative, profile=profile,
            counters=Counters(num_samples=20, window_s=4.0, power_w=power_w, energy_j=4 * power_w),
            samples_per_joule=size / step_s / power_w,
        )  # fmt: skip

    trials = (
        profiled(0, 2, 0.01183, 3.1, relative=0.03, busy=38, occupancy=21.4, power_w=145),
        profiled(1, 16, 0.0121, 5.9, relative=0.02, busy=54, occupancy=33.2, power_w=230),
        profiled(2, 64, 0.01943, 14.8, relative=0.004, busy=86, occupancy=47.0, power_w=480),
        profiled(3, 256, 0.0704, 50.2, relative=0.003, busy=97.6, occupancy=51.1, power_w=610),
        failed(4, 512, "out_of_memory", "CUDA out of memory. Tried to allocate 12.25 GiB."),
        trial_of(384, ordinal=5, worker=1, peak=73.9 * GIB),
        timed(
            6,
            128,
            0.0358,
            26.6 * GIB,
            relative=0.003,
            worker=1,
            purpose="confirm",
            unavailable={"profile": "the profiler did not stop in time"},
        ),
        timed(7, 256, 0.0702, 50.2 * GIB, relative=0.003, worker=1, purpose="confirm"),
        timed(8, 16, 0.0122, 5.9 * GIB, relative=0.02, worker=1, purpose="confirm"),
    )
    record = record_of(
        device=DeviceInfo(
            kind="cuda",
            name=SYNTHETIC_GPU,
            index=0,
            total_bytes=80 * GIB,
            capacity_bytes=78 * GIB,
            capacity_source="free memory of the device and what the allocator holds",
        ),
        versions=Versions(
            batchadvisor="0.1.0", python="3.11.7", torch="2.9.0", cuda="12.8", driver="570.86"
        ),
        discovery=discovery(16, 60_000, "AdamW", 0.0003, "cuda:0"),
        trials=trials,
        num_workers_started=3,
        files=tuple(FileTouched(path=f"out/sample_{n:02}.png", action="write") for n in range(14)),
    )
    advice = Advice(
        schema_version="1.0",
        goal=record.goal,
        headline="Use batch size 128: 3575 samples/s ±0.3%, peak 26.60 GiB",
        reason="The smallest size that reaches 95% of the best: 98.1% of the throughput of 256 "
        "(measured in turn, 97.5% to 98.6%). x2.73 the samples per second of the script's own 16 "
        "(x2.66 to x2.79).",
        sureness="confirmed",
        recommended=choice(trials[6], 60_000),
        fastest=choice(trials[7], 60_000),
        largest=choice(trials[5]),
        native=choice(trials[8], 60_000),
        change="src/experiments/config.py:12  BATCH = 16 → BATCH = 128",
        verdict=Verdict(
            limit="cannot tell",
            message="no share of the step stands out, and the slope of the throughput is within "
            "the noise",
            evidence=(
                Evidence(metric="share of the step waiting for the loader", value=0.02),
                Evidence(metric="device busy (%)", value=93.1, threshold=70.0),
            ),
            remedy="measure longer (--budget), on a quieter machine.",
        ),
        training=Training(
            effective_before=16,
            effective_after=128,
            steps_before=3750,
            steps_after=469,
            micro_batches=1,
            keep_accumulation=None,
            learning_rates=learning_rates("AdamW", 0.0003, 0.00084853),
        ),
        tail=Tail(
            num_samples=60_000,
            batch_size=128,
            drop_last=False,
            steps_per_epoch=469,
            last_batch=96,
            dropped=0,
            weight=128 / 96,
        ),
        tail_check=None,
        memory_law=MemoryLaw(
            fixed_bytes=2.9 * GIB,
            slope_bytes=0.185 * GIB,
            residual=0.008,
            sizes=(128, 256, 384),
            largest_estimate=384,
        ),
        time_law=None,
        findings=(
            Finding(
                rule="doubt",
                severity="warning",
                message="another process used the GPU: python (pid 4242), 1.2 GiB",
                remedy="run again when the machine is free.",
            ),
            Finding(
                rule="memory.refused",
                severity="info",
                message="out of memory at 512 (limit 78.00 GiB)",
                evidence=(Evidence(metric="batch size", value=512),),
            ),
        ),
        unavailable={"time_law": "a straight line misses a measured step time by 31%"},
    )
    return record, advice


def nothing_fits():
    """Batch 1 runs out of memory on the synthetic GPU."""
    record, advice = gpu()
    detail = "CUDA out of memory. Tried to allocate 90.00 GiB."
    record = replace(
        record,
        trials=(
            failed(0, 4, "out_of_memory", detail),
            failed(1, 1, "out_of_memory", detail, worker=1),
        ),
        stop_reason="nothing fits: batch 1 failed",
        faults=(
            Fault(
                outcome="out_of_memory",
                detail="the script's own batch of 16 ran out of memory before its second step",
                worker=0,
                log="runs/1/worker-0.log",
            ),
        ),
        files=(),
        elapsed_s=41.2,
    )
    advice = replace(
        advice,
        headline="No batch size can be recommended.",
        reason="Nothing fits within 78.00 GiB: batch 1 ran out of memory.",
        sureness="none",
        recommended=None,
        fastest=None,
        largest=None,
        native=None,
        change="",
        verdict=Verdict(limit="cannot tell", message="nothing ran"),
        training=None,
        tail=None,
        memory_law=None,
        findings=(
            Finding(
                rule="memory.refused",
                severity="info",
                message="out of memory at 1, 4 (limit 78.00 GiB)",
            ),
        ),
        unavailable={"memory_law": "0 sizes above the floor of the memory, three are needed"},
    )
    return record, advice
