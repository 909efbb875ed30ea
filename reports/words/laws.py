"""Laws of memory, in words."""

from __future__ import annotations

from ...records import Forecast
from ...units import format_bytes
from .wording import bytes_per_sample


def line_text(fixed_bytes: float, sample_bytes: float) -> str:
    """A line in the batch size.

    >>> line_text(-(2**30), 2**20)
    '-1.00 GiB + 1.00 MiB x batch'
    """
    sign = "-" if fixed_bytes < 0 else ""
    return f"{sign}{format_bytes(abs(fixed_bytes))} + {bytes_per_sample(sample_bytes)} x batch"


def law_text(floor_bytes: float, fixed_bytes: float, sample_bytes: float) -> str:
    """The law of a step: the larger of what any step takes, and of a line.

    >>> law_text(2**30, 0, 2**20)
    'max(1.00 GiB, 0 B + 1.00 MiB x batch)'
    """
    return f"max({format_bytes(floor_bytes)}, {line_text(fixed_bytes, sample_bytes)})"


def forecast_law_note(forecast: Forecast) -> str:
    """Where the peak does not follow the line of the two largest sizes, or how well it does.

    Empty where nothing more is known, as in old records.
    """
    name, smallest = forecast.variant.name, forecast.trials[0].batch_size
    if forecast.no_law:
        return f"{name}: the line of the two largest sizes that were looked at ({forecast.no_law})."
    if not forecast.floor_bytes:
        return ""
    at_smallest = forecast.fixed_bytes + forecast.sample_bytes * smallest
    floor = format_bytes(max(forecast.floor_bytes, at_smallest))
    text = f"{name}: a batch of {smallest} or more takes at least {floor}"
    if forecast.residual is None:
        return f"{text}."
    return (
        f"{text}; larger ones that were looked at miss the line by {forecast.residual:.1%} at most."
    )
