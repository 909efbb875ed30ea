"""What a step was spent on, in parts that add up."""

from __future__ import annotations

from collections.abc import Sequence

from ..records import IdleShares, Profile
from .chart import BATCH, Chart, Series, rounded, short
from .sizes import SizeRow
from .wording import percent


def step_time(rows: Sequence[SizeRow]) -> Chart | None:
    """What the step is spent on, stacked, one bar a size."""
    known = [(row, parts) for row in rows if (parts := breakdown(row)) is not None]
    if not known:
        return None
    slow = min(row.step_s.median for row, _ in known if row.step_s is not None) >= 1
    unit, factor = ("s", 1.0) if slow else ("ms", 1e3)
    labels = list(dict.fromkeys(label for _, parts in known for label in parts))
    series = []
    for color, label in enumerate(labels, start=1):
        shown = [
            (row.step_s.median * factor * parts.get(label, 0.0) / 100, parts.get(label, 0.0))
            for row, parts in known
            if row.step_s is not None
        ]
        series.append(
            Series(
                key=label,
                label=label,
                kind="part",
                color=color,
                values=tuple(rounded(value) for value, _ in shown),
                texts=tuple(f"{short(value)} {unit} ({percent(pct)}%)" for value, pct in shown),
            )
        )
    on_gpu = any(row.profile is not None and row.profile.idle is not None for row, _ in known)
    overlap = "Shares are of the profiled steps, applied to the unprofiled step time."
    cpu = "Operators that ran inside the loader may be counted as waiting for it."
    return Chart(
        key="step_time",
        title="What a step is spent on",
        x_label=BATCH,
        x_scale="category",
        x=tuple(float(one) for one in range(len(known))),
        x_ticks=tuple(float(one) for one in range(len(known))),
        x_names=tuple(str(row.batch_size) for row, _ in known),
        y_label=f"{unit} per step",
        unit=unit,
        series=tuple(series),
        notes=(overlap,) if on_gpu else (overlap, cpu),
    )


def breakdown(row: SizeRow) -> dict[str, float] | None:
    """Percent of the step by what it was spent on; they add up to 100. `None` if not known."""
    profile = row.profile
    if profile is None or row.step_s is None:
        return None
    if profile.idle is not None and profile.compute_pct is not None:
        return _gpu_breakdown(profile, profile.idle)
    if profile.operators_pct is None:
        return None
    waited = min(row.input_pct or 0.0, 100.0)
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
