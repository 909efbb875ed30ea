"""Numbers that nothing can have measured: a record that holds one was damaged, or made up."""

from __future__ import annotations

from typing import Any

import msgspec

LARGEST_NUMBER = 1e100
"""Beyond it products of two numbers may overflow."""
LARGEST_COUNT = 10**15
LARGEST_BYTES = 2**60
LONGEST_S = 1e11
"""About 3000 years, in seconds."""
_SIGNED = ("exposed_s", "more_bytes")
"""Differences, which may be negative."""
_COUNTS = ("batch_size", "size", "sizes", "samples", "micro_batches", "steps_per_batch", "pool")


def implausible(value: Any, path: str = "") -> str | None:
    """The first number that cannot be, and where it stands; `None` in a record of good ones.

    >>> implausible({"memory": {"peak_bytes": -5}})
    'memory.peak_bytes is -5'
    >>> implausible({"num_samples": 10**18}), implausible({"num_samples": 10**10})
    ('num_samples is 1000000000000000000', None)
    """
    if isinstance(value, msgspec.Struct):
        pairs = [(f".{field}", getattr(value, field)) for field in value.__struct_fields__]
    elif isinstance(value, dict):
        pairs = [(f".{key}", part) for key, part in value.items()]
    elif isinstance(value, (list, tuple)):
        pairs = [(f"[{place}]", part) for place, part in enumerate(value)]
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        return None if _fits(value, path) else f"{path.lstrip('.')} is {value!r}"
    else:
        return None
    wrong = (implausible(part, path + name) for name, part in pairs)
    return next((text for text in wrong if text is not None), None)


def _fits(value: float, path: str) -> bool:
    name = _unit_of(path)
    low, high = -LARGEST_NUMBER, LARGEST_NUMBER
    if name.endswith("_bytes"):
        low, high = -LARGEST_BYTES if name in _SIGNED else 0, LARGEST_BYTES
    elif name.startswith("num_") or name.endswith(_COUNTS):
        low, high = 0, LARGEST_COUNT
    elif name.endswith("_per_s"):
        low = 0
    elif name.endswith("_s"):
        low, high = -LONGEST_S if name in _SIGNED else 0, LONGEST_S
    return low <= value <= high  # not a number neither


def _unit_of(path: str) -> str:
    """The name that says the unit: that of the field, or of the spread that holds it."""
    names = [part.partition("[")[0] for part in path.split(".") if part]
    if len(names) > 1 and names[-1] in ("median", "low", "high"):
        return names[-2]
    return names[-1] if names else ""
