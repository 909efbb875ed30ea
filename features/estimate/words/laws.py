"""The law of a forecast, in words."""

from __future__ import annotations

from ....units import format_bytes
from ..records import Forecast


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
    least = min(trial.peak_bytes for trial in forecast.trials)
    floor = format_bytes(min(least, max(forecast.floor_bytes, at_smallest)))
    text = f"{name}: a batch of {smallest} or more takes at least {floor}"
    if forecast.residual is None:
        return f"{text}."
    return (
        f"{text}; larger ones that were looked at miss the line by {forecast.residual:.1%} at most."
    )
