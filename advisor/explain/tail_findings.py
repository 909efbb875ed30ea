"""What the end of an epoch, and the number of its steps, do to the training."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

import msgspec

from ...records import (
    Discovery,
    Evidence,
    Finding,
    Fix,
    Loss,
    NormLayers,
    Pipeline,
    Tail,
    TailCheck,
    TailFinding,
)
from ...units import format_measured
from ..measured.epoch_end import SCRIPTS_OWN, known_loss, layout_at, pipeline_of
from ..measured.measurements import Measurements
from ..measured.sizes import MIN_STEPS_AN_EPOCH
from ..tails.case import counted
from ..tails.conditions import SMALL_BATCH_NORM
from ..tails.engine import findings
from ..tails.fixes import fixes_without
from .known_failures import known_failure

SEVERITY = {
    "error": "error",
    "nan": "error",
    "bias": "warning",
    "waste": "warning",
    "slow": "info",
}
"""Severity of a case to that of a finding."""


def tail_findings(
    measurements: Measurements, batch_size: int, tail: Tail | None, check: TailCheck | None
) -> list[Finding]:
    """Executed first, then by arithmetic, then what the size itself does."""
    discovery = measurements.discovery_at(batch_size)
    all_findings = []
    if check is not None:
        all_findings = _executed(tail, check, _avoided(measurements, batch_size, check))
    if tail is not None and discovery is not None:
        all_findings += _foreseen(
            measurements, discovery, batch_size, _near_by(measurements, tail), check
        )
        all_findings += _few_steps(measurements, tail)
    if discovery is not None and discovery.axis == "samples":
        all_findings += _small_batch(discovery.norm_layers, batch_size)
    return all_findings


def _avoided(measurements: Measurements, batch_size: int, check: TailCheck) -> str:
    """How no step of the executed length is made; each remedy went through the engine."""
    discovery = measurements.discovery_at(batch_size)
    if discovery is None:
        return "unavailable: the training loop was not found."
    if layout_at(discovery, batch_size) is None:
        # A loader without a length cannot be put through the engine: what drop_last does, can.
        if discovery.primary.drop_last:
            return "the loader drops a short batch already; nothing else is known of its end."
        return "DataLoader(..., drop_last=True), if the data are more than one batch."
    loss = known_loss(measurements.record) or "mean"
    pipeline = _pipeline_of(measurements, discovery, batch_size, loss)
    avoiding = _possible(measurements, fixes_without(pipeline, check.num_samples))
    texts = [_code(fix) for fix in avoiding]
    return "; or ".join(texts) or "none of the known remedies avoids this step; mend the step."


def _executed(tail: Tail | None, check: TailCheck, remedy: str) -> list[Finding]:
    """What a step of the tail's length did, as seen."""
    samples = "1 sample" if check.num_samples == 1 else f"{check.num_samples} samples"
    which = "the length of the epoch's last batch" if tail is not None else "as an epoch may end in"
    evidence = (Evidence(metric="samples in the last batch", value=check.num_samples),)
    failures = []
    if check.outcome != "ok":
        known = known_failure(check.detail)
        message = (
            f"the last batch of the epoch has {samples}, and a step of that size failed: "
            if tail is not None
            else f"how an epoch ends is unknown, and a step of {samples} failed: "
        )
        failures.append(
            Finding(
                rule="tail.crash",
                severity="warning" if tail is None else "error",
                message=message + check.detail + (f" ({known.what})" if known is not None else ""),
                evidence=evidence,
                remedy=remedy,
            )
        )
    broken = []
    if check.num_non_finite:
        broken.append(f"{check.num_non_finite} parameter tensors were not finite")
    if check.num_non_finite_norms:
        broken.append(f"{check.num_non_finite_norms} running statistics were not finite")
    if broken:
        failures.append(
            Finding(
                rule="tail.nan",
                severity="error",
                message=f"after a step of {samples}, {which}, {' and '.join(broken)}",
                evidence=evidence,
                remedy=remedy,
            )
        )
    return failures


def _foreseen(
    measurements: Measurements,
    discovery: Discovery,
    batch_size: int,
    near_by: str,
    check: TailCheck | None,
) -> list[Finding]:
    """The harmful cases of the engine; what was executed and failed is not predicted as well."""
    layout = layout_at(discovery, batch_size)
    if layout is None:
        return []
    crashed = check is not None and check.outcome != "ok"
    norms = discovery.norm_layers
    known = norms is not None and (norms.batch_norm_values is not None or not norms.batch_norm)
    loss = known_loss(measurements.record) or "mean"
    pipeline = _pipeline_of(measurements, discovery, batch_size, loss)
    return [
        _finding(measurements, finding, near_by, check, known=known)
        for finding in findings(pipeline, layout)
        if finding.harmful and not (crashed and finding.id == "norm.one-value")
    ]


def _finding(
    measurements: Measurements,
    finding: TailFinding,
    near_by: str,
    check: TailCheck | None,
    *,
    known: bool,
) -> Finding:
    message, severity = finding.message, SEVERITY[finding.severity]
    if finding.id == "norm.one-value":
        # Where no step showed which layers see maps of one value, it is a guess until executed.
        message += " (the step ran)" if check is not None else " (not executed here)"
        if check is not None or not known:
            severity = "info" if check is not None else "warning"
    if finding.id in SCRIPTS_OWN:
        severity = "info"
    if finding.id == "norm.few-samples" and check is not None:
        message += _moved(check)
    return Finding(
        rule=f"tails.{finding.id}",
        severity=severity,  # type: ignore[arg-type]
        message=message,
        evidence=finding.evidence,
        remedy=_remedy(finding, _possible(measurements, finding.fixes), near_by),
    )


def _pipeline_of(
    measurements: Measurements, discovery: Discovery, batch_size: int, loss: Loss
) -> Pipeline:
    """The script's pipeline; under a callback as the framework sets it up."""
    pipeline = pipeline_of(discovery, batch_size, loss, measurements.multiples.sure)
    observed = measurements.record.observed
    if observed is None or observed.pipeline is None or observed.world_size > 1:
        return pipeline
    return msgspec.structs.replace(pipeline, setup=observed.pipeline.setup)


def _moved(check: TailCheck) -> str:
    before, after = check.running_var_before, check.running_var_after
    if before is None or after is None:
        return ""
    steps = "one such step" if check.num_steps == 1 else f"{check.num_steps} such steps"
    return f"; {steps} moved a running variance from {before:.4g} to {after:.4g}"


def _near_by(measurements: Measurements, tail: Tail) -> str:
    """The clean sizes near by, and which of them did not run, or that there are none."""
    if not tail.nearest_clean:
        return tail.why_none_clean
    tried = measurements.sizes_that_ran
    new = [size for size in tail.nearest_clean if size not in tried]
    text = f"or a nearby size without a harmful tail: {_with_rates(tail)}"
    if not new:
        return text
    which = "" if len(new) == len(tail.nearest_clean) else f"{_listed(new)} "
    return f"{text} ({which}not measured)"


def _with_rates(tail: Tail) -> str:
    """The clean sizes with the samples per second that the law of step times predicts."""
    rates = {clean.batch_size: clean.predicted_samples_per_s for clean in tail.clean_sizes}
    known = [
        f"{size} (predicted {format_measured(rate, 0.01)}/s)"
        for size, rate in rates.items()
        if rate is not None
    ]
    return (
        ", ".join(known) if len(known) == len(tail.nearest_clean) else _listed(tail.nearest_clean)
    )


def _listed(sizes: Sequence[int]) -> str:
    return ", ".join(map(str, sizes))


def _code(fix: Fix) -> str:
    """A fix in one line: its code where that is one, and what it does."""
    return fix.title if "\n" in fix.snippet else f"{fix.snippet} ({fix.title})"


def _possible(measurements: Measurements, fixes: Sequence[Fix]) -> tuple[Fix, ...]:
    """The fixes without those that lead to a size that is known to fail."""
    sizes = [fix.changes.get("batch_size") for fix in fixes]
    return tuple(
        fix
        for fix, size in zip(fixes, sizes, strict=True)
        if not isinstance(size, int) or not measurements.ruled_out(size)
    )


def _remedy(finding: TailFinding, fixes: Sequence[Fix], near_by: str) -> str:
    """The first fix, the sizes near by, and where all fixes stand."""
    parts = []
    if fixes:
        parts.append(_code(fixes[0]))
    if near_by:
        parts.append(near_by)
    parts.append(f"batchadvisor tails --explain {finding.id}")
    return "; ".join(parts)


def _few_steps(measurements: Measurements, tail: Tail) -> list[Finding]:
    if not tail.steps_known or not 0 < tail.steps_per_epoch < MIN_STEPS_AN_EPOCH:
        return []
    steps = (
        "1 optimizer step"
        if tail.steps_per_epoch == 1
        else f"{tail.steps_per_epoch} optimizer steps"
    )
    most = _enough_steps(measurements, tail.batch_size)
    remedy = f"sizes up to {most} leave {MIN_STEPS_AN_EPOCH}" if most else ""
    if most and not measurements.goal.sizes and measurements.record.observed is None:
        remedy += f" (--max-batch {most})"
    return [
        Finding(
            rule="training.few_steps",
            severity="warning",
            message=f"an epoch has {steps} at this size",
            evidence=(
                Evidence(
                    metric="steps per epoch",
                    value=tail.steps_per_epoch,
                    threshold=MIN_STEPS_AN_EPOCH,
                ),
            ),
            remedy=f"{remedy}." if remedy else "",
        )
    ]


def _enough_steps(measurements: Measurements, batch_size: int) -> int:
    """The largest size that may be asked for and whose epochs have steps enough; 0 without one."""
    discovery = measurements.record.discovery
    assert discovery is not None

    def has_too_few(size: int) -> bool:
        layout = layout_at(measurements.discovery_at(size) or discovery, size)
        steps = 0 if layout is None else layout.steps * discovery.steps_per_batch
        return steps < MIN_STEPS_AN_EPOCH

    most = bisect_left(range(1, batch_size), True, key=has_too_few)
    return most - most % measurements.goal.multiple_of


def _small_batch(norms: NormLayers | None, batch_size: int) -> list[Finding]:
    if norms is None or not norms.batch_norm or batch_size >= SMALL_BATCH_NORM:
        return []
    return [
        Finding(
            rule="batch_norm.small",
            severity="warning",
            message=f"BatchNorm with {counted(batch_size)} a step has noisy statistics",
            evidence=(
                Evidence(metric="BatchNorm layers", value=norms.batch_norm),
                Evidence(metric="batch size", value=batch_size, threshold=SMALL_BATCH_NORM),
            ),
            remedy="GroupNorm, or a larger batch (accumulation does not help BatchNorm).",
        )
    ]
