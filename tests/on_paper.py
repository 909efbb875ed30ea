"""Parts of records on paper: nothing in them was measured on any device."""

import msgspec
from batchadvisor.records import (
    Counters,
    DeviceInfo,
    Discovery,
    Goal,
    LoaderInfo,
    Memory,
    NormLayers,
    OptimizerInfo,
    RunRecord,
    ScriptInfo,
    SourceLine,
    Spread,
    Trial,
)
from batchadvisor.spread import inverse

GIB = 2**30
CPU = DeviceInfo(
    kind="cpu", name="on paper", total_bytes=GIB, capacity_bytes=GIB, capacity_source="on paper"
)


def exactly(value, half_width=0.0, num_samples=10):
    """A spread around `value`, its half-width relative."""
    return Spread(
        median=value,
        low=value * (1 - half_width),
        high=value * (1 + half_width),
        num_samples=num_samples,
        confidence=0.9,
    )


def loader_of(num_samples=15625, **changes):
    """A training loader."""
    values = {
        "ordinal": 0,
        "place": SourceLine(file="train.py", line=7),
        "batch_size": 8,
        "num_samples": num_samples,
        "drop_last": False,
        "num_workers": 0,
        "sampler": "RandomSampler",
        "iterable": False,
        "steered": "exact",
        "trains": True,
    }
    return LoaderInfo(**{**values, **changes})


def discovery_of(native=8, num_samples=15625, micro_batches=1, loader=None, **changes):
    """A script with one loader and one optimizer."""
    values = {
        "loaders": (loader or loader_of(num_samples, batch_size=native),),
        "optimizers": (
            OptimizerInfo(
                ordinal=0,
                place=SourceLine(file="train.py", line=9),
                name="SGD",
                learning_rate=0.1,
                num_parameters=1000,
                trains=True,
            ),
        ),
        "primary_loader": 0,
        "native_batch_size": native,
        "micro_batches": micro_batches,
        "parameter_device": "cuda:0",
        "num_parameters": 1000,
        "norm_layers": NormLayers(),
        "setup_s": 4.0,
        "native_step_s": 0.1,
    }
    return Discovery(**{**values, **changes})


def record_of(trials=(), *, goal=None, discovery=None, capacity=80 * GIB, **changes):
    """A record of these trials."""
    values = {
        "state": "finished",
        "started_at": "2026-11-20T00:00:00+00:00",
        "command": ("batchadvisor", "run", "train.py"),
        "script": ScriptInfo(path="train.py"),
        "goal": goal or Goal(),
        "device": DeviceInfo(
            kind="cuda",
            name="on paper",
            total_bytes=capacity,
            capacity_bytes=capacity,
            capacity_source="on paper",
        ),
        "discovery": discovery or discovery_of(),
        "trials": tuple(trials),
    }
    return RunRecord(**{**values, **changes})


def trial_of(
    size,
    step_s=None,
    *,
    ordinal=0,
    peak=None,
    wait_s=0.0,
    half_width=0.01,
    num_samples=10,
    **changes,
):
    """A trial that ran: timed where a step time is given, else a fit."""
    values = {
        "ordinal": ordinal,
        "worker": 0,
        "batch_size": size,
        "kind": "fit" if step_s is None else "timed",
        "purpose": "search",
        "outcome": "ok",
        "arrived_batch_size": size,
        "size_proof": "shape",
        "micro_batches": 1,
        "memory": None if peak is None else Memory(peak_bytes=int(peak), peak_source="on paper"),
    }
    if step_s is not None:
        values["step_s"] = exactly(step_s, half_width, num_samples)
        values["samples_per_s"] = inverse(values["step_s"], size)
        values["input_wait_s"] = exactly(wait_s)
    return Trial(**{**values, **changes})


def metered(size, step_s, power_w, *, lasted_s=2.0, **changes):
    """A timed trial with the driver's counters."""
    counters = Counters(
        num_samples=9, window_s=lasted_s, power_w=power_w, energy_j=lasted_s * power_w
    )
    return trial_of(size, step_s, counters=counters, **changes)


def failure_of(size, outcome="out_of_memory", **changes):
    """A trial that did not run."""
    values = {"detail": f"{outcome} on paper", "arrived_batch_size": None, "size_proof": ""}
    return trial_of(size, outcome=outcome, **{**values, **changes})


def numbered(*trials):
    """The trials with their positions as ordinals."""
    return tuple(
        msgspec.structs.replace(trial, ordinal=number) for number, trial in enumerate(trials)
    )
