"""What a step was spent on, in parts that add up."""

from __future__ import annotations

from collections.abc import Sequence

from ....records import IdleShares, Profile
from ....units import format_seconds
from ...chart import BATCH, Chart, Mark, Series, rounded
from ...sizes import SizeRow
from ...words.wording import percent

SMALLEST_PART = 0.05
"""Percent of the step; parts that are smaller everywhere are left out."""


def step_time(rows: Sequence[SizeRow]) -> Chart | None:
    """The shares of the step, stacked to the whole of it, one bar a size, the chosen one marked."""
    known = [(row, parts) for row in rows if (parts := breakdown(row)) is not None]
    if not known:
        return None
    labels = [
        label
        for label in dict.fromkeys(label for _, parts in known for label in parts)
        if any(parts.get(label, 0.0) >= SMALLEST_PART for _, parts in known)
    ]
    series = []
    for color, label in enumerate(labels, start=1):
        shares = [parts.get(label, 0.0) for _, parts in known]
        series.append(
            Series(
                key=label,
                label=label,
                kind="part",
                color=color,
                values=tuple(map(rounded, shares)),
                texts=tuple(
                    f"{percent(pct)}%{_per_sample(row, pct)}"
                    for (row, _), pct in zip(known, shares, strict=True)
                ),
            )
        )
    marks, unprofiled = _chosen(rows, [row for row, _ in known])
    on_gpu = any(row.profile is not None and row.profile.idle is not None for row, _ in known)
    # Older records, and those of a CPU, have the shares of the profiled steps themselves.
    adjusted = any(row.profile is not None and row.profile.step_s is not None for row, _ in known)
    less = ", less what profiling added where timed steps were shorter" if adjusted else ""
    overlap = (
        f"Shares are of the profiled steps{less if on_gpu else ''}; times beside them, of a "
        "sample, apply them to the unprofiled step time."
    )
    cpu = "Operators that ran inside the loader may be counted as waiting for it."
    return Chart(
        key="step_time",
        title="Where the step's time goes",
        x_label=BATCH,
        x_scale="category",
        x=tuple(float(number) for number in range(len(known))),
        x_ticks=tuple(float(number) for number in range(len(known))),
        x_names=tuple(str(row.batch_size) for row, _ in known),
        y_label="% of the step",
        unit="%",
        series=tuple(series),
        marks=marks,
        notes=(*unprofiled, *_left_out(rows, known), overlap, *(() if on_gpu else (cpu,))),
    )


def _left_out(
    rows: Sequence[SizeRow], known: Sequence[tuple[SizeRow, dict[str, float]]]
) -> tuple[str, ...]:
    """Sizes that were timed and have no bar; of the recommended one `_chosen` says it."""
    drawn = [row for row, _ in known]
    missing = [
        str(row.batch_size)
        for row in rows
        if row.step_s is not None and row not in drawn and "recommended" not in row.marks
    ]
    return (f"Not drawn: {', '.join(missing)} (no profile).",) if missing else ()


def _per_sample(row: SizeRow, pct: float) -> str:
    """Words the time that a share of the step costs each sample."""
    if row.step_s is None or not pct:
        return ""
    samples = row.batch_size * row.trial.arrived_share * (row.trial.micro_batches or 1)
    return f" ({format_seconds(row.step_s.median * pct / 100 / samples)})"


def _chosen(
    rows: Sequence[SizeRow], known: Sequence[SizeRow]
) -> tuple[tuple[Mark, ...], tuple[str, ...]]:
    """The mark of the recommended size, or a note that it has no bar."""
    size = next((row.batch_size for row in rows if "recommended" in row.marks), None)
    if size is None:
        return (), ()
    at = next((number for number, row in enumerate(known) if row.batch_size == size), None)
    if at is None:
        return (), (f"{size}, the recommended size, has no bar: it has no profile.",)
    return (Mark(axis="x", value=at, label=f"use {size}", kind="recommended"),), ()


def breakdown(row: SizeRow) -> dict[str, float] | None:
    """Percent of the step by what it was spent on; they add up to 100. `None` if not known."""
    if row.profile is None or row.step_s is None:
        return None
    return device_breakdown(row.profile, row.input_pct)


def device_breakdown(profile: Profile, input_pct: float | None = None) -> dict[str, float] | None:
    """Percent of the step by what it was spent on, from a profile alone; `None` if not known.

    Args:
        input_pct: share of the step that waited for the loader, where that is known better than
            from the trace.
    """
    if profile.idle is not None and profile.compute_pct is not None:
        return _gpu_breakdown(profile, profile.idle)
    if profile.operators_pct is None:
        return None
    waited = min((profile.input_wait_pct if input_pct is None else input_pct) or 0.0, 100.0)
    operators = min(profile.operators_pct, 100.0 - waited)
    return {
        "inside CPU operators": operators,
        "waiting for the loader": waited,
        "Python and the rest": max(0.0, 100.0 - operators - waited),
    }


def _gpu_breakdown(profile: Profile, idle: IdleShares) -> dict[str, float]:
    return {
        "computing": profile.compute_pct or 0.0,
        "exposed communication": profile.exposed_communication_pct or 0.0,
        "exposed copies": profile.exposed_copy_pct or 0.0,
        "idle: the loader": idle.input_pct,
        "idle: Python, launches": idle.host_pct + idle.launch_pct + idle.call_pct,
        "idle: the host synchronised": idle.synchronize_pct,
        "idle: other": idle.launch_latency_pct
        + idle.dependency_pct
        + idle.unknown_pct
        + idle.tail_pct,
    }
