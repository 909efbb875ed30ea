"""The larger sizes to try once a remedy has made room in the memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import ceil, sqrt

from ...records import Trial
from .processes import Refused

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


def fastest_larger(
    timed: Callable[[int], Trial],
    peaks: Mapping[int, int],
    room_bytes: float,
    *,
    allowed: Callable[[int], int],
    goes_on: Callable[[], bool],
) -> list[int]:
    """The sizes that fit above the present one, the fastest first; each next is smaller.

    Args:
        timed: runs a size.
        peaks: bytes at the present size.
        allowed: the nearest size that may be tried.
        goes_on: whether another may be tried.
    """
    peaks, rates = dict(peaks), dict[int, float]()
    refused: int | None = None
    while goes_on():
        wanted = next_larger(peaks, refused, room_bytes)
        size = 0 if wanted is None else allowed(wanted)
        if size < LEAST_LARGER * max(peaks) or (refused is not None and size >= refused):
            break
        try:
            trial = timed(size)
        except Refused:
            refused = size
            continue
        peak = None if trial.memory is None else trial.memory.peak_bytes
        if peak is None:
            break  # nobody knows what fits
        if peak > room_bytes:
            refused = size
            continue
        peaks[size] = peak
        if trial.samples_per_s is not None:
            rates[size] = trial.samples_per_s.median
    fastest: list[int] = []
    for size in sorted(rates, key=rates.__getitem__, reverse=True):
        if not fastest or size < fastest[-1]:
            fastest.append(size)
    return fastest
