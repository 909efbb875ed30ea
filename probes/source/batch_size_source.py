"""Finds the lines that set the batch size, and how many micro-batches an optimizer step takes.

The script's text is followed to the number (finder.py). Where the script reads it from what it was
given, settings files and the command line are looked through (outside.py), and then its defaults.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from pathlib import Path

from ...records import BatchSizeSource, SourceLine
from .defaults import default_in_files, option_of_parser
from .finder import finder_at
from .outside import TRAINER_NAMES, Outside, source_outside
from .script_options import declared_options
from .script_text import ScriptText

ACCUMULATION_NAMES = (
    "gradient_accumulation_steps",
    "accumulate_grad_batches",
    "grad_accumulation_steps",
    "grad_accum_steps",
    "gradient_accumulation_iters",
    "accumulation_steps",
    "accum_steps",
    "accum_iter",
    "grad_accum",
    "accumulate",
)
"""Names that trainers and scripts give the number of accumulated batches."""


def find_batch_size_source(
    place: SourceLine | None,
    batch_size: int | None,
    arguments: tuple[str, ...] = (),
    callers: Sequence[SourceLine] = (),
    *,
    settings: Sequence[tuple[Path, str]] = (),
    files: Sequence[str] = (),
) -> BatchSizeSource | None:
    """Where the size of the loader made at `place` is written.

    Args:
        place: the line on which the loader is made; `None` where none of the user's led there.
        batch_size: the size that it was made with.
        arguments: the script's command line, where an option may set it.
        callers: the lines from which that one was reached, the nearest first; without them the
            calls in its file are looked through.
        settings: the settings files that the script has opened, see outside.py.
        files: further files of the user's code, where a setting may have its default, or where a
            function that takes the size may be called.
    """
    outside = Outside(arguments, tuple(settings))
    finder = (
        None
        if place is None
        else finder_at(place, batch_size, arguments, tuple(callers), tuple(files))
    )
    if finder is None:
        return source_outside(outside, TRAINER_NAMES, batch_size, place, None)
    source = finder.find()
    if source is not None and source.before.startswith("-") and _holds(source, batch_size):
        return source  # typed on the command line: the last word
    chains = tuple(dict.fromkeys(finder.chains))
    source = source_outside(outside, chains, batch_size, place, source)
    if source is None or not source.template:
        trainers = TRAINER_NAMES[0] in chains
        named = TRAINER_NAMES[:-1] if trainers else chains  # the last one is anybody's
        fallback = option_of_parser(place) if place is not None and trainers else None
        return default_in_files(files, named, batch_size) or source or fallback
    return source


def _holds(source: BatchSizeSource, size: int | None) -> bool:
    """Whether the text of the place has this very number."""
    return bool(source.template) and source.template.format(size) == source.before


def find_accumulation_source(
    micro_batches: int,
    arguments: tuple[str, ...] = (),
    settings: Sequence[tuple[Path, str]] = (),
    files: Sequence[str] = (),
) -> BatchSizeSource | None:
    """A place with one of the usual names and this very number; `None` where there is none.

    Args:
        micro_batches: for an optimizer step, as counted in the running loop.
        arguments: the script's command line.
        settings: the settings files that it has opened, see outside.py.
        files: of the user's code.
    """
    names = [(name,) for name in ACCUMULATION_NAMES]
    outside = Outside(arguments, tuple(settings))
    source = source_outside(outside, names, micro_batches, None, None)
    if source is not None and source.template:
        return source
    for file in files:
        text = ScriptText.of(SourceLine(file=file, line=1))
        if text is None:
            continue
        written = text.text.replace("-", "_")  # as options spell it; most scripts have none
        for name in ACCUMULATION_NAMES:
            source = _in_text(text, file, name, micro_batches) if name in written else None
            if source is not None:
                return source
    return None


def _in_text(text: ScriptText, file: str, name: str, number: int) -> BatchSizeSource | None:
    """The default of an option, or a binding of the name."""
    places: list[tuple[ast.expr, ast.AST, str | None]] = [
        (declared.default.value, declared.default, max(declared.flags, key=len))
        for declared in declared_options(text.tree)
        if declared.default is not None and declared.fills(name)
    ]
    places += [(value, holder, None) for value, holder in text.bindings(name)]
    for value, holder, option in places:
        if isinstance(value, ast.Constant) and type(value.value) is int and value.value == number:
            before, template = text.marked(value, holder, name)
            place = SourceLine(file=file, line=value.lineno)
            return BatchSizeSource(place=place, before=before, template=template, option=option)
    return None
