"""Reads conditions: `step_time>+5%`."""

from __future__ import annotations

import re
from math import isfinite
from typing import get_args

from ...errors import UsageError
from .records import Condition, Measure

EXAMPLE_CONDITION = "step_time>+5%"
_CONDITION = re.compile(r"(?P<measure>[\w.-]*)(?P<sign><=|>=|<|>|=+)?(?P<limit>.*)")
_LIMIT = re.compile(r"[+-]\d+(?:\.\d+)?%")


def condition_of(text: str) -> Condition:
    """The condition that a text states.

    Raises:
        UsageError: an unknown measure, no `<` or `>`, or a limit without its sign or its unit.

    >>> condition_of("throughput < -5%").limit
    -0.05
    """
    words = "".join(text.split())
    parts = _CONDITION.fullmatch(words)
    assert parts is not None  # every part may be empty
    measure, sign, limit = parts["measure"], parts["sign"], parts["limit"]
    if measure not in get_args(Measure):
        what = f"{measure!r} is no measure" if measure else "it names no measure"
        raise _wrong(text, what, f"Use one of {', '.join(get_args(Measure))}.")
    if sign not in ("<", ">"):
        raise _wrong(text, "between measure and limit stands < or >", f"Write {EXAMPLE_CONDITION}.")
    if not _LIMIT.fullmatch(limit):
        raise _wrong(text, _what_lacks(limit), f"Write {measure}{sign}{_mended(limit)}.")
    share = float(limit.rstrip("%")) / 100
    if share <= -1:
        raise _wrong(text, "nothing shrinks by all of it or more", f"Write {EXAMPLE_CONDITION}.")
    return Condition(text=words, measure=_measure(measure), above=sign == ">", limit=share)


def _measure(name: str) -> Measure:
    return next(each for each in get_args(Measure) if each == name)


def _wrong(text: str, why: str, remedy: str) -> UsageError:
    return UsageError(f"--fail-if {text!r}: {why}.", remedy)


def _what_lacks(limit: str) -> str:
    number = _number(limit.strip("%"))
    if number is None:
        return f"{limit!r} is no change in percent" if limit else "it lacks its limit"
    if not limit.endswith("%"):
        return f"the limit {limit} lacks its unit, %"
    return f"the limit {limit} lacks its sign: + is more, - is less"


def _mended(limit: str) -> str:
    number = _number(limit.strip("%"))
    return "+5%" if number is None else f"{number:+g}%"


def _number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if isfinite(number) else None
