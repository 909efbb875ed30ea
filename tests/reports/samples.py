"""Synthetic records and advice, written by hand. No number here was measured on any device.

They follow the records' rules, so that reports can be tested whole without a script, a GPU or the
advisor. `gpu()` imitates a data-centre GPU: it is synthetic as well.
"""

from __future__ import annotations

from batchadvisor.advisor.advise import advise
from batchadvisor.records import (
    Advice,
    DeviceInfo,
    Evidence,
    FileTouched,
    Finding,
    MemoryLaw,
    Profile,
    Tail,
    TailCheck,
    TimeLaw,
    Training,
    Verdict,
)
from batchadvisor.reports.builder.run import build_report
from batchadvisor.units import GIB, MIB
from msgspec.structs import replace

from ..needs import bench
from .builders import choice, discovery, failed, learning_rates, record_of, timed
from .gpu_samples import gpu, nothing_fits

__all__ = ["cpu", "gpu", "interrupted", "nothing_fits", "several_gpus"]

NO_GPU = "the trace holds no GPU work"


CPU = DeviceInfo(
    kind="cpu",
    name="Synthetic CPU @ 2.00GHz",
    total_bytes=8 * GIB,
    capacity_bytes=6 * GIB,
    capacity_source="cgroup limit less what others use",
    num_cores=4,
)


def cpu():
    """A finished run on a CPU: a knee, a recommendation that was confirmed."""
    profile = Profile(
        num_steps=3,
        operators_pct=93.0,
        input_wait_pct=4.0,
        unavailable={"busy_pct": NO_GPU, "occupancy_pct": NO_GPU},
    )
    trials = (
        timed(0, 4, 0.01102, 310 * MIB, relative=0.03, profile=profile),
        timed(1, 16, 0.01874, 330 * MIB, relative=0.012, profile=profile),
        timed(2, 64, 0.0522, 410 * MIB, relative=0.008, profile=profile),
        timed(3, 256, 0.1889, 735 * MIB, relative=0.006, profile=profile),
        timed(
            4,
            1024,
            0.7531,
            2050 * MIB,
            relative=0.02,
            unavailable={"profile": "not asked for at this size"},
        ),
        timed(5, 128, 0.0967, 520 * MIB, relative=0.006, profile=profile, purpose="confirm"),
        timed(6, 256, 0.1880, 736 * MIB, relative=0.006, purpose="confirm"),
        timed(7, 128, 0.0969, 521 * MIB, purpose="tail"),
    )
    record = record_of(
        device=CPU,
        discovery=discovery(16, 50_000),
        trials=trials,
        files=(
            FileTouched(path="logs", action="mkdir"),
            FileTouched(path="logs/run.csv", action="write"),
            FileTouched(path="model.pt", action="save (not written)"),
        ),
    )
    best = trials[5]
    advice = Advice(
        schema_version="1.0",
        goal=record.goal,
        headline="Use batch size 128: 1320 samples/s ±0.6%, peak 520 MiB",
        reason="The smallest size that reaches 95% of the best: 97.2% of the throughput of 256 "
        "(measured in turn, 96.4% to 98.0%). x1.55 the samples per second of the script's own 16 "
        "(x1.52 to x1.58).",
        sureness="confirmed",
        recommended=choice(best, 50_000),
        fastest=choice(trials[6], 50_000),
        largest=choice(trials[4], 50_000),
        native=choice(trials[1], 50_000),
        change="train.py:41  batch_size=16 → batch_size=128   "
        "(or on the command line: --batch-size 128)",
        verdict=Verdict(
            limit="saturated",
            message="a larger batch takes proportionally longer",
            evidence=(Evidence(metric="marginal gain", value=0.041, threshold=0.1),),
            remedy="a faster step needs less work per sample: lower precision, torch.compile, "
            "a smaller model; not a larger batch.",
        ),
        training=Training(
            effective_before=16,
            effective_after=128,
            steps_before=3125,
            steps_after=391,
            micro_batches=1,
            keep_accumulation=None,
            learning_rates=learning_rates("SGD", 0.1, 0.8),
        ),
        tail=Tail(
            num_samples=50_000,
            batch_size=128,
            drop_last=False,
            steps_per_epoch=391,
            last_batch=80,
            dropped=0,
            weight=1.6,
            nearest_clean=(125, 160),
        ),
        tail_check=TailCheck(num_samples=80, outcome="ok"),
        memory_law=MemoryLaw(
            fixed_bytes=300 * MIB,
            slope_bytes=1.71 * MIB,
            residual=0.011,
            sizes=(128, 256, 1024),
            largest_estimate=3237,
        ),
        time_law=TimeLaw(fixed_s=0.007, slope_s=0.00071, residual=0.04, sizes=(4, 16, 64, 256)),
        findings=(
            Finding(
                rule="steering.indices",
                severity="info",
                message="no tensor of the batch carries its size; it was proved by the number of "
                "samples fetched from the dataset",
            ),
        ),
    )
    return record, advice


def interrupted():
    """Ctrl-C after three sizes on a CPU; one of them has no memory reading."""
    record, advice = cpu()
    trials = (
        *record.trials[:2],
        replace(
            record.trials[2],
            memory=None,
            input_wait_s=None,
            profile=None,
            unavailable={
                "memory": "/proc is not mounted",
                "peak_bytes": "/proc is not mounted",
                "input_wait_s": "the loader could not be timed",
                "profile": "Ctrl-C came first",
            },
        ),
        failed(3, 256, "interrupted", "Ctrl-C"),
    )
    record = replace(
        record,
        state="interrupted",
        trials=trials,
        stop_reason="interrupted by Ctrl-C",
        files=(),
        elapsed_s=22.7,
        num_workers_started=1,
    )
    best = replace(choice(trials[2]), peak_bytes=None)
    advice = replace(
        advice,
        headline="Use batch size 64: 1230 samples/s ±0.8%",
        reason="The smallest size within 5% of the best throughput, and the fastest that ran.",
        sureness="partial",
        recommended=best,
        fastest=best,
        largest=best,
        native=choice(trials[1]),
        change="train.py:41  batch_size=16 → batch_size=64",
        tail=None,
        tail_check=None,
        training=replace(
            advice.training,
            effective_after=64,
            steps_before=None,
            steps_after=None,
            learning_rates=learning_rates("SGD", 0.1, 0.4),
        ),
        memory_law=None,
        time_law=None,
        findings=(),
        unavailable={
            "tail": "the dataset has no length",
            "memory_law": "2 sizes above the floor of the memory, three are needed",
            "time_law": "the timed sizes lie too close together",
        },
    )
    return record, advice


def several_gpus(num_samples):
    """The report on eight made-up GPUs of the bench, 12 sizes each.

    Args:
        num_samples: rows of NVML of each.
    """
    made_up = bench("synthetic_records")
    parts = []
    for index in range(8):
        record = made_up.run(12, index=index, strength=1 - 0.03 * index)
        rows = made_up.samples(num_samples, index=index)
        parts.append((f"GPU {index}", record, advise(record), rows))
    return build_report(parts[0][1], parts[0][2], devices=parts)
