"""The one place that converts units, both ways."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from decimal import Decimal
from itertools import groupby

GIB = 1024**3
MIB = 1024**2

_BYTES = re.compile(r"^\s*([0-9]+(?:\.[0-9]+)?)\s*([kmgt]?)(i?)b?\s*$", re.IGNORECASE)
_SECONDS = re.compile(r"^\s*([0-9]+(?:\.[0-9]+)?)\s*(ms|s|m|min|h)?\s*$", re.IGNORECASE)
_PERCENT = re.compile(r"^\s*([0-9]+(?:\.[0-9]+)?)\s*(%?)\s*$")
_POWERS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}
_SMALL_TIMES = ((1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns"))
DAY_H, YEAR_D = 24, 365
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
    >>> format_seconds(9e-9), format_seconds(2.5e-5), format_seconds(0), format_seconds(2e-12)
    ('9 ns', '25 µs', '0 ms', 'below 1 ns')
    >>> format_seconds(0.9997), format_seconds(59.97)  # as they are once rounded
    ('1.0 s', '1 min')
    >>> format_seconds(2e5), format_seconds(1e7), format_seconds(3.5e10)
    ('2 days 8 h', '116 days', '1110 years')
    """
    if seconds <= 0:
        return "0 ms" if seconds == 0 else f"-{format_seconds(-seconds)}"
    if seconds < 0.9995e-9:
        return "below 1 ns"
    if seconds < 0.9995:
        scale, unit = next(pair for pair in _SMALL_TIMES if seconds >= 0.9995 * pair[0])
        return f"{float(f'{seconds / scale:.3g}'):g} {unit}"
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s" if rest else f"{minutes} min"
    hours, minutes = divmod(round(seconds / 60), 60)
    if hours < 2 * DAY_H:
        return f"{hours} h {minutes} min" if minutes else f"{hours} h"
    days, hours = divmod(round(seconds / 3600), DAY_H)
    if days < 10:
        return f"{days} days {hours} h" if hours else f"{days} days"
    days = round(seconds / 3600 / DAY_H)
    return f"{days} days" if days < 2 * YEAR_D else f"{format_count(round(days / YEAR_D))} years"


def format_count(count: int) -> str:
    """A number of things, its digits grouped where there are more than six.

    >>> format_count(50000), format_count(10**10)
    ('50000', '10,000,000,000')
    """
    return f"{count:,}" if abs(count) >= 10**6 else str(count)


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
    >>> format_measured(0.0000213, 0.1)
    '0.000021'
    """
    if value == 0:
        return "0"
    digits = 2 if relative_error > 0.05 else 3 if relative_error > 0.005 else 4
    text = f"{value:.{digits}g}"
    return format(Decimal(text), "f") if "e" in text else text


def format_runs(sizes: Sequence[int]) -> str:
    """Sizes by rank, runs of equal ones counted, digits grouped as in `format_count`.

    >>> format_runs((2, 2, 2, 2, 1, 0, 0, 0)), format_runs((4, 1))
    ('4 x 2, 1, 3 x 0', '4, 1')
    >>> format_runs((10**7, 1))
    '10,000,000, 1'
    """
    words: list[str] = []
    for size, run in groupby(sizes):
        count = len(list(run))
        text = format_count(size)
        words += [f"{count} x {text}"] if count > 2 else [text] * count
    return ", ".join(words)


def format_variables(variables: Mapping[str, str]) -> str:
    """Variables of the environment as a shell takes them.

    >>> format_variables({"A": "1", "B": "x"})
    'A=1 B=x'
    """
    return " ".join(f"{name}={value}" for name, value in variables.items())


def rate_name(*, of_tokens: bool) -> str:
    """Names the quantity that speeds are compared by: real tokens where known, else samples."""
    return f"{'real tokens' if of_tokens else 'samples'} per second"
