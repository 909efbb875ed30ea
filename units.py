"""The one place that converts units, both ways."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import groupby

GIB = 1024**3
MIB = 1024**2

_BYTES = re.compile(r"^\s*([0-9]+(?:\.[0-9]+)?)\s*([kmgt]?)(i?)b?\s*$", re.IGNORECASE)
_SECONDS = re.compile(r"^\s*([0-9]+(?:\.[0-9]+)?)\s*(ms|s|m|min|h)?\s*$", re.IGNORECASE)
_PERCENT = re.compile(r"^\s*([0-9]+(?:\.[0-9]+)?)\s*(%?)\s*$")
_POWERS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}
_SCALES = {"ms": 1e-3, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}


def parse_bytes(text: str) -> int:
    """Bytes from `1.5GiB`, `8GB`, `700M`; KiB is 1024, KB and K are 1000.

    >>> parse_bytes("1.5GiB"), parse_bytes("8 GB"), parse_bytes("512")
    (1610612736, 8000000000, 512)

    Raises:
        ValueError: the text is no size.
    """
    match = _BYTES.match(text)
    if match is None:
        msg = f"{text!r} is not a size in bytes: write 8GiB or 700MB"
        raise ValueError(msg)
    number, power, binary = match.groups()
    return int(float(number) * (1024 if binary else 1000) ** _POWERS[power.lower()])


def parse_seconds(text: str) -> float:
    """Seconds from `90`, `120s`, `2m`, `1.5h`.

    >>> parse_seconds("120s"), parse_seconds("2m"), parse_seconds("90")
    (120.0, 120.0, 90.0)

    Raises:
        ValueError: the text is no duration.
    """
    match = _SECONDS.match(text)
    if match is None:
        msg = f"{text!r} is not a duration: write 90s, 2m or 1.5h"
        raise ValueError(msg)
    return float(match.group(1)) * _SCALES[(match.group(2) or "s").lower()]


def parse_share(text: str) -> float:
    """A share 0..1 from `5%` or `0.05`.

    >>> parse_share("5%"), parse_share("0.05")
    (0.05, 0.05)

    Raises:
        ValueError: the text is no share below 1.
    """
    match = _PERCENT.match(text)
    share = float(match.group(1)) / (100 if match.group(2) else 1) if match else 2.0
    if not 0 <= share < 1:
        msg = f"{text!r} is not a share: write 5% or 0.05"
        raise ValueError(msg)
    return share


def format_bytes(num_bytes: float) -> str:
    """Bytes for people, in binary units.

    >>> format_bytes(1610612736), format_bytes(734003200), format_bytes(900)
    ('1.50 GiB', '700 MiB', '900 B')
    """
    if num_bytes >= GIB:
        return f"{num_bytes / GIB:.2f} GiB"
    if num_bytes >= MIB:
        return f"{num_bytes / MIB:.0f} MiB"
    return f"{num_bytes / 1024:.0f} KiB" if num_bytes >= 1024 else f"{num_bytes:.0f} B"


def format_seconds(seconds: float) -> str:
    """A duration for people.

    >>> format_seconds(0.0123), format_seconds(4.2), format_seconds(75), format_seconds(9000)
    ('12.3 ms', '4.2 s', '1 min 15 s', '2 h 30 min')
    >>> format_seconds(0.9997), format_seconds(59.97)  # as they are once rounded
    ('1.0 s', '1 min')
    >>> format_seconds(300_000), format_seconds(3.5e10)
    ('3.5 days', '1109 years')
    """
    if seconds < 0.9995:
        return f"{seconds * 1e3:.3g} ms"
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s" if rest else f"{minutes} min"
    hours, minutes = divmod(round(seconds / 60), 60)
    if hours >= 72:
        days = hours / 24 + minutes / 1440
        return f"{days:.1f} days" if days < 1000 else f"{format_count(round(days / 365.25))} years"
    return f"{hours} h {minutes} min" if minutes else f"{hours} h"


def format_count(count: int) -> str:
    """A count, its digits in groups of three where they are too many to be read at once.

    >>> format_count(50000), format_count(10_000_000_000)
    ('50000', '10,000,000,000')
    """
    return str(count) if count < 10_000_000 else f"{count:,}"


def format_share(share: float) -> str:
    """A share that somebody chose, in percent, with all its digits up to four.

    >>> format_share(0.05), format_share(0.005), format_share(0.125), format_share(1 - 0.001)
    ('5%', '0.5%', '12.5%', '99.9%')
    """
    return f"{100 * share:.4g}%"


def format_measured(value: float, relative_error: float) -> str:
    """A value with no more digits than its spread supports, at least two.

    >>> format_measured(1234.56, 0.03), format_measured(12.3456, 0.004), format_measured(3.2, 0.5)
    ('1230', '12.35', '3.2')
    """
    if value == 0:
        return "0"
    digits = 2 if relative_error > 0.05 else 3 if relative_error > 0.005 else 4
    text = f"{value:.{digits}g}"
    return f"{float(text):.0f}" if "e" in text else text


def format_runs(sizes: Sequence[int]) -> str:
    """Sizes by rank, runs of equal ones counted.

    >>> format_runs((2, 2, 2, 2, 1, 0, 0, 0)), format_runs((4, 1))
    ('4 x 2, 1, 3 x 0', '4, 1')
    """
    words: list[str] = []
    for size, run in groupby(sizes):
        count = len(list(run))
        words += [f"{count} x {size}"] if count > 2 else [str(size)] * count
    return ", ".join(words)
