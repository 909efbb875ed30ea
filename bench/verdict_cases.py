"""Generated steps with a known dominating cause, and what the rules say of each.

A maker draws a step and answers (truth, verdict), or `None` where the cause is not clear.
"""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

from batchadvisor.advisor.advise import advise
from batchadvisor.advisor.explain import verdict
from batchadvisor.advisor.measured.measurements import Measurements
from batchadvisor.probes.trace.summary import summarise
from batchadvisor.records import (
    DeviceInfo,
    Goal,
    OperatorTime,
    Profile,
    RunRecord,
    ScriptInfo,
    Spread,
    Trial,
)
from batchadvisor.spread import inverse
from synthetic_records import discovery
from synthetic_steps import Played, Step, savings, simulate

DOMINATES = 0.20
TWICE = 2.0
NOTHING = 0.08
PAYS = 1.25
"""Throughput at twice the size over that at the size: memory limits where that does not fit."""
KINDS = ("input", "synchronisation", "host", "communication", "copies", "small kernels", "none")


def draw(rng: random.Random, kind: str) -> Step:
    """A random mixture in which one cause is drawn larger."""
    size = rng.choice([4, 8, 16, 32, 64, 128, 256])
    kernels = rng.randint(30, 120)
    compute_us = rng.uniform(4_000, 60_000)  # of a step, on a full GPU

    def part(name: str, small: float = 0.12) -> float:
        return compute_us * (rng.uniform(0.3, 2.5) if kind == name else rng.uniform(0.0, small))

    host_us = part("host", 0.5) + (compute_us if kind == "host" else 0.0)
    blocks = rng.uniform(0.15, 0.6) if kind == "small kernels" else rng.uniform(1.0, 30.0)
    workers = rng.choice([0, 0, 2, 4, 8]) if kind == "input" else rng.choice([0, 2, 4, 8])
    load_us = part("input", 0.3)
    if kind == "input" and workers:
        load_us = workers * (compute_us + host_us) * rng.uniform(1.1, 3.0)
    elif kind == "input":
        load_us += compute_us
    syncing = kind == "synchronisation"
    if syncing:
        host_us = compute_us * rng.uniform(0.4, 1.2)
    buckets = rng.randint(1, 12) if kind == "communication" or rng.random() < 0.4 else 0
    comm_us = part("communication") + (compute_us * 0.6 if kind == "communication" else 0.0)
    return Step(
        batch_size=size,
        num_kernels=kernels,
        kernel_sample_us=compute_us / kernels / size * rng.uniform(0.85, 1.0),
        kernel_fixed_us=rng.uniform(1.0, 5.0),
        blocks_per_sm=blocks,
        dispatch_us=max(host_us * rng.uniform(0.6, 1.0) / kernels - 4.0, 0.5),
        python_us=host_us * rng.uniform(0.0, 0.4) + 20.0,
        load_sample_us=load_us / size,
        num_workers=workers,
        num_syncs=rng.randint(1, 6) if syncing else rng.choice([0, 0, 0, 1]),
        copy_sample_us=part("copies") / size,
        blocking_copy=syncing and rng.random() < 0.5,
        num_buckets=buckets,
        bucket_us=comm_us / max(buckets, 1),
        jitter=rng.uniform(0.01, 0.15),
        seed=rng.randrange(2**31),
    )


def truth_of(costs: dict[str, float]) -> str | None:
    """The dominating cause, `saturated` without one, `None` where it is not clear."""
    (first, most), (_, second) = sorted(costs.items(), key=lambda item: -item[1])[:2]
    if most < NOTHING:
        return "saturated"
    return first if most >= DOMINATES and most >= TWICE * max(second, 0.0) else None


def profile_of(played: Played, folder: Path) -> Profile:
    """What the trace reader says of a played step."""
    path = folder / "trace.json"
    properties = [{"id": 0, "name": "on paper", "numSms": 100}]
    document = {"deviceProperties": properties, "traceEvents": played.events}
    path.write_text(json.dumps(document))
    return summarise(path, "on paper")


def spread(value: float, noise: float, rng: random.Random) -> Spread:
    """A measured value: somewhere in its interval."""
    half = noise * rng.uniform(0.6, 1.4)
    middle = value * rng.gauss(1.0, noise / 2)
    return Spread(
        median=middle, low=middle * (1 - half), high=middle * (1 + half), num_samples=20,
        confidence=0.9,
    )  # fmt: skip


def record_of(trials: list[Trial], native: int, workers: int, kind: str) -> RunRecord:
    """The record of a run that measured these."""
    device = DeviceInfo(
        kind=kind, name="on paper", total_bytes=2**34, capacity_bytes=2**34,
        capacity_source="on paper",
    )  # fmt: skip
    return RunRecord(
        state="finished", started_at="", command=(), script=ScriptInfo(path="on paper"),
        goal=Goal(kind="throughput"), device=device, trials=tuple(trials),
        discovery=discovery(native, 10**6, optimizer="SGD", num_workers=workers, device=kind),
    )  # fmt: skip


def trial(ordinal: int, size: int, step_s: Spread | None, wait: float, **rest: Any) -> Trial:
    """One size; without a step time it ran out of memory."""
    common: dict[str, Any] = {"ordinal": ordinal, "worker": 0, "batch_size": size, "kind": "timed"}
    common |= {"purpose": "search", **rest}
    if step_s is None:
        return Trial(**common, outcome="out_of_memory")
    waited = Spread(median=wait, low=wait * 0.98, high=wait * 1.02, num_samples=20, confidence=0.9)
    return Trial(
        **common, outcome="ok", arrived_batch_size=size, step_s=step_s, input_wait_s=waited,
        samples_per_s=inverse(step_s, size),
    )  # fmt: skip


def law_verdict(record: RunRecord, size: int) -> str:
    """The verdict of a run at one size, with its own time law."""
    return verdict.verdict_at(Measurements.of(record), size, advise(record).time_law).limit


def gpu_alone(rng: random.Random, kind: str, folder: Path) -> tuple[str, str] | None:
    """(truth, verdict) of one trace."""
    step = draw(rng, kind)
    truth = truth_of(savings(step))
    if truth is None:
        return None
    played = simulate(step, rng.randint(3, 10))
    return truth, verdict.verdict_of(profile_of(played, folder)).limit


def gpu_sizes(rng: random.Random, kind: str, folder: Path) -> tuple[str, str] | None:
    """(truth, verdict) of the largest of three sizes, half of them at the end of memory."""
    step = draw(rng, kind)
    truth = truth_of(savings(step))
    full = rng.random() < 0.5
    twice = scaled(step, 2)
    gain = 2 * simulate(step, 12).pace_us / simulate(twice, 12).pace_us
    if truth in ("host", "small kernels") and full:
        truth = "memory" if gain >= PAYS else None
    if truth is None:
        return None
    noise = rng.uniform(0.003, 0.03)
    trials = []
    for number, factor in enumerate((0.25, 0.5, 1.0)):
        size = max(1, int(step.batch_size * factor))
        played = simulate(scaled(step, size / step.batch_size), 12)
        wait = sum(played.waits_us[4:]) / len(played.waits_us[4:]) / 1e6
        profile = None
        if factor == 1.0:
            profile = profile_of(simulate(step), folder)
        timed = spread(played.pace_us / 1e6, noise, rng)
        trials.append(trial(number, size, timed, wait, profile=profile))
    if full:
        trials.append(trial(3, step.batch_size * 2, None, 0.0))
    record = record_of(trials, step.batch_size, step.num_workers, "cuda")
    return truth, law_verdict(record, step.batch_size)


def scaled(step: Step, factor: float) -> Step:
    """The step at another size. A kernel takes as long as one wave until it fills the GPU."""
    size = max(1, round(step.batch_size * factor))
    blocks = step.blocks_per_sm * size / step.batch_size
    waves = max(1.0, blocks) / max(1.0, step.blocks_per_sm)
    per_sample = step.kernel_sample_us * step.batch_size * waves / size
    return replace(step, batch_size=size, blocks_per_sm=blocks, kernel_sample_us=per_sample)


def cpu_sizes(rng: random.Random, kind: str, folder: Path) -> tuple[str, str] | None:
    """(truth, verdict) of a CPU record of three sizes; half of them have a profile."""
    del folder
    size = rng.choice([16, 32, 64, 128])
    compute = rng.uniform(0.004, 0.4)
    wait = compute * (rng.uniform(0.5, 4.0) if kind == "input" else rng.uniform(0.0, 0.15))
    host = compute * (rng.uniform(0.7, 5.0) if kind == "host" else rng.uniform(0.0, 0.10))
    in_python = rng.random()
    noise = rng.uniform(0.005, 0.05)
    full = kind == "host" and rng.random() < 0.3
    whole = compute + wait + host
    truth = truth_of({"input": wait / whole, "host": host / whole})
    if truth == "host" and full:
        truth = "memory" if 2 * whole / (host + 2 * (compute + wait)) >= PAYS else None
    if truth is None:
        return None
    trials = []
    profiled = rng.random() < 0.5
    for number, factor in enumerate((0.25, 0.5, 1.0)):
        own = int(size * factor)
        seconds = host + (compute + wait) * factor
        call = rng.choice([20e-6, 300e-6, 2e-3])
        inside = compute * factor + host * (1 - in_python)
        profile = Profile(
            num_steps=3,
            operators_pct=100 * inside / seconds,
            input_wait_pct=100 * wait * factor / seconds,
            operators=(OperatorTime(name="aten::mm", num_calls=int(inside / call) + 1,
                                    self_s=inside),),
        )  # fmt: skip
        timed = spread(seconds, noise, rng)
        trials.append(
            trial(number, own, timed, wait * factor, profile=profile if profiled else None)
        )
    if full:
        trials.append(trial(3, size * 2, None, 0.0))
    return truth, law_verdict(record_of(trials, size, 0, "cpu"), size)


MAKERS = {"trace alone": gpu_alone, "GPU run": gpu_sizes, "CPU run": cpu_sizes}
