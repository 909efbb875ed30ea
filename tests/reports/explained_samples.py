"""A step on fake tensors, written by hand; no number here was counted."""

from batchadvisor.features.estimate.fit.forecast import assumptions
from batchadvisor.features.estimate.records import Estimate, FittedGpu, Forecast
from batchadvisor.records import (
    ExplainedSize,
    FakeTrial,
    MemoryExplained,
    PeakSource,
    StepTimeline,
    Variant,
)
from batchadvisor.units import MIB
from msgspec.structs import replace

HOSTILE = "<script>alert(1)</script>|`x`\x1b[31m"


def step(batch_size, name="Block > Linear", line="model.py:41"):
    size = batch_size * MIB
    at_peak = {"activations": 6 * size, "parameters": 100 * MIB, "gradients": 100 * MIB}
    peak = sum(at_peak.values())
    return FakeTrial(
        batch_size=batch_size,
        peak_bytes=peak,
        parameter_bytes=100 * MIB,
        gradient_bytes=100 * MIB,
        optimizer_bytes=0,
        input_bytes=0,
        at_peak=at_peak,
        modules=(
            PeakSource(name=name, roles={"activations": 4 * size}, num_tensors=3),
            PeakSource(
                name="Embedding",
                roles={"parameters": 100 * MIB, "gradients": 100 * MIB},
                num_tensors=2,
            ),
        ),
        lines=(
            PeakSource(name=line, roles={"activations": 6 * size}, num_tensors=5),
            PeakSource(
                name="", roles={"parameters": 100 * MIB, "gradients": 100 * MIB}, num_tensors=2
            ),
        ),
        timeline=StepTimeline(
            positions=(0, 2, 4, 6),
            live={
                "activations": (0, 6 * size, 2 * size, 0),
                "parameters": (100 * MIB,) * 4,
                "gradients": (0, 100 * MIB, 100 * MIB, 100 * MIB),
            },
            phases=(("forward", 1), ("backward", 3), ("optimizer", 5)),
            num_events=7,
        ),
    )


def explained(record, *sizes, **names):
    """The record with steps of some sizes."""
    known = tuple(
        ExplainedSize(batch_size=size, why=why, trial=step(size, **names)) for size, why in sizes
    )
    return replace(record, explained=MemoryExplained(sizes=known, elapsed_s=0.5))


def estimate():
    return Estimate(
        script="train.py",
        arguments=(),
        batch_size=32,
        micro_batches=1,
        num_parameters=1_000_000,
        num_samples=60_000,
        forecasts=(
            Forecast(
                variant=Variant(),
                trials=(step(2), step(32), step(128)),
                fixed_bytes=200 * MIB,
                sample_bytes=6 * MIB,
                gpus=(FittedGpu(name=HOSTILE, memory_bytes=8192 * MIB, low=165, high=186),),
            ),
        ),
        unavailable={"checkpointed": "no module stands several times"},
        assumptions=assumptions(),
    )
