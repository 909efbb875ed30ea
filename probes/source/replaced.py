"""The user's source compiled with another number in one place; the file stays as it is.

The syntax tree takes the number, not the text: lines and columns stay those of the file, so that
tracebacks and `inspect` show it as it is.
"""

from __future__ import annotations

import ast
import builtins
import io
import os
import pathlib
import re
from collections.abc import Callable, Sequence
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType
from typing import Any

import msgspec

from ...records import BatchSizeSource, SourceLine


class Replacement(msgspec.Struct, frozen=True, kw_only=True):
    """A number that takes the place of an expression in a file of the user's code.

    Attributes:
        file: its path.
        line, column, end_line, end_column: of the expression, as the syntax tree counts: columns
            are bytes.
        number: what stands there instead.
    """

    file: str
    line: int
    column: int
    end_line: int
    end_column: int
    number: int

    def with_number(self, number: int) -> Replacement:
        """Another number in the same place."""
        return msgspec.structs.replace(self, number=number)


def replacement_of(file: str, node: ast.expr, number: int) -> Replacement:
    """A number in place of an expression of a file."""
    return Replacement(
        file=os.path.abspath(file),  # noqa: PTH100  links stay as the user named them
        line=node.lineno,
        column=node.col_offset,
        end_line=node.end_lineno or node.lineno,
        end_column=node.end_col_offset or node.col_offset,
        number=number,
    )


def replacement_at(source: BatchSizeSource, own: int, number: int) -> Replacement | None:
    """A number in place of the script's own where `source` found it.

    `None` where its place is no number in a Python file, or its line does not tell which one.
    """
    place = source.place
    written = " ".join(source.template.format(own).split())
    if place is None or not source.template or written != source.before:
        return None
    try:
        text = Path(place.file).read_bytes().decode("utf-8-sig")
        tree = ast.parse(text)
    except (OSError, SyntaxError, ValueError):
        return None
    numbers = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant)
        and type(node.value) is int
        and node.value == own
        and node.lineno == place.line
    ]
    if len(numbers) > 1:
        line = text.split("\n")[place.line - 1]
        columns = _columns(line, source, own)
        numbers = [node for node in numbers if node.col_offset in columns]
    return replacement_of(place.file, numbers[0], number) if len(numbers) == 1 else None


def replacement_in_line(place: SourceLine, before: str, own: int) -> Replacement | None:
    """A number in a file that is not Python: at the end of a text that stands on its line."""
    try:
        line = Path(place.file).read_text(encoding="utf-8").splitlines()[place.line - 1]
    except (OSError, ValueError, IndexError):
        return None
    written = before[before.rfind(":") + 1 :] if before not in line else before
    if line.count(written) != 1 or not written.endswith(str(own)):
        return None
    end = len(line[: line.index(written) + len(written)].encode())
    return Replacement(
        file=os.path.abspath(place.file),  # noqa: PTH100
        line=place.line,
        column=end - len(str(own)),
        end_line=place.line,
        end_column=end,
        number=own,
    )


def compiled(path: str, replacements: Sequence[Replacement]) -> CodeType:
    """The code of a file, with the numbers that belong into it.

    Raises:
        OSError, SyntaxError, ValueError: the file cannot be read or compiled.
        LookupError: an expression is no longer where it was found.
    """
    source = Path(path).read_bytes()
    here = [each for each in replacements if _same_file(each.file, path)]
    if not here:
        return compile(source, path, "exec", dont_inherit=True)
    numbers = _Numbers(here)
    tree = ast.parse(source, path)
    numbers.visit(tree)
    if numbers.left:
        line = min(each.line for each in numbers.left)
        msg = f"line {line} of {path} is not what it was when its number was found"
        raise LookupError(msg)
    code: CodeType = compile(tree, path, "exec", dont_inherit=True)
    return code


def put_in_force(replacements: Sequence[Replacement], folder: str = "") -> None:
    """Modules that are imported from now on have the numbers; compiled ones on disk are not read.

    The script itself is run by `run_script`, which asks for `compiled`. Of a settings file, what
    opens it gets a copy with the number.

    Args:
        folder: where copies are made.
    """
    if not replacements:
        return
    copies = [
        (each.file, _copy(each, folder)) for each in replacements if not each.file.endswith(".py")
    ]
    if copies:
        _open_instead(copies)
    native = SourceFileLoader.get_code

    def get_code(self: SourceFileLoader, fullname: str) -> CodeType | None:
        path = self.get_filename(fullname)
        if any(_same_file(each.file, path) for each in replacements):
            return compiled(path, replacements)
        return native(self, fullname)

    SourceFileLoader.get_code = get_code  # type: ignore[method-assign, assignment]


def _copy(replacement: Replacement, folder: str) -> str:
    """A settings file with the number in its place, under the same name."""
    path = Path(folder) / f"replaced-{os.getpid()}-{Path(replacement.file).name}"
    lines = Path(replacement.file).read_bytes().split(b"\n")
    line = lines[replacement.line - 1]
    number = str(replacement.number).encode()
    lines[replacement.line - 1] = (
        line[: replacement.column] + number + line[replacement.end_column :]
    )
    path.write_bytes(b"\n".join(lines))
    return str(path)


def _open_instead(copies: Sequence[tuple[str, str]]) -> None:
    """Makes calls that open a file by its name from now on read its copy."""
    native = io.open

    def opened(file: Any, mode: str = "r", *args: Any, **kwargs: Any) -> Any:
        if isinstance(file, (str, os.PathLike)) and not set(mode) & set("wax+"):
            path = os.fspath(file)
            file = next((copy for own, copy in copies if _same_file(own, path)), file)
        return native(file, mode, *args, **kwargs)

    builtins.open = io.open = opened
    in_pathlib("open", opened)


def in_pathlib(name: str, function: Callable[..., Any]) -> None:
    """Makes `pathlib` call this function too: that of Python 3.10 keeps those of its own."""
    accessor = getattr(pathlib, "_NormalAccessor", None)
    if hasattr(accessor, name):
        setattr(accessor, name, staticmethod(function))


class _Numbers(ast.NodeTransformer):
    """Puts numbers where they belong.

    Attributes:
        left: those whose place was not met.
    """

    def __init__(self, replacements: Sequence[Replacement]) -> None:
        self.left = list(replacements)

    def visit(self, node: ast.AST) -> ast.AST:
        if isinstance(node, ast.expr):
            for each in self.left:
                if _is_at(node, each):
                    self.left.remove(each)
                    return ast.copy_location(ast.Constant(each.number), node)
        visited: ast.AST = super().visit(node)
        return visited


def _is_at(node: ast.expr, place: Replacement) -> bool:
    return (node.lineno, node.col_offset, node.end_lineno, node.end_col_offset) == (
        place.line,
        place.column,
        place.end_line,
        place.end_column,
    )


def _columns(line: str, source: BatchSizeSource, own: int) -> set[int]:
    """Where the number may stand in a line that holds several of them, by the text around it."""
    ahead = source.template.partition("{}")[0].replace("{{", "{").replace("}}", "}")
    found = re.finditer(rf"(?<!\w){re.escape(ahead)}{own}(?!\w)", line)
    return {len((line[: match.start()] + ahead).encode()) for match in found}


def _same_file(one: str, other: str) -> bool:
    return os.path.realpath(one) == os.path.realpath(other)
