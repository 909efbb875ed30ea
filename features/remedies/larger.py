"""The larger sizes to try once a remedy has made room in the memory."""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil, sqrt

LEAST_LARGER = 1.1
"""A size that is larger by less than this factor gains less than a comparison can show."""
FORECAST_SHARE = 0.98
"""A forecast stays below the room by what a line through two peaks is wrong by."""


def next_larger(peaks: Mapping[int, int], refused: int | None, room_bytes: float) -> int | None:
    """The next size to try, `None` where nothing clearly larger fits.

    It goes as far as a line through the last two peaks fits, at most to the double, and at most
    halfway to what was refused. With one peak the line begins at nothing, which is above any other:
    a size that is refused may end the process, and those that follow need it.

    Args:
        peaks: bytes by the size that ran.
        refused: the smallest size that did not fit.
        room_bytes: what a size may take.

    >>> next_larger({64: 100}, None, 1000), next_larger({64: 100}, None, 150)
    (128, 94)
    >>> next_larger({64: 100, 128: 180}, None, 300)
    219
    >>> next_larger({64: 100}, 128, 1000), next_larger({64: 100, 90: 130}, 96, 1000)
    (90, None)
    """
    before, last = [0, *sorted(peaks)][-2:]
    forecast = 2 * last
    each = (peaks[last] - peaks.get(before, 0)) / (last - before)
    if each > 0:
        left = FORECAST_SHARE * room_bytes - peaks[last]
        forecast = min(forecast, int(last + left / each))
    if not before:  # what does not grow with the batch is not known yet
        forecast = max(forecast, ceil(LEAST_LARGER * last))
    if refused is not None:
        forecast = min(forecast, int(sqrt(last * refused)))
    return forecast if forecast >= LEAST_LARGER * last else None
