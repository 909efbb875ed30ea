"""Types of options: durations, bytes, shares, lists of sizes, places."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..units import parse_bytes, parse_seconds, parse_share

if TYPE_CHECKING:
    ParamType = click.ParamType[Any]
else:
    ParamType = click.ParamType  # generic since click 8.2

LARGEST_SIZE = 2**31 - 1
"""No batch is larger: beyond, numbers of samples do not fit into what counts them."""


class Parsed(ParamType):
    """A value that a text is short for.

    Args:
        name: of its kind, as `--help` shows it.
        parse: makes the value of the text, or raises `ValueError`.
    """

    def __init__(self, name: str, parse: Callable[[str], Any]) -> None:
        self.name = name
        self._parse = parse

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not isinstance(value, str):
            return value
        try:
            return self._parse(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


def _sizes(text: str) -> tuple[int, ...]:
    """Reads `32,64,128`.

    Raises:
        ValueError: it is no such list.
    """
    sizes = _numbers(part for part in text.split(",") if part.strip())
    if not sizes or min(sizes) < 1:
        raise ValueError(f"{text!r} is not a list of sizes: write 32,64,128")
    if max(sizes) > LARGEST_SIZE:
        raise ValueError(f"{max(sizes)} is too large: sizes go up to {LARGEST_SIZE}")
    return sizes


def _range(text: str) -> tuple[int, ...]:
    """Reads `64:256` or `64:256:8`, both ends included.

    Raises:
        ValueError: it is no such range.
    """
    parts = _numbers(text.split(":"))
    if len(parts) == 2:
        parts = (*parts, 1)
    if len(parts) != 3 or min(parts) < 1 or parts[0] > parts[1]:
        raise ValueError(f"{text!r} is not LOW:HIGH or LOW:HIGH:STEP")
    return parts


def _schedule(text: str) -> tuple[int, ...]:
    """Reads `wait,warm-up,active`.

    Raises:
        ValueError: it is no such schedule.
    """
    from ..session.setup.options import is_schedule

    steps = _numbers(text.split(","))
    if not is_schedule(steps):
        raise ValueError(
            f"{text!r} is not WAIT,WARMUP,ACTIVE with ACTIVE at least 1, 100 steps at most"
        )
    return steps


def _numbers(parts: Iterable[str]) -> tuple[int, ...]:
    """Whole numbers; none where a part is no such number."""
    try:
        return tuple(map(int, parts))
    except ValueError:
        return ()


class Place(click.Path):
    """A path, there or not; one that cannot even be looked for is refused here."""

    def __init__(self) -> None:
        super().__init__(path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not os.fspath(value):
            self.fail("the name is empty: write the path of a file or a folder", param, ctx)
        path = Path(os.fsdecode(super().convert(value, param, ctx)))
        try:
            with contextlib.suppress(FileNotFoundError, NotADirectoryError):
                path.stat()
        except OSError as error:
            self.fail(f"{path}: {error.strerror or error}", param, ctx)
        return path


def files(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[Any]:
    """Shell completion of what a script is given, and of the script: files."""
    from click.shell_completion import CompletionItem

    del context, parameter
    return [CompletionItem(incomplete, type="file")]


SECONDS = Parsed("duration", parse_seconds)
BYTES = Parsed("bytes", parse_bytes)
SHARE = Parsed("share", parse_share)
SIZE = click.IntRange(1, LARGEST_SIZE)
SIZES = Parsed("sizes", _sizes)
RANGE = Parsed("range", _range)
SCHEDULE = Parsed("steps", _schedule)
PATH = click.Path(path_type=Path)
PLACE = Place()
