"""Lower bounds of step times, in words."""

from __future__ import annotations

from ....units import format_seconds
from ..records import Estimate, StepBound

TITLE = "A step takes no less than this (a roofline; lower bounds, no forecasts)"
LAUNCH = "4 us"
HEAD = ("GPU", "variant", "batch", "step", "largest", "step there")


def bound_rows(answer: Estimate) -> list[tuple[str, ...]]:
    """A row for each GPU and variant, as `HEAD` says; the largest batch is the one that fits."""
    rows: dict[tuple[str, str], list[StepBound]] = {}
    for bound in answer.bounds:
        rows.setdefault((bound.gpu, bound.variant), []).append(bound)
    table = []
    for (gpu, variant), bounds in rows.items():
        cells = [gpu, variant]
        for bound in bounds:
            cells += [str(bound.batch_size), _time(bound)]
        table.append((*cells, *([""] * (len(HEAD) - len(cells)))))
    return table


def _time(bound: StepBound) -> str:
    if bound.seconds is None:
        return "unavailable"
    launches = (bound.launch_s or 0.0) >= (bound.roofline_s or 0.0)
    return f"{format_seconds(bound.seconds)}{' L' if launches else ''}"


def bound_notes(answer: Estimate) -> list[str]:
    """Notes on the bounds: what they are, why some are missing, and how a real run compares."""
    notes = [
        (
            "The sum over the step's operations of the larger of FLOPs / dense peak and bytes / "
            "bandwidth, one by one. L: launching a kernel for each takes longer, if that takes "
            f"{LAUNCH}, an assumption. Real steps take longer, unless compiled code or a GPU's "
            "cache saves traffic."
        )
    ]
    if answer.calibration is None:
        notes.append(f"Speeds of data sheets: {answer.label}.")
    reasons: dict[str, list[str]] = {}
    for bound in answer.bounds:
        if bound.reason:
            names = reasons.setdefault(bound.reason, [])
            name = f"{bound.gpu}, {bound.variant}"
            if name not in names:
                names.append(name)
    every = len({(bound.gpu, bound.variant) for bound in answer.bounds})
    for reason, names in reasons.items():
        which = "everywhere" if len(names) == every else "; ".join(names)
        notes.append(f"Unavailable ({which}): {reason}.")
    calibration = answer.calibration
    if calibration is None:
        notes.append("Where the knee should lie is said with --calibrate and a run on a real GPU.")
        return notes
    low, high = min(calibration.factors.values()), max(calibration.factors.values())
    sizes = ", ".join(map(str, calibration.factors))
    notes.append(
        f"Measured on {calibration.device}: x{calibration.factor:.2f} of the bound (x{low:.2f} to "
        f"x{high:.2f} over the batch sizes {sizes})."
    )
    if calibration.reason:
        notes.append(f"Where the knee should lie: cannot tell, {calibration.reason}.")
    elif calibration.knees:
        knees = ", ".join(f"{gpu} {size}" for gpu, size in calibration.knees.items())
        notes.append(
            f"Where the knee should lie, an estimate (as written; the smallest of doubling sizes "
            f"with 90% of the best throughput, every GPU as far off its bound): {knees}."
        )
    return notes
