"""Times as text -> integer nanoseconds.

Kineto writes microseconds with up to three decimals. A 64-bit float holds only a quarter of a
microsecond of an absolute epoch time, so the digits are read as text and never as a float.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal

import msgspec
import numpy as np
import numpy.typing as npt

from .intervals import Ints

_COMMA, _DOT = 0x2C, 0x2E
_LIMIT_NS = 1 << 61
_LIMIT_TEXT = 19
"""A number of up to 18 digits, with its point, cannot overflow 64 bits."""


def nanoseconds(texts: Sequence[msgspec.Raw]) -> tuple[Ints, npt.NDArray[np.bool_]]:
    """Microseconds as JSON text -> exact nanoseconds.

    Digits below a nanosecond are dropped.

    Returns:
        The times, and which of them are valid; an invalid one is 0.
    """
    count = len(texts)
    if count == 0:
        return np.empty(0, np.int64), np.empty(0, bool)
    joined = b",".join(texts)
    if not joined.translate(None, b"0123456789.,"):
        marks = np.frombuffer(joined, np.uint8)
        ends = np.append(np.flatnonzero(marks == _COMMA), len(joined))
        lengths = np.diff(ends, prepend=-1) - 1
        if len(ends) == count and lengths.min() > 0 and lengths.max() <= _LIMIT_TEXT + 1:
            values = _vectorised(joined, np.flatnonzero(marks == _DOT), ends)
            if values is not None:
                return values, np.ones(count, bool)
    return _one_by_one(texts)


def _vectorised(joined: bytes, dots: Ints, ends: Ints) -> Ints | None:
    """All at once, or `None` where that would not be exact."""
    owners = np.searchsorted(ends, dots)
    decimals = np.zeros(len(ends), np.int64)
    decimals[owners] = ends[owners] - dots - 1
    if len(dots) > 1 and (np.diff(owners) == 0).any():
        return None
    if decimals.max() > 3 or (decimals[owners] == 0).any():
        return None
    digits = np.fromstring(joined.replace(b".", b""), np.int64, sep=",")
    scale = 10 ** (3 - decimals)
    if len(digits) != len(ends) or (digits > _LIMIT_NS // scale).any():
        return None
    return np.asarray(digits * scale, np.int64)


def _one_by_one(texts: Sequence[msgspec.Raw]) -> tuple[Ints, npt.NDArray[np.bool_]]:
    values = [_exact(bytes(text)) for text in texts]
    valid = np.array([value is not None for value in values], bool)
    return np.array([value or 0 for value in values], np.int64), valid


def _exact(text: bytes) -> int | None:
    try:
        number = Decimal(text.strip(b' "').decode("ascii"))
        if not number.is_finite() or abs(number) > _LIMIT_NS // 1000:
            return None
        return int(number * 1000)
    except (ArithmeticError, ValueError):
        return None
