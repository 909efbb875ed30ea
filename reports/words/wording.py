"""Words and numbers for people: no more digits than the spread supports, no surprises in text.

Everything that comes from the script (file names, exception texts) goes through `clean` before it
is shown anywhere.
"""

from __future__ import annotations

import re
from math import ceil, floor, log10

from ...records import Advice, Evidence, Spread
from ...units import GIB, MIB, format_bytes, format_count, format_measured, format_seconds

_ESCAPES = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[PX^_][^\x1b]*(?:\x1b\\)?|.?)",
    re.DOTALL,
)
_BREAKS = re.compile(r"\s*[\r\n\v\f\x85\u2028\u2029]+\s*")
_HIDDEN = re.compile(r"[\x00-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")
_PLAIN = {
    "\N{PLUS-MINUS SIGN}": "+-",
    "\N{RIGHTWARDS ARROW}": "->",
    "\N{MULTIPLICATION SIGN}": "x",
    "\N{EN DASH}": "-",
    "\N{EM DASH}": "-",
    "\N{LESS-THAN OR EQUAL TO}": "<=",
    "\N{GREATER-THAN OR EQUAL TO}": ">=",
    "\N{HORIZONTAL ELLIPSIS}": "...",
    "\N{LEFT DOUBLE QUOTATION MARK}": '"',
    "\N{RIGHT DOUBLE QUOTATION MARK}": '"',
    "\N{LEFT SINGLE QUOTATION MARK}": "'",
    "\N{RIGHT SINGLE QUOTATION MARK}": "'",
    "\N{MICRO SIGN}": "u",
    "\N{NO-BREAK SPACE}": " ",
}
PERCENT = " (%)"
"""How the name of a metric ends whose values are percent already."""
_SHARES = re.compile(r"\b(?:share|half-width|marginal gain)\b")
"""Parts of the name of a metric whose values are 0..1."""
MAX_TEXT = 500


def change_text(advice: Advice) -> str:
    """The line to change, and whether the script was seen to take the size from there."""
    if not advice.change or not advice.change_check:
        return advice.change
    return f"{advice.change}   ({advice.change_check})"


def clean(text: str, encoding: str = "utf-8", *, limit: int = MAX_TEXT) -> str:
    r"""One line that any terminal of that encoding shows and none obeys.

    Escape sequences go, line breaks become spaces, other control characters and what the encoding
    cannot hold are written out, very long text is cut.

    >>> clean("a\x1b[31mred\x1b[0m\nb\x07")
    'ared b\\x07'
    >>> clean("16 → 448 ±1 naïve", "ascii")
    '16 -> 448 +-1 na\\xefve'
    """
    text = _BREAKS.sub(" ", _ESCAPES.sub("", text)).replace("\t", " ")
    if len(text) > limit:
        text = text[: limit - 4].rstrip() + " ..."
    text = _HIDDEN.sub(lambda hidden: hidden[0].encode("unicode_escape").decode(), text)
    return for_encoding(text, encoding)


def for_encoding(text: str, encoding: str) -> str:
    """The text in characters that the encoding has.

    >>> for_encoding("±2 → 3", "latin-1")
    '±2 -> 3'
    """
    try:
        text.encode(encoding)
    except (UnicodeEncodeError, LookupError):
        return "".join(_character_for(character, encoding) for character in text)
    return text


def _character_for(char: str, encoding: str) -> str:
    try:
        char.encode(encoding)
    except UnicodeEncodeError:
        return _PLAIN.get(char, char.encode("ascii", "backslashreplace").decode())
    except LookupError:
        return for_encoding(char, "ascii")
    return char


def measured(spread: Spread, factor: float = 1.0) -> tuple[str, str]:
    """A median and half its interval, in the digits that the interval supports.

    One value alone has no interval: two digits and `±?`. The half-width is rounded up, so a small
    one is never shown as zero. Of a wide, one-sided interval both ends stand instead, low to high.

    >>> s = Spread(median=12.3456, low=12.3, high=12.4, num_samples=30, confidence=0.9)
    >>> measured(s), measured(s, 1000)
    (('12.35', '±0.05'), ('12350', '±50'))
    """
    value = spread.median * factor
    if spread.num_samples < 2:
        return format_measured(value, 1.0), "±?"
    if spread.is_skewed:
        low, high = (format_measured(end * factor, 1.0) for end in (spread.low, spread.high))
        return format_measured(value, 1.0), f"{low}–{high}"  # noqa: RUF001  a range
    # Fewer than three values say little about their spread: two digits.
    relative = spread.relative_half_width if spread.num_samples >= 3 else 1.0
    text = pad_digits(value, relative)
    half = (spread.high - spread.low) / 2 * abs(factor)
    decimals = len(text.partition(".")[2])
    quantum = 10.0**-decimals if decimals else 10.0 ** _trailing_zeros(text, half)
    half = ceil(half / quantum - 1e-9) * quantum
    return text, f"±{half:.{decimals}f}"


def beside_value(value: str, interval: str) -> str:
    """What `measured` says, in one text.

    >>> beside_value("12.35", "±0.05"), beside_value("36000", "36000–44000"), beside_value("-", "")
    ('12.35 ±0.05', '36000 (36000–44000)', '-')
    """  # noqa: RUF002  a range
    if not interval:
        return value
    return f"{value} {interval if interval.startswith('±') else f'({interval})'}"


def pad_digits(value: float, relative: float) -> str:
    """`units.format_measured` with the zeros that its digits include.

    >>> pad_digits(12.0, 0.03), pad_digits(12.0, 0.004), pad_digits(1234.5, 0.03)
    ('12.0', '12.00', '1230')
    """
    text = format_measured(value, relative)
    if value == 0:
        return text
    digits = 2 if relative > 0.05 else 3 if relative > 0.005 else 4
    rounded = float(text)
    decimals = max(0, digits - 1 - floor(log10(abs(rounded))))
    return f"{rounded:.{decimals}f}"


def _trailing_zeros(text: str, half: float) -> int:
    """The power of ten in which a whole number is rounded, as far as its spread asks for it."""
    zeros = len(text) - len(text.rstrip("0"))
    return min(zeros, max(0, floor(log10(half)))) if half > 0 else 0


def measured_seconds(spread: Spread) -> str:
    """A duration with its relative spread.

    >>> measured_seconds(Spread(median=83.2, low=82, high=84, num_samples=9, confidence=0.9))
    '1 min 23 s ±1.2%'
    """
    relative = spread.relative_half_width if spread.num_samples >= 3 else 1.0
    if spread.median < 1:
        text = f"{pad_digits(spread.median * 1e3, relative)} ms"
    elif spread.median < 60:
        text = f"{pad_digits(spread.median, relative)} s"
    else:
        text = format_seconds(float(format_measured(spread.median, relative)))
    if spread.num_samples < 2:
        return text
    if spread.is_skewed:
        low, high = (format_seconds(float(f"{end:.2g}")) for end in (spread.low, spread.high))
        return f"{low}–{high}"  # noqa: RUF001  a range
    share = spread.relative_half_width * 100
    return f"{text} ±{share:.0f}%" if share >= 9.5 else f"{text} ±{share:.2g}%"


def percent(value: float) -> str:
    """A percentage without decimals; what is above 0 is not shown as 0.

    >>> percent(99.6), percent(0.2), percent(0)
    ('100', '<1', '0')
    """
    return "<1" if 0 < value < 0.5 else f"{value:.0f}"


def share_of(part: float, whole: float) -> str:
    """Part of the whole in percent, `-` without a whole."""
    return percent(100 * part / whole) if whole > 0 else "-"


def number(value: float) -> str:
    """A plain number, at most four digits of a fraction significant.

    >>> number(0.012345), number(448.0), number(12345), number(277777778)
    ('0.01235', '448', '12345', '277,777,778')
    """
    if float(value).is_integer() or abs(value) >= 1e4:
        return format_count(round(value))
    return f"{value:.4g}"


def bytes_per_sample(num_bytes: float) -> str:
    """Bytes in three digits, for slopes.

    >>> bytes_per_sample(1793065), bytes_per_sample(900)
    ('1.71 MiB', '900 B')
    """
    for size, unit in ((GIB, "GiB"), (MIB, "MiB"), (1024, "KiB")):
        if num_bytes >= size:
            return f"{pad_digits(num_bytes / size, 0.01)} {unit}"
    return f"{num_bytes:.0f} B"


def evidence_text(evidence: tuple[Evidence, ...], message: str = "") -> str:
    """The numbers behind a finding, in one line, without those that its message says.

    >>> share = Evidence(metric="share of the step", value=0.2412, threshold=0.15)
    >>> busy = Evidence(metric="device busy (%)", value=93.1, threshold=70)
    >>> evidence_text((share, busy))
    'share of the step 24.1% (threshold 15%); device busy 93.1% (threshold 70%)'
    """
    return "; ".join(
        f"{name} {value}{f' (threshold {threshold})' if threshold else ''}"
        for name, value, threshold in evidence_rows(evidence, message)
    )


def evidence_rows(evidence: tuple[Evidence, ...], message: str = "") -> list[tuple[str, str, str]]:
    """Returns what was measured, its value, and the threshold, which may be empty."""
    return [
        (
            item.metric.removesuffix(PERCENT),
            _value(item.metric, item.value),
            "" if item.threshold is None else _value(item.metric, item.threshold),
        )
        for item in evidence
        if item.threshold is not None
        or not re.search(rf"(?<!\w){re.escape(_value(item.metric, item.value))}(?!\w)", message)
    ]


def _value(metric: str, value: float | str) -> str:
    """Words a value in the unit of its metric's name; shares are percent, as in every message."""
    if isinstance(value, str):
        return value
    if metric.endswith("_bytes"):
        return format_bytes(value)
    if metric.endswith(PERCENT):
        return f"{value:.3g}%"
    return f"{100 * value:.3g}%" if _SHARES.search(metric) else number(value)


def plural(count: int, noun: str, many: str = "") -> str:
    """A count and its noun.

    >>> plural(1, "size"), plural(3, "process", "processes"), plural(10**7, "sample")
    ('1 size', '3 processes', '10,000,000 samples')
    """
    return f"{count} {noun}" if count == 1 else f"{format_count(count)} {many or noun + 's'}"


def why_unknown(advice: Advice, field: str, otherwise: str = "the record does not say why") -> str:
    """The reason that the advice gives for a field that it lacks, else the other words."""
    return advice.unavailable.get(field, otherwise)
