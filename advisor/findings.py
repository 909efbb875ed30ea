"""What else the user should know. Each rule looks at one thing and says it with its evidence."""

from __future__ import annotations

import re
from collections.abc import Callable

from ..records import Evidence, Finding, NormLayers, RunRecord, Tail, TailCheck
from ..units import format_bytes
from .facts import failed, ran, searched
from .knee import slower_than_larger
from .sizes import MIN_STEPS_AN_EPOCH, SMALL_BATCH_NORM, bound_by_steps
from .tail import HARMFUL_WEIGHT

_NUMBERS = re.compile(r"[0-9]+(?:\.[0-9]+)?")
WIDE_INTERVAL = 0.10
"""Relative half-width of a step time from which on the machine is called noisy."""


def findings_of(
    record: RunRecord, batch_size: int | None, tail: Tail | None, check: TailCheck | None
) -> tuple[Finding, ...]:
    """All findings, errors first."""
    found: list[Finding] = []
    if batch_size is not None:
        found += _tail(record, batch_size, tail, check)
        found += _noise(record, batch_size)
        found += _retries(record, batch_size)
    for rule in _RULES:
        found += rule(record)
    order = {"error": 0, "warning": 1, "info": 2}
    return tuple(sorted(found, key=lambda one: order[one.severity]))


def _tail(
    record: RunRecord, batch_size: int, tail: Tail | None, check: TailCheck | None
) -> list[Finding]:
    found: list[Finding] = []
    if check is not None and check.outcome not in ("ok", "interrupted"):
        found.append(
            Finding(
                rule="tail.crash",
                severity="error",
                message=f"the last batch of the epoch has {check.num_samples} samples, and a step "
                f"of that size failed: {check.detail}",
                evidence=(Evidence(metric="samples in the last batch", value=check.num_samples),),
                remedy="DataLoader(..., drop_last=True), or a size that divides the data.",
            )
        )
    if check is not None and check.num_non_finite:
        found.append(
            Finding(
                rule="tail.nan",
                severity="error",
                message=f"after a step of {check.num_samples} samples, the length of the epoch's "
                f"last batch, {check.num_non_finite} parameter tensors were not finite",
                evidence=(Evidence(metric="samples in the last batch", value=check.num_samples),),
                remedy="DataLoader(..., drop_last=True), or a size that divides the data.",
            )
        )
    if tail is None:
        return found
    if tail.drop_last and tail.steps_per_epoch == 0:
        found.append(
            Finding(
                rule="tail.no_steps",
                severity="error",
                message=f"drop_last=True and {tail.num_samples} samples: no step is made",
                evidence=(Evidence(metric="samples", value=tail.num_samples),),
                remedy=f"a batch size of at most {tail.num_samples}.",
            )
        )
    if tail.weight > HARMFUL_WEIGHT and tail.last_batch:
        found.append(
            Finding(
                rule="tail.weight",
                severity="warning",
                message=f"the {tail.last_batch} samples of the epoch's last step weigh "
                f"{tail.weight:.1f} times the others under a mean loss",
                evidence=(
                    Evidence(
                        metric="weight of a sample", value=tail.weight, threshold=HARMFUL_WEIGHT
                    ),
                ),
                remedy="drop_last=True (with shuffling nothing is lost over epochs)" + _clean(tail),
            )
        )
    if tail.dropped:
        found.append(
            Finding(
                rule="tail.dropped",
                severity="info",
                message=f"drop_last leaves {tail.dropped} of {tail.num_samples} samples out of "
                "each epoch",
                evidence=(Evidence(metric="dropped samples", value=tail.dropped),),
                remedy="with shuffling, others each time; without, always the same ones.",
            )
        )
    found += _few_steps(tail)
    norms = record.discovery.norm_layers if record.discovery is not None else None
    found += _batch_norm(norms, batch_size, tail, check)
    return found


def _batch_norm(
    norms: NormLayers | None, batch_size: int, tail: Tail, check: TailCheck | None
) -> list[Finding]:
    if norms is None or not norms.batch_norm:
        return []
    found: list[Finding] = []
    evidence = (Evidence(metric="BatchNorm layers", value=norms.batch_norm),)
    if tail.last_batch == 1 and (check is None or check.outcome == "ok"):
        seen = "the step ran" if check is not None else "not executed here"
        found.append(
            Finding(
                rule="tail.batch_norm_one",
                severity="warning",
                message="the last batch holds one sample; BatchNorm over one value per channel "
                f"raises ValueError ({seen})",
                evidence=evidence,
                remedy="drop_last=True" + _clean(tail),
            )
        )
    elif 1 < tail.last_batch < SMALL_BATCH_NORM <= batch_size:
        found.append(
            Finding(
                rule="tail.batch_norm_small",
                severity="warning",
                message=f"the last batch of {tail.last_batch} samples pulls BatchNorm's running "
                "statistics once an epoch",
                evidence=evidence,
                remedy="drop_last=True" + _clean(tail),
            )
        )
    if batch_size < SMALL_BATCH_NORM:
        found.append(
            Finding(
                rule="batch_norm.small",
                severity="warning",
                message=f"BatchNorm with {batch_size} samples a step has noisy statistics",
                evidence=(
                    Evidence(metric="batch size", value=batch_size, threshold=SMALL_BATCH_NORM),
                ),
                remedy="GroupNorm, or a larger batch (accumulation does not help BatchNorm).",
            )
        )
    return found


def _few_steps(tail: Tail) -> list[Finding]:
    if not 0 < tail.steps_per_epoch < MIN_STEPS_AN_EPOCH:
        return []
    return [
        Finding(
            rule="training.few_steps",
            severity="warning",
            message=f"an epoch has {tail.steps_per_epoch} optimizer steps at this size",
            evidence=(
                Evidence(
                    metric="steps per epoch",
                    value=tail.steps_per_epoch,
                    threshold=MIN_STEPS_AN_EPOCH,
                ),
            ),
            remedy="more epochs make up for it, or a smaller size with --max-batch.",
        )
    ]


def _clean(tail: Tail) -> str:
    if not tail.nearest_clean:
        return "."
    sizes = ", ".join(map(str, tail.nearest_clean))
    return f", or a nearby size without a harmful tail: {sizes} (not measured)."


def _noise(record: RunRecord, batch_size: int) -> list[Finding]:
    widths = [
        one.step_s.relative_half_width
        for one in ran(record)
        if one.batch_size == batch_size and one.step_s is not None
    ]
    if not widths or min(widths) < WIDE_INTERVAL:
        return []
    return [
        Finding(
            rule="noise",
            severity="warning",
            message=f"step times vary by ±{min(widths):.0%} at the recommended size",
            evidence=(Evidence(metric="half-width", value=min(widths), threshold=WIDE_INTERVAL),),
            remedy="measure on a quieter machine, or with a larger --budget.",
        )
    ]


def _retries(record: RunRecord, batch_size: int) -> list[Finding]:
    retries = max(
        (
            one.memory.num_alloc_retries or 0
            for one in ran(record)
            if one.batch_size == batch_size and one.memory is not None
        ),
        default=0,
    )
    if not retries:
        return []
    return [
        Finding(
            rule="memory.retries",
            severity="warning",
            message=f"the allocator flushed its cache {retries} times at this size: memory is "
            "too tight for full speed",
            evidence=(Evidence(metric="allocation retries", value=retries, threshold=0),),
            remedy="a smaller size, or PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True.",
        )
    ]


def _refused(record: RunRecord) -> list[Finding]:
    sizes = sorted({one.batch_size for one in failed(record) if one.outcome == "out_of_memory"})
    if not sizes:
        return []
    limit = record.device.capacity_bytes if record.device is not None else 0
    return [
        Finding(
            rule="memory.refused",
            severity="info",
            message=f"out of memory at {', '.join(map(str, sizes))} (limit {format_bytes(limit)})",
            evidence=tuple(Evidence(metric="batch size", value=one) for one in sizes),
        )
    ]


def _broken(record: RunRecord) -> list[Finding]:
    return [
        Finding(
            rule=f"trial.{one.outcome}",
            severity="warning",
            message=f"batch {one.batch_size} did not run: {one.detail}",
            evidence=(Evidence(metric="batch size", value=one.batch_size),),
            remedy="its output and traceback are in the run's log; larger sizes were left out.",
        )
        for one in failed(record)
        if one.outcome != "out_of_memory"
    ]


def _doubts(record: RunRecord) -> list[Finding]:
    texts = [*record.doubts, *(text for trial in record.trials for text in trial.doubts)]
    kinds: dict[str, list[str]] = {}
    for text in texts:  # the same doubt of many trials is said once, at its worst
        kinds.setdefault(_NUMBERS.split(text)[0], []).append(text)
    return [
        Finding(
            rule="doubt",
            severity="warning",
            message=max(same, key=_numbers)
            + (f" (the worst of {len(same)} trials)" if len(same) > 1 else ""),
            remedy="run again when the machine is free.",
        )
        for same in kinds.values()
    ]


def _numbers(text: str) -> list[float]:
    return [float(one) for one in _NUMBERS.findall(text)]


def _bounded(record: RunRecord) -> list[Finding]:
    bound = bound_by_steps(record)
    largest = max((one.batch_size for one in record.trials), default=0)
    if bound != largest or record.goal.keep_effective_batch or record.goal.sizes:
        return []
    return [
        Finding(
            rule="bound.steps",
            severity="info",
            message=f"sizes above {bound} were not tried: an epoch would have fewer than "
            f"{MIN_STEPS_AN_EPOCH} optimizer steps",
            evidence=(Evidence(metric="largest size", value=bound),),
            remedy="--max-batch lifts this bound.",
        )
    ]


def _falling(record: RunRecord) -> list[Finding]:
    sizes = searched(record)
    slower = slower_than_larger(sizes)
    if not slower:
        return []
    listed = ", ".join(map(str, slower))
    return [
        Finding(
            rule="time.falls",
            severity="warning",
            message=f"a step at batch {listed} took longer than one at a larger size",
            evidence=tuple(Evidence(metric="batch size", value=one) for one in slower),
            remedy="something else used the machine, or the kernels changed; do not compare with "
            "these rows.",
        )
    ]


def _approximate(record: RunRecord) -> list[Finding]:
    if record.discovery is None or record.discovery.primary.steered != "approximate":
        return []
    return [
        Finding(
            rule="steering.approximate",
            severity="warning",
            message=f"the batch sampler {record.discovery.primary.sampler} does not follow its "
            "batch_size; its batches were flattened and cut again, its grouping is lost",
            remedy="treat times and memory as estimates if it groups by length.",
        )
    ]


def _by_index(record: RunRecord) -> list[Finding]:
    if not any(one.size_proof == "indices" for one in ran(record)):
        return []
    return [
        Finding(
            rule="steering.indices",
            severity="info",
            message="no tensor of the batch carries its size; it was proved by the number of "
            "samples fetched from the dataset",
        )
    ]


_RULES: tuple[Callable[[RunRecord], list[Finding]], ...] = (
    _refused,
    _broken,
    _doubts,
    _falling,
    _bounded,
    _approximate,
    _by_index,
)
