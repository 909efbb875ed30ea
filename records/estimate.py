"""What `estimate` foretells: nothing of it ran on the GPU that it speaks of."""

from __future__ import annotations

from .base import Count, Record


class FakeTrial(Record, frozen=True, kw_only=True):
    """A step of the script on tensors without contents.

    Attributes:
        batch_size: samples of a batch.
        peak_bytes: the most that lived at once.
        floor_bytes: the most that lived at once inside the optimizers' steps.
        reserved_bytes: what torch's caching allocator would have asked of the device for it.
        parameter_bytes, gradient_bytes, optimizer_bytes, input_bytes: of what is trained, its
            gradients, the optimizers' state, the batches of the step.
    """

    batch_size: Count
    peak_bytes: int
    floor_bytes: int
    reserved_bytes: int
    parameter_bytes: int
    gradient_bytes: int
    optimizer_bytes: int
    input_bytes: int


class FittedGpu(Record, frozen=True, kw_only=True):
    """The largest batch that should fit on a GPU; an estimate.

    Attributes:
        name: as it was asked for.
        memory_bytes: of the GPU, as torch reports it.
        low: size that should fit if the allocator's pieces are never put to use otherwise, and the
            context is large; 0 if not even 1 does.
        high: size beyond which the tensors alone do not fit.
    """

    name: str
    memory_bytes: int
    low: int
    high: int


class Forecast(Record, frozen=True, kw_only=True):
    """The steps of the script in one precision, and what follows from them.

    Attributes:
        precision: `as written`, or `bf16 autocast`.
        trials: in the order of their sizes.
        floor_bytes, fixed_bytes, sample_bytes, residual: peak = max(floor_bytes, fixed_bytes +
            sample_bytes x batch), and the largest distance from it as a share of a trial's peak.
        gpus: in the order that they were asked for.
        unavailable: with `law`, why there is no law, and then no GPU.
    """

    precision: str
    trials: tuple[FakeTrial, ...] = ()
    floor_bytes: float | None = None
    fixed_bytes: float | None = None
    sample_bytes: float | None = None
    residual: float | None = None
    gpus: tuple[FittedGpu, ...] = ()
    unavailable: dict[str, str] = {}


class Estimate(Record, frozen=True, kw_only=True):
    """The answer of `estimate`.

    Attributes:
        script, arguments: what was run.
        batch_size: the script's own.
        micro_batches: of an optimizer step.
        num_parameters: that are trained.
        forecasts: the script as it is written first.
    """

    script: str
    arguments: tuple[str, ...]
    batch_size: Count
    micro_batches: Count
    num_parameters: int
    forecasts: tuple[Forecast, ...]
