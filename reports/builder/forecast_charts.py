"""Charts of a forecast by number of GPUs."""

from __future__ import annotations

from collections.abc import Sequence

from ...records import RankPoint
from ..chart import Chart, Series, rounded


def charts_of(key: str, points: Sequence[RankPoint]) -> tuple[Chart, ...]:
    """Speed-up and efficiency, with the batch of a GPU kept and with the global batch kept."""
    weak = [point for point in points if point.scaling == "weak"]
    strong = [point for point in points if point.scaling == "strong"]
    if len(weak) < 2:
        return ()
    numbers = tuple(float(point.num_gpus) for point in weak)
    lines = [("weak", "batch of a GPU kept", weak), ("strong", "global batch kept", strong)]

    def chart(name: str, title: str, field: str, unit: str, factor: float) -> Chart:
        return Chart(
            key=f"{key}-{name}",
            title=title,
            x_label="GPUs",
            x_scale="log",
            x=numbers,
            x_ticks=numbers,
            x_names=tuple(f"{number:.0f}" for number in numbers),
            y_label=title.split(" ", maxsplit=1)[0].lower(),
            unit=unit,
            series=tuple(
                Series(
                    key=line,
                    label=label,
                    kind="estimate",
                    color=place + 1,
                    values=tuple(_value(point, field, factor) for point in points),
                )
                for place, (line, label, points) in enumerate(lines)
            ),
        )

    return (
        chart("speedup", "Speed-up over one GPU (estimate)", "speedup", "x", 1.0),
        chart("efficiency", "Efficiency (estimate)", "efficiency", "%", 100.0),
    )


def _value(point: RankPoint, field: str, factor: float) -> float | None:
    value: float | None = getattr(point, field)
    return None if value is None else rounded(factor * value)
