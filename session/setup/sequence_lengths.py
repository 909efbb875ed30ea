"""`{seq_len:128/512/2048}` in a script's arguments: the lengths that its sequences have in use.

The script is started with the middle one, or with the longest where `--worst-case` asks for it.
Braces that the script is to have itself are typed twice: `{{length}}`.
"""

from __future__ import annotations

import re

import msgspec

from ...errors import UsageError
from .options import RunOptions

_PLACEHOLDER = re.compile(r"\{seq_len(?P<listed>:[^}]*)?\}")
_NAMES = r"\{\s*(?:seq[-_ ]?(?:len(?:gth)?s?)?|max[-_ ]?len(?:gth)?|lengths?)\s*(?::[^}]*)?\}"
_NEARLY = re.compile(_NAMES, re.IGNORECASE)
_OF_THE_SCRIPT = re.compile(rf"\{{(?P<literal>{_NAMES})\}}", re.IGNORECASE)
_HOW = "Write the lengths that come, for example {seq_len:128/512/2048}."


def with_sequence_lengths(options: RunOptions) -> RunOptions:
    """The options with a length in place of the placeholder.

    Raises:
        UsageError: the placeholder is misspelt or names no lengths, or another one names others.
    """
    whole = _OF_THE_SCRIPT.sub("", " ".join(options.arguments))
    places = list(_PLACEHOLDER.finditer(whole))
    near = next((match.group() for match in _NEARLY.finditer(_PLACEHOLDER.sub("", whole))), None)
    if near is not None:
        raise UsageError(f"{near} is not the placeholder for the length of a sequence.", _how(near))
    if not places:
        return msgspec.structs.replace(options, arguments=_filled(options.arguments, ""))
    lists = {place["listed"] or "" for place in places}
    if len(lists) > 1:
        raise UsageError("two {seq_len} in the script's arguments name other lengths.", _HOW)
    lengths = _lengths(places[0].group(), lists.pop().removeprefix(":"))
    goal = msgspec.structs.replace(options.goal, seq_lens=lengths)
    length = lengths[-1] if goal.worst_case else lengths[(len(lengths) - 1) // 2]
    return msgspec.structs.replace(
        options, goal=goal, arguments=_filled(options.arguments, str(length))
    )


def _how(typed: str) -> str:
    """Says how to write lengths, also where the script itself reads braces."""
    return f"{_HOW} If the script itself is to get {typed}, type {{{typed}}}."


def _filled(arguments: tuple[str, ...], length: str) -> tuple[str, ...]:
    """Puts the length in place of the placeholder, and one pair of braces where two were typed."""
    both = re.compile(f"{_OF_THE_SCRIPT.pattern}|{_PLACEHOLDER.pattern}", re.IGNORECASE)
    return tuple(
        both.sub(lambda match: match["literal"] or length, argument) for argument in arguments
    )


def _lengths(placeholder: str, listed: str) -> tuple[int, ...]:
    words = listed.split("/") if listed else []
    if not words or not all(word.strip().isdecimal() and int(word) > 0 for word in words):
        raise UsageError(f"{placeholder} names no lengths.", _how(placeholder))
    return tuple(sorted({int(word) for word in words}))
