"""Numbers of a configuration that have to follow the batch size.

DeepSpeed wants micro-batch x accumulation x ranks = train_batch_size. A dataset that shares its
samples out by itself is told the batch size as well.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from ...records import BatchSizeSource, Following, SourceLine
from .script_text import ScriptText, target_name
from .settings_files import numbers_of

MICRO, WHOLE = "train_micro_batch_size_per_gpu", "train_batch_size"


def find_whole(
    size: int, micro_batches: int, settings: Sequence[tuple[Path, str]], files: Sequence[str]
) -> Following | None:
    """DeepSpeed's `train_batch_size` beside a micro-batch of this size; `None` without both.

    Args:
        micro_batches: for an optimizer step.
        settings: the settings files that the script has opened, see outside.py.
        files: of the user's code.
    """
    places = (*_in_settings(size, settings), *_in_files(size, files))
    fitting = [place for place in places if place.number % (size * micro_batches) == 0]
    return fitting[0] if fitting else None


class Told(NamedTuple):
    """The batch size that a dataset was told, and the names of its class and those above it."""

    size: int | None
    names: tuple[str, ...]

    @classmethod
    def of(cls, dataset: object) -> Told:
        """Describes a data set, with its attribute `batch_size` where that is a number."""
        size = getattr(dataset, "batch_size", None)
        names = tuple(base.__name__ for base in type(dataset).__mro__)
        return cls(size if type(size) is int else None, names)


def find_dataset_size(told: Told | None, size: int, files: Sequence[str]) -> Following | None:
    """The `batch_size` that a dataset was made with, where it is the loader's; else `None`."""
    if told is None or told.size != size:
        return None
    name = f"{told.names[0]}(batch_size=)"
    for file in files:
        text = ScriptText.of(SourceLine(file=file, line=1))
        for call in [] if text is None else ast.walk(text.tree):
            if isinstance(call, ast.Call) and target_name(call.func) in told.names:
                for keyword in call.keywords:
                    if keyword.arg == "batch_size" and text is not None:
                        source = _source(text, file, keyword, size)
                        return Following(name=name, number=size, source=source)
    return Following(name=name, number=size)


def _source(text: ScriptText, file: str, keyword: ast.keyword, size: int) -> BatchSizeSource:
    """Without a template where the size is a name: the line that sets it may change both."""
    value, place = keyword.value, SourceLine(file=file, line=keyword.value.lineno)
    if not isinstance(value, ast.Constant) or value.value != size:
        return BatchSizeSource(place=place, before=text.segment(keyword))
    before, template = text.marked(value, keyword)
    return BatchSizeSource(place=place, before=before, template=template)


def _in_settings(size: int, settings: Sequence[tuple[Path, str]]) -> Iterator[Following]:
    for file, shown in settings:
        entries = numbers_of(file, shown)
        for whole in entries:
            beside = (*whole.path[:-1], MICRO)
            if whole.name == WHOLE and any(
                entry.path == beside and entry.value == size for entry in entries
            ):
                source = BatchSizeSource(
                    place=whole.place, before=whole.before, template=whole.template
                )
                yield Following(name=WHOLE, number=whole.value, source=source)


def _in_files(size: int, files: Sequence[str]) -> Iterator[Following]:
    for file in files:
        text = ScriptText.of(SourceLine(file=file, line=1))
        if text is None or MICRO not in text.text:
            continue
        micro = [value for value, _ in text.bindings(MICRO)]
        numbers = [value.value for value in micro if isinstance(value, ast.Constant)]
        if numbers and size not in numbers:
            continue
        for value, holder in text.bindings(WHOLE):
            if isinstance(value, ast.Constant) and type(value.value) is int:
                before, template = text.marked(value, holder, WHOLE)
                place = SourceLine(file=file, line=value.lineno)
                source = BatchSizeSource(place=place, before=before, template=template)
                yield Following(name=WHOLE, number=value.value, source=source)
