"""Numbers that no run measures, found in a record before anything is computed from them.

A record on disk may have been edited or written by something else. What no device has, no clock
shows and no data set holds would end in an overflow somewhere in the advice.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import inf

import msgspec

from ..records import Record

MOST_BYTES = 1 << 60
MOST_SECONDS = 1e10
"""Three centuries."""
MOST_COUNT = 10**15
MOST_PER_SECOND = 1e18
MOST = 1e40
"""What is left holds numbers of 32-bit floats: variances of activations, for example."""


def check_numbers(record: Record) -> None:
    """Refuses a record with such a number.

    Raises:
        ValidationError: it names the first one and where it stands.
    """
    for path, value in _numbers(record, ""):
        least, most = _bounds(path, value)
        if not least <= value <= most:
            msg = f"{value} is no number that a run measures - at `{path}`"
            raise msgspec.ValidationError(msg)


def _numbers(value: object, path: str) -> Iterator[tuple[str, float]]:
    """All numbers below a value, with the names of the fields that lead to them."""
    if isinstance(value, bool):
        return
    if isinstance(value, (int, float)):
        yield path, value
    elif isinstance(value, Record):
        for name in value.__struct_fields__:
            yield from _numbers(getattr(value, name), f"{path}.{name}".lstrip("."))
    elif isinstance(value, tuple):
        for number, item in enumerate(value):
            yield from _numbers(item, f"{path}[{number}]")
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _numbers(item, f"{path}[{key}]")


def _bounds(path: str, value: float) -> tuple[float, float]:
    """The least and the most that the field can hold."""
    fields = [field.partition("[")[0] for field in path.split(".")]
    name = fields[-2] if fields[-1] in ("median", "low", "high") else fields[-1]
    if name.endswith("_per_s"):
        return 0, MOST_PER_SECOND
    if name.endswith("_bytes"):
        return 0, MOST_BYTES
    if name.endswith("_s"):
        return -MOST_SECONDS, MOST_SECONDS
    if name.startswith("num_") or "batch" in name or name.endswith("samples"):
        return 0, MOST_COUNT
    return (-inf, inf) if isinstance(value, int) else (-MOST, MOST)
