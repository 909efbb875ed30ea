"""Finds the line that sets the batch size.

The script's text is followed to the number (finder.py). Where the script reads it from what it was
given, settings files and the command line are looked through (outside.py), and then its defaults.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ...records import BatchSizeSource, SourceLine
from .defaults import default_in_files, option_of_parser
from .finder import finder_at
from .outside import TRAINER_NAMES, Outside, source_outside


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
        files: further files of the user's code, where a setting may have its default.
    """
    outside = Outside(arguments, tuple(settings))
    finder = None if place is None else finder_at(place, batch_size, arguments, tuple(callers))
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
