"""`{seq_len:128/512/2048}` in a script's arguments: the lengths that its sequences have in use.

The script is started with the middle one, or with the longest where `--worst-case` asks for it.
"""

from __future__ import annotations

import re

import msgspec

from ...errors import UsageError
from .options import RunOptions

_PLACEHOLDER = re.compile(r"\{seq_len(?P<listed>:[^}]*)?\}")
_NEARLY = re.compile(
    r"\{\s*(seq[-_ ]?(len(gth)?s?)?|max[-_ ]?len(gth)?|lengths?)\s*(:[^}]*)?\}", re.IGNORECASE
)
_HOW = "Write the lengths that come, for example {seq_len:128/512/2048}."


def with_sequence_lengths(options: RunOptions) -> RunOptions:
    """The options with a length in place of the placeholder.

    Raises:
        UsageError: the placeholder is misspelt or names no lengths, or another one names others.
    """
    whole = " ".join(options.arguments)
    places = list(_PLACEHOLDER.finditer(whole))
    near = next((match.group() for match in _NEARLY.finditer(_PLACEHOLDER.sub("", whole))), None)
    if near is not None:
        raise UsageError(f"{near} is not the placeholder for the length of a sequence.", _HOW)
    if not places:
        return options
    lists = {place["listed"] or "" for place in places}
    if len(lists) > 1:
        raise UsageError("two {seq_len} in the script's arguments name other lengths.", _HOW)
    lengths = _lengths(places[0].group(), lists.pop().removeprefix(":"))
    goal = msgspec.structs.replace(options.goal, seq_lens=lengths)
    length = lengths[-1] if goal.worst_case else lengths[(len(lengths) - 1) // 2]
    arguments = tuple(_PLACEHOLDER.sub(str(length), argument) for argument in options.arguments)
    return msgspec.structs.replace(options, goal=goal, arguments=arguments)


def _lengths(placeholder: str, listed: str) -> tuple[int, ...]:
    words = listed.split("/") if listed else []
    if not words or not all(word.strip().isdecimal() and int(word) > 0 for word in words):
        raise UsageError(f"{placeholder} names no lengths.", _HOW)
    return tuple(sorted({int(word) for word in words}))
