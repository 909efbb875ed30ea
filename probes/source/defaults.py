"""Where a setting that nobody gave has its default: in other files, in a trainer's options."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from ...records import BatchSizeSource, OtherPlace, SourceLine
from .outside import TRAINER_NAMES, Chain
from .script_text import ScriptText, target_name

_PARSERS = ("HfArgumentParser", "TrlParser")
"""They make an option of every field of TrainingArguments."""


def default_in_files(
    files: Sequence[str], chains: Sequence[Chain], size: int | None
) -> BatchSizeSource | None:
    """A field, a variable or an entry of that name with this very size; the first of several.

    Args:
        files: of the user's code.
        chains: how the script reads the setting.
    """
    texts = [
        (file, text)
        for file in files
        if (text := ScriptText.of(SourceLine(file=file, line=1))) is not None
    ]
    for name in dict.fromkeys(chain[-1] for chain in chains):
        places = [
            (SourceLine(file=file, line=value.lineno), text.marked(value, holder, name))
            for file, text in texts
            for value, holder in text.bindings(name)
            if isinstance(value, ast.Constant)
            and type(value.value) is int
            and value.value == size
            and not isinstance(holder, ast.keyword)  # of a call that may make another loader
        ]
        if places and size is not None:
            place, (before, template) = places[0]
            others = tuple(OtherPlace(place=other, number=size) for other, _ in places[1:])
            return BatchSizeSource(place=place, before=before, template=template, others=others)
    return None


def option_of_parser(place: SourceLine) -> BatchSizeSource | None:
    """The option that a parser of dataclasses makes of a trainer's size, left at its default."""
    text = ScriptText.of(place)
    flag = f"--{TRAINER_NAMES[0][0]}"
    for node in ast.walk(text.tree) if text is not None else ():
        if isinstance(node, ast.Call) and target_name(node.func) in _PARSERS:
            line = SourceLine(file=place.file, line=node.lineno)
            return BatchSizeSource(place=line, before=flag, template=f"{flag} {{}}", option=flag)
    return None
