"""Numbers in the settings files that the script opened: YAML, JSON, TOML and INI, by line. Pure.

Only what is written as a number counts, and `${a.b}` that stands for one of the same file.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from ...records import SourceLine
from .script_text import LONGEST_TEXT

SETTINGS_SUFFIXES = (".yaml", ".yml", ".json", ".jsonc", ".toml", ".ini", ".cfg")
LARGEST_SETTINGS_BYTES = 1 << 18
"""Larger files hold data or a tokenizer, no settings."""
MOST_LEVELS = 12
_REFERENCE = re.compile(r"\$\{\.*([\w.]+)\}")
_SECTION = re.compile(r"\s*\[\[?\s*([\w.\-\"']+)\s*\]\]?\s*([#;].*)?")
_NUMBERED = re.compile(r"(?P<key>[\w.\-\"']+)(?P<equals>\s*[=:]\s*)(?P<number>[0-9_]+)\b(?!\.)")


class Entry(NamedTuple):
    """One number of a settings file.

    Attributes:
        path: its keys, the outermost first; steps of lists are left out.
        before: the text that sets it.
        template: the same with `{}` for the number.
    """

    place: SourceLine
    path: tuple[str, ...]
    value: int
    before: str
    template: str

    @property
    def name(self) -> str:
        """Its own key."""
        return self.path[-1]


def is_settings_file(path: str) -> bool:
    """Whether a file may hold settings, by its name."""
    return path.lower().endswith(SETTINGS_SUFFIXES)


def numbers_of(file: Path, shown: str) -> list[Entry]:
    """The numbers in a file, in its order; none where it cannot be read.

    Args:
        shown: the path as a person would type it.
    """
    try:
        if file.stat().st_size > LARGEST_SETTINGS_BYTES:
            return []
        text = file.read_text(encoding="utf-8")
    except (OSError, ValueError):
        return []
    if file.suffix.lower() in (".toml", ".ini", ".cfg"):
        return list(_by_line(text, shown))
    return list(_of_yaml(text, shown))


def _of_yaml(text: str, shown: str) -> Iterator[Entry]:
    """JSON too: it is YAML, but for its tabs."""
    import yaml

    text = text.replace("\t", " ")
    lines = text.splitlines()
    with contextlib.suppress(yaml.YAMLError, RecursionError):
        for document in yaml.compose_all(text, Loader=yaml.SafeLoader):
            pairs = list(_pairs(document, ()))
            numbers = {path: value for path, _, value in pairs if _number(value) is not None}
            for path, key, written in pairs:
                value = numbers.get(_referred(written), written)
                number = _number(value)
                if number is not None:
                    yield _entry(lines, shown, path, (key, value), number)


def _pairs(node: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any, Any]]:
    """Every key and scalar value below a node of YAML, with the keys that lead there."""
    if len(path) > MOST_LEVELS:
        return
    if node is None or node.id == "scalar":
        return
    if node.id == "sequence":
        for element in node.value:
            yield from _pairs(element, path)
        return
    for key, value in node.value:
        merged = key.tag == "tag:yaml.org,2002:merge"
        inner = path if merged else (*path, str(key.value))
        if value.id == "scalar":
            yield inner, key, value
        else:
            yield from _pairs(value, inner)


def _number(node: Any) -> int | None:
    if node.tag != "tag:yaml.org,2002:int":
        return None
    with contextlib.suppress(ValueError):
        return int(node.value)
    return None


def _referred(node: Any) -> tuple[str, ...]:
    """The keys that `${a.b}` names; empty for what is no such reference."""
    match = _REFERENCE.fullmatch(str(node.value))
    return tuple(match[1].split(".")) if match is not None else ()


def _entry(
    lines: list[str], shown: str, path: tuple[str, ...], pair: tuple[Any, Any], number: int
) -> Entry:
    key, value = pair
    row, column = value.start_mark.line, value.start_mark.column
    ahead = f"{path[-1]}: "
    if key.start_mark.line == row and key.start_mark.column < column:
        ahead = lines[row][key.start_mark.column : column]
    written = lines[row][column : value.end_mark.column]  # with the anchor before it, `&size 16`
    anchor = written.removesuffix(value.value)
    return _made(shown, row + 1, path, number, (ahead + anchor, value.value))


def _by_line(text: str, shown: str) -> Iterator[Entry]:
    """TOML and INI: `[table]`, `key = 16`, `key: 16`, `a.key = 16` and `a = { key = 16 }`."""
    section: tuple[str, ...] = ()
    for row, line in enumerate(text.splitlines(), 1):
        header = _SECTION.fullmatch(line)
        if header is not None:
            section = _keys(header[1])
            continue
        outer, opened, inner = re.split("[#;]", line)[0].partition("{")
        around = _keys(outer.partition("=")[0].strip()) if opened else ()
        for match in _NUMBERED.finditer(inner if opened else outer):
            path = (*section, *around, *_keys(match["key"]))
            number = int(match["number"].replace("_", "") or 0)
            ahead = f"{match['key']}{match['equals']}"
            yield _made(shown, row, path, number, (ahead, match["number"]))


def _keys(dotted: str) -> tuple[str, ...]:
    return tuple(part.strip("\"' ") for part in dotted.split("."))


def _made(
    shown: str, row: int, path: tuple[str, ...], number: int, parts: tuple[str, str]
) -> Entry:
    ahead, written = parts
    if len(ahead) > LONGEST_TEXT:
        ahead = f"{path[-1]}: "
    return Entry(
        place=SourceLine(file=shown, line=row),
        path=path,
        value=number,
        before=f"{ahead}{written}",
        template=ahead.replace("{", "{{").replace("}", "}}") + "{}",
    )
