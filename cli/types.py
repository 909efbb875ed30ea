"""Types of options: durations, bytes, shares, lists of sizes, places."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
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
    """A value with a unit.

    Args:
        name: of its kind, as `--help` shows it.
        parse: makes a number of the text, or raises `ValueError`.
    """

    def __init__(self, name: str, parse: Callable[[str], float]) -> None:
        self.name = name
        self._parse = parse

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not isinstance(value, str):
            return value
        try:
            return self._parse(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


class Sizes(ParamType):
    """`32,64,128`."""

    name = "sizes"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not isinstance(value, str):
            return value
        try:
            sizes = tuple(int(part) for part in value.split(",") if part.strip())
        except ValueError:
            sizes = ()
        if not sizes or min(sizes) < 1:
            self.fail(f"{value!r} is not a list of sizes: write 32,64,128", param, ctx)
        if max(sizes) > LARGEST_SIZE:
            self.fail(f"{max(sizes)} is too large: sizes go up to {LARGEST_SIZE}", param, ctx)
        return sizes


class Range(ParamType):
    """`64:256` or `64:256:8`, both ends included."""

    name = "range"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not isinstance(value, str):
            return value
        try:
            parts = tuple(int(part) for part in value.split(":"))
        except ValueError:
            parts = ()
        if len(parts) == 2:
            parts = (*parts, 1)
        if len(parts) != 3 or min(parts) < 1 or parts[0] > parts[1]:
            self.fail(f"{value!r} is not LOW:HIGH or LOW:HIGH:STEP", param, ctx)
        return parts


class Schedule(ParamType):
    """`wait,warm-up,active`."""

    name = "steps"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        from ..session.setup.options import is_schedule

        if not isinstance(value, str):
            return value
        try:
            steps = tuple(int(part) for part in value.split(","))
        except ValueError:
            steps = ()
        if not is_schedule(steps):
            msg = f"{value!r} is not WAIT,WARMUP,ACTIVE with ACTIVE at least 1, 100 steps at most"
            self.fail(msg, param, ctx)
        return steps


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
SIZES = Sizes()
RANGE = Range()
PATH = click.Path(path_type=Path)
PLACE = Place()
