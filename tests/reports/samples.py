"""Synthetic records and advice, written by hand. No number here was measured on any device.

They follow the records' rules, so that reports can be tested whole without a script, a GPU or the
advisor. `gpu()` imitates a data-centre GPU: it is synthetic as well.
"""

from __future__ import annotations

import msgspec
from batchadvisor.records import (
    Advice,
    Choice,
    Counters,
    DeviceInfo,
    Discovery,
    Evidence,
    Fault,
    FileTouched,
    Finding,
    Goal,
    LoaderInfo,
    Memory,
    MemoryLaw,
    OptimizerInfo,
    Profile,
    RunRecord,
    ScriptInfo,
    Spread,
    Tail,
    TailCheck,
    TimeLaw,
    Training,
    Trial,
    Verdict,
    Versions,
)
from batchadvisor.units import GIB, MIB

SYNTHETIC_GPU = "Synthetic GPU 80GB"
NO_GPU = "the trace holds no GPU work"


def spread(median, relative=0.004, num_samples=30):
    return Spread(
        median=median,
        low=median * (1 - relative),
        high=median * (1 + relative),
        num_samples=num_samples,
        confidence=0.9,
    )


def timed(ordinal, batch_size, step_s, peak_bytes, *, relative=0.004, profile=None, **rest):
    values = {
        "worker": 0,
        "kind": "timed",
        "purpose": "search",
        "outcome": "ok",
        "arrived_batch_size": batch_size,
        "size_proof": "shape",
        "micro_batches": 1,
        "num_warmup_steps": 5,
        "step_s": spread(step_s, relative),
        "samples_per_s": spread(batch_size / step_s, relative),
        "input_wait_s": spread(step_s * 0.02, 0.1),
        "memory": Memory(peak_bytes=int(peak_bytes), peak_source="synthetic"),
        "profile": profile,
        "elapsed_s": 4.0,
    }
    return Trial(ordinal=ordinal, batch_size=batch_size, **{**values, **rest})


def failed(ordinal, batch_size, outcome, detail, **rest):
    values = {"worker": 0, "kind": "timed", "purpose": "search"}
    return Trial(
        ordinal=ordinal,
        batch_size=batch_size,
        outcome=outcome,
        detail=detail,
        **{**values, **rest},
    )


def choice(trial, num_samples=None):
    rate = trial.samples_per_s
    epoch = None
    if rate is not None and num_samples is not None:
        epoch = spread(num_samples / rate.median, rate.relative_half_width)
    return Choice(
        batch_size=trial.batch_size,
        trial=trial.ordinal,
        samples_per_s=rate,
        step_s=trial.step_s,
        peak_bytes=trial.memory.peak_bytes if trial.memory else None,
        epoch_s=epoch,
    )


def discovery(native, num_samples, optimizer="SGD", rate=0.1, device="cpu"):
    return Discovery(
        loaders=(
            LoaderInfo(
                ordinal=0,
                place=None,
                batch_size=native,
                num_samples=num_samples,
                drop_last=False,
                num_workers=2,
                sampler="RandomSampler",
                iterable=False,
                steered="exact",
                trains=True,
            ),
        ),
        optimizers=(
            OptimizerInfo(
                ordinal=0,
                place=None,
                name=optimizer,
                learning_rate=rate,
                num_parameters=10**6,
                trains=True,
            ),
        ),
        primary_loader=0,
        native_batch_size=native,
        micro_batches=1,
        parameter_device=device,
        num_parameters=10**6,
        norm_layers=None,
        setup_s=5.0,
        native_step_s=0.02,
    )


def _record(**rest):
    values = {
        "schema_version": "1.0",
        "state": "finished",
        "started_at": "2000-01-01T00:00:00+00:00",
        "command": ("batchadvisor", "run", "train.py"),
        "script": ScriptInfo(path="train.py"),
        "goal": Goal(),
        "versions": Versions(batchadvisor="0.1.0", python="3.11.7", torch="2.9.0"),
        "stop_reason": "all is measured",
        "num_workers_started": 2,
        "elapsed_s": 95.0,
        "search_s": 80.0,
    }
    return RunRecord(**{**values, **rest})


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
    record = _record(
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
            message="the device is saturated: a larger batch takes proportionally longer",
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
            learning_rate_before=0.1,
            learning_rate_suggested=0.8,
            rule="scale the learning rate in proportion to the effective batch, with a warm-up",
            rule_source="Goyal et al. 2017, arXiv 1706.02677 (SGD)",
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


def gpu():
    """A finished run on a synthetic GPU: profiles, a fit-only size, out of memory at the top."""

    def profile(busy, occupancy):
        return Profile(
            num_steps=3,
            busy_pct=busy,
            occupancy_pct=occupancy,
            sm_efficiency_pct=busy * 0.9,
            tensor_core_pct=31.0,
            tensor_core_unknown_pct=12.0,
            operators_pct=70,
            input_wait_pct=2,
        )

    def energy(size, step_s, power_w):
        counters = Counters(num_samples=20, window_s=4.0, power_w=power_w, energy_j=4 * power_w)
        return {"counters": counters, "samples_per_joule": size / step_s / power_w}

    trials = (
        timed(
            0,
            2,
            0.01183,
            3.1 * GIB,
            relative=0.03,
            profile=profile(38, 21.4),
            **energy(2, 0.01183, 145),
        ),
        timed(
            1,
            16,
            0.01210,
            5.9 * GIB,
            relative=0.02,
            profile=profile(54, 33.2),
            **energy(16, 0.0121, 230),
        ),
        timed(
            2,
            64,
            0.01943,
            14.8 * GIB,
            relative=0.004,
            profile=profile(86, 47.0),
            **energy(64, 0.01943, 480),
        ),
        timed(
            3,
            256,
            0.0704,
            50.2 * GIB,
            relative=0.003,
            profile=profile(97.6, 51.1),
            **energy(256, 0.0704, 610),
        ),
        failed(4, 512, "out_of_memory", "CUDA out of memory. Tried to allocate 12.25 GiB."),
        Trial(
            ordinal=5,
            worker=1,
            batch_size=384,
            kind="fit",
            purpose="search",
            outcome="ok",
            arrived_batch_size=384,
            memory=Memory(peak_bytes=int(73.9 * GIB), peak_source="synthetic"),
        ),
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
    record = _record(
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
            learning_rate_before=0.0003,
            learning_rate_suggested=0.00084853,
            rule="scale the learning rate with the square root of the effective batch",
            rule_source="Malladi et al. 2022, arXiv 2205.10287 (Adam family), as a starting point",
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
    record = msgspec.structs.replace(
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
    advice = msgspec.structs.replace(
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


def interrupted():
    """Ctrl-C after three sizes on a CPU; one of them has no memory reading."""
    record, advice = cpu()
    trials = (
        *record.trials[:2],
        msgspec.structs.replace(
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
    record = msgspec.structs.replace(
        record,
        state="interrupted",
        trials=trials,
        stop_reason="interrupted by Ctrl-C",
        files=(),
        elapsed_s=22.7,
        num_workers_started=1,
    )
    best = msgspec.structs.replace(choice(trials[2]), peak_bytes=None)
    advice = msgspec.structs.replace(
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
        training=msgspec.structs.replace(
            advice.training,
            effective_after=64,
            steps_before=None,
            steps_after=None,
            learning_rate_suggested=0.4,
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
