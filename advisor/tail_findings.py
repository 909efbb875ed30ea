"""What the end of an epoch, and the number of its steps, do to the training."""

from __future__ import annotations

from ..records import Evidence, Finding, NormLayers, RunRecord, Tail, TailCheck
from .sizes import MIN_STEPS_AN_EPOCH, SMALL_BATCH_NORM
from .tail import HARMFUL_WEIGHT


def tail_findings(
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


def _clean(tail: Tail) -> str:
    if not tail.nearest_clean:
        return "."
    sizes = ", ".join(map(str, tail.nearest_clean))
    return f", or a nearby size without a harmful tail: {sizes} (not measured)."
