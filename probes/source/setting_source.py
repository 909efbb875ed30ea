"""Finds the line that sets another bound of the batches than a number of samples.

The script's text is looked through, then what it was given from outside, then its other files.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from ...records import BatchSizeSource, SourceLine
from .defaults import default_in_files
from .finder import Finder
from .outside import Outside, numbers_outside, source_outside
from .script_options import declared_options
from .script_text import ScriptText, target_name


def find_setting_source(
    names: str | re.Pattern[str],
    values: tuple[int, int],
    places: Sequence[SourceLine],
    arguments: tuple[str, ...] = (),
    made_by: str = "",
    *,
    settings: Sequence[tuple[Path, str]] = (),
    files: Sequence[str] = (),
) -> tuple[BatchSizeSource, str, int] | None:
    """Where a setting is written, what it is called and its value there.

    Args:
        names: its name, or what its name looks like.
        values: the least and the largest that it may be.
        places: the line on which the loader is made, and those from which that one was reached.
        arguments: the script's command line, where an option may set it.
        made_by: the class that takes it as an argument, perhaps without its name.
        settings: the settings files that the script has opened, see outside.py.
        files: further files of the user's code, where the setting may have its default.
    """
    outside = Outside(arguments, tuple(settings))
    for place in {place.file: place for place in reversed(places)}.values():
        script = ScriptText.of(place)
        if script is None:
            continue
        for name in (names,) if isinstance(names, str) else _names(script, names):
            for value in _values(script, name, values, arguments):
                finder = Finder(script, place, value, arguments, setting=name)
                source = _source(finder, script, name, made_by)
                if source is None:
                    continue
                if not source.before.startswith("-"):  # typed on the command line: the last word
                    source = source_outside(outside, ((name,),), value, place, source) or source
                return source, name, value
    return _given(names, values, outside, places) or _defaulted(names, values, files)


def _given(
    names: str | re.Pattern[str],
    values: tuple[int, int],
    outside: Outside,
    places: Sequence[SourceLine],
) -> tuple[BatchSizeSource, str, int] | None:
    """In a settings file or among the words typed."""
    place = next(iter(places), None)
    for name, value in numbers_outside(outside):
        if values[0] <= value <= values[1] and _is_named(name, names):
            source = source_outside(outside, ((name,),), value, place, None)
            if source is not None and source.template:
                return source, name, value
    return None


def _defaulted(
    names: str | re.Pattern[str], values: tuple[int, int], files: Sequence[str]
) -> tuple[BatchSizeSource, str, int] | None:
    """A field or a variable in another file of the user's."""
    for file in files:
        script = ScriptText.of(SourceLine(file=file, line=1))
        if script is None:
            continue
        for name in (names,) if isinstance(names, str) else _names(script, names):
            for value in _values(script, name, values, ()):
                source = default_in_files((file,), ((name,),), value)
                if source is not None:
                    return source, name, value
    return None


def _is_named(name: str, names: str | re.Pattern[str]) -> bool:
    return name == names if isinstance(names, str) else bool(names.search(name))


def _source(finder: Finder, script: ScriptText, name: str, made_by: str) -> BatchSizeSource | None:
    """An option, a binding of the name, or a number among the arguments of a class."""
    option = finder.option(name)
    if option is not None:
        return option
    for node, holder in script.bindings(name):
        source = finder.behind(node, holder)
        if source is not None and source.template:
            return source
    for call in ast.walk(script.tree):
        if isinstance(call, ast.Call) and target_name(call.func) == made_by:
            for argument in call.args:
                source = finder.behind(argument, call)
                if source is not None and source.template:
                    return source
    return None


def _names(script: ScriptText, pattern: re.Pattern[str]) -> Iterator[str]:
    """Names in the script that a setting of this kind may have, each once."""
    met: dict[str, None] = {}
    for node in ast.walk(script.tree):
        if isinstance(node, ast.Name):
            met[node.id] = None
        elif isinstance(node, (ast.Attribute, ast.keyword, ast.arg)):
            met[node.attr if isinstance(node, ast.Attribute) else node.arg or ""] = None
        elif isinstance(node, ast.Constant) and str(node.value).isidentifier():
            met[str(node.value)] = None
    return (name for name in met if pattern.search(name.lower()))


def _values(
    script: ScriptText, name: str, values: tuple[int, int], arguments: tuple[str, ...]
) -> Iterator[int]:
    """Whole numbers within the bounds that the script may give to it."""
    least, largest = values
    if least == largest:
        yield least
        return
    numbers = {
        node.value
        for node in ast.walk(script.tree)
        if isinstance(node, ast.Constant) and type(node.value) is int
    }
    words = [word for argument in arguments for word in argument.split("=")]
    numbers |= {int(word) for word in words if word.isdecimal()}
    is_option = any(declared.fills(name) for declared in declared_options(script.tree))
    bound = {
        node.value
        for node, _ in script.bindings(name)
        if isinstance(node, ast.Constant) and type(node.value) is int
    }
    yield from sorted(
        number for number in (numbers if is_option else bound) if least <= number <= largest
    )
