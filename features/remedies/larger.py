"""The larger sizes to try once a remedy has made room in the memory."""

from __future__ import annotations

from collections.abc import Mapping
from math import sqrt

LEAST_LARGER = 1.1
"""A size that is larger by less than this factor gains less than a comparison can show."""
FORECAST_SHARE = 0.98
"""A forecast stays below the room by what a line through two peaks is wrong by."""


def next_larger(peaks: Mapping[int, int], refused: int | None, room_bytes: float) -> int | None:
    """The next size to try, `None` where nothing clearly larger fits.

    It doubles until a line through the last two peaks, or a refusal, says that the double does not
    fit; then it goes to the size that the line says, at most halfway to what was refused.

    Args:
        peaks: bytes by the size that ran.
        refused: the smallest size that did not fit.
        room_bytes: what a size may take.

    >>> next_larger({64: 100}, None, 1000), next_larger({64: 100, 128: 180}, None, 300)
    (128, 219)
    >>> next_larger({64: 100}, 128, 1000), next_larger({64: 100, 90: 130}, 96, 1000)
    (90, None)
    """
    sizes = sorted(peaks)
    last = sizes[-1]
    forecast = 2 * last
    if len(sizes) > 1:
        before = sizes[-2]
        each = (peaks[last] - peaks[before]) / (last - before)
        if each > 0:
            left = FORECAST_SHARE * room_bytes - peaks[last]
            forecast = min(forecast, int(last + left / each))
    if refused is not None:
        forecast = min(forecast, int(sqrt(last * refused)))
    return forecast if forecast >= LEAST_LARGER * last else None
