"""How fast a step computes, and which share of the device's dense peak that is (MFU).

Model FLOPs utilisation as in PaLM (arXiv 2204.02311, appendix B): operations that the model needs,
over the time of the step and the peak; what checkpointing computes again does not count. Where a
step multiplies several types, the peak is the one at which all of them together take their time.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import fsum

from ...records import DeviceInfo, FlopRate, Spread, StepFlops, TokenStep, Trial
from ...spread import inverse, scaled
from .peaks import peaks_of

NOTHING = "no operation was counted"
NO_PEAK = "the table of dense peaks does not have {name}"
NO_TYPE = "the table of dense peaks has no {dtype} for {name}"
ON_CPU = "a CPU has no dense peak in the table"
VARY = "batches differ in their size, and one of them was counted"
UNTOLD = "batches differ in their length, and the counted one does not tell its own"
NEGLIGIBLE = 0.001
"""A type with a smaller share of the operations needs no peak."""
ALIKE = 0.001
"""Batches whose positions differ by less are alike."""


def flop_rate(
    trials: Sequence[Trial], step_s: Spread | None, device: DeviceInfo | None
) -> FlopRate | str:
    """Operations per second of one size, from its trials together; why the rate is unknown.

    Args:
        trials: of the size; the last that counted a step is taken.
        step_s: of the size.
    """
    counted = next((trial for trial in reversed(trials) if trial.flops is not None), None)
    if counted is None or counted.flops is None:
        reasons = (trial.unavailable.get("flops", "") for trial in reversed(trials))
        return next(filter(None, reasons), "no step was counted")
    if step_s is None or step_s.low <= 0:
        return "the step was not timed"
    flops = counted.flops
    if flops.model <= 0 or not any(flops.by_dtype.values()):
        return NOTHING
    steps = [step for trial in trials if trial.tokens is not None for step in trial.tokens.steps]
    per_step = _for_mean_batch(flops, steps, counted)
    if isinstance(per_step, str):
        return per_step
    tera = scaled(inverse(step_s, per_step), 1e-12)
    dtype = max(flops.by_dtype, key=flops.by_dtype.__getitem__)
    peak = _peak(flops, device)
    known = not isinstance(peak, str)
    return FlopRate(
        per_step=per_step,
        scaled=abs(per_step - flops.model) > ALIKE * flops.model,
        recomputed=flops.recomputed / flops.model,
        dtype=dtype,
        tflops_per_s=tera,
        peak_tflops_per_s=peak[0] if isinstance(peak, tuple) else None,
        peak_source=peak[1] if isinstance(peak, tuple) else "",
        mfu_pct=100 * tera.median / peak[0] if isinstance(peak, tuple) else None,
        unavailable={} if known else {"mfu_pct": str(peak)},
    )


def _for_mean_batch(flops: StepFlops, steps: Sequence[TokenStep], trial: Trial) -> float | str:
    """Operations of the mean step: what multiplies activations grows with the length's square."""
    positions = [step.positions for step in steps if step.positions is not None]
    if not positions:
        # A batch as long as all others needs no scale.
        inputs = trial.inputs
        vary = inputs is not None and inputs.smallest != inputs.largest
        return VARY if vary else float(flops.model)
    if max(positions) == min(positions) == flops.positions:
        return float(flops.model)
    if not flops.positions or len(positions) < len(steps):
        return UNTOLD
    squares = [step.squares for step in steps if step.squares is not None]
    longer = fsum(positions) / len(positions) / flops.positions
    squared = longer
    if flops.products:
        if not flops.squares or len(squares) < len(steps):
            return UNTOLD
        squared = fsum(squares) / len(squares) / flops.squares
    return (flops.model - flops.products) * longer + flops.products * squared


def _peak(flops: StepFlops, device: DeviceInfo | None) -> tuple[float, str] | str:
    """The dense peak for the types that are multiplied, and its source."""
    if device is None or device.kind == "cpu":
        return ON_CPU
    peaks = peaks_of(device.name)
    if peaks is None:
        return NO_PEAK.format(name=device.name)
    least = NEGLIGIBLE * sum(flops.by_dtype.values())
    needed = {name: number for name, number in flops.by_dtype.items() if number > least}
    unknown = next((name for name in needed if name not in peaks.tflops_per_s), None)
    if unknown is not None:
        return NO_TYPE.format(dtype=unknown, name=device.name)
    ideal = fsum(number / peaks.tflops_per_s[name] for name, number in needed.items())
    return fsum(needed.values()) / ideal, peaks.source
