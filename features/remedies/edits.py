"""The text of the script with remedies in it: the edits that a diff is made of.

All lines or none: a remedy whose lines cannot be placed surely has no diff, and the reason is said.
"""

from __future__ import annotations

import ast
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from ...records import SourceLine
from ...session.change_diff import Edit, NoDiffError
from .settings import LOADER_FIELDS, Settings, UsedAlready

LOADERS = ("DataLoader",)
SEVERAL_PLACES = {
    "channels_last": "images change their layout where they are made",
    "checkpoint": "blocks are checkpointed in the forward pass of the model",
    "widen": "the cores are given back after the imports that narrow them",
    "order": "samples are grouped by a sampler of the script's own",
}
"""Settings that no line can be written for from outside, and why."""


def edits_of(settings: Settings, used: UsedAlready, script: str) -> list[Edit]:
    """The edits that give the script these settings.

    Args:
        script: path of the file that is run.

    Raises:
        NoDiffError: one of them cannot be placed.
    """
    for name, why in SEVERAL_PLACES.items():
        if name in settings.changes:
            raise NoDiffError(why)
    if settings.autocast == "float16":
        raise NoDiffError("a scaler stands in several places of the loop")
    if settings.threads is None and settings.variables:
        raise NoDiffError("variables of the environment stand outside the script")
    edits: list[Edit] = []
    arguments = {
        name: value for name in LOADER_FIELDS if (value := getattr(settings, name)) is not None
    }
    if arguments:
        edits += in_call(used.loader_place, LOADERS, arguments)
    if settings.optimizer:
        edits += in_call(used.optimizer_place, used.optimizer_classes, {settings.optimizer: True})
    if settings.autocast:
        words = f'torch.autocast("{used.device}", dtype=torch.{settings.autocast})'
        edits += around_forward(used.call_place, used.backward_place, words)
    if settings.compile:
        mode = "" if settings.compile == "default" else f'mode="{settings.compile}"'
        edits += before_loop(used.call_place, mode)
    lines = list(_lines_of(settings))
    if lines:
        edits += after_imports(script, lines)
    return edits


def _lines_of(settings: Settings) -> Iterator[str]:
    if settings.threads is not None:
        yield f"torch.set_num_threads({settings.threads})"
    if settings.tf32:
        yield 'torch.set_float32_matmul_precision("high")'
    if settings.benchmark:
        yield "torch.backends.cudnn.benchmark = True"


class _Source(NamedTuple):
    """A file, read and parsed.

    Attributes:
        above: the node that holds each.
    """

    file: str
    lines: list[bytes]
    tree: ast.Module
    above: dict[ast.AST, ast.AST]

    @property
    def newline(self) -> str:
        """How its lines end."""
        return "\r\n" if self.lines and self.lines[0].endswith(b"\r\n") else "\n"


def _source(file: str) -> _Source:
    try:
        data = Path(file).read_bytes()
        tree = ast.parse(data)
    except (OSError, SyntaxError, ValueError) as error:
        raise NoDiffError(f"{file} cannot be read as Python") from error
    above = {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
    path = os.path.abspath(file)  # noqa: PTH100  links stay as the user named them
    return _Source(path, data.splitlines(keepends=True), tree, above)


def _at(place: SourceLine | None, what: str) -> _Source:
    if place is None:
        raise NoDiffError(f"the line of {what} is not known")
    return _source(place.file)


# Arguments of a call.


def in_call(
    place: SourceLine | None, names: Sequence[str], arguments: dict[str, object]
) -> list[Edit]:
    """Keyword arguments of the call at a place: those that are there are replaced.

    Args:
        names: what is called, as the last word of it.

    Raises:
        NoDiffError: the call is not found, or holds arguments that are not written there.
    """
    source = _at(place, names[0] if names else "the call")
    assert place is not None
    calls = [
        node
        for node in ast.walk(source.tree)
        if isinstance(node, ast.Call)
        and node.lineno <= place.line <= _end(node)
        and _last_word(node.func) in names
    ]
    if len(calls) != 1:
        raise NoDiffError(f"{place} does not call {' or '.join(names)} by that name")
    call = calls[0]
    if any(keyword.arg is None for keyword in call.keywords):
        raise NoDiffError(f"{place} takes its arguments from elsewhere")
    there = {keyword.arg: keyword.value for keyword in call.keywords}
    edits = [_instead(source, there[name], str(value)) for name, value in arguments.items()
             if name in there]  # fmt: skip
    more = ", ".join(f"{name}={value}" for name, value in arguments.items() if name not in there)
    if more:
        given = [*call.args, *there.values()]
        last = max(given, key=lambda each: (_end(each), each.end_col_offset), default=None)
        if last is None:
            edits.append(_put(source, _end(call), (call.end_col_offset or 1) - 1, more))
        else:
            line, column = _closed(source, last, call)
            edits.append(_put(source, line, column, f", {more}"))
    return edits


def _closed(source: _Source, last: ast.expr, call: ast.Call) -> tuple[int, int]:
    """The end of the last argument, behind the brackets around it that are not the call's own."""
    line, column = _end(last), last.end_col_offset or 0
    between = _between(source, (line, column), (_end(call), (call.end_col_offset or 1) - 1))
    brackets = between.rfind(b")")
    if brackets < 0:
        return line, column
    if b"\n" in between[: brackets + 1] or b"#" in between[:brackets]:
        raise NoDiffError("the end of its last argument is not clear")
    return line, column + brackets + 1


def _between(source: _Source, begin: tuple[int, int], end: tuple[int, int]) -> bytes:
    if begin[0] == end[0]:
        return source.lines[begin[0] - 1][begin[1] : end[1]]
    inner = source.lines[begin[0] : end[0] - 1]
    return b"".join(
        [source.lines[begin[0] - 1][begin[1] :], *inner, source.lines[end[0] - 1][: end[1]]]
    )


def _last_word(function: ast.expr) -> str:
    if isinstance(function, ast.Attribute):
        return function.attr
    return function.id if isinstance(function, ast.Name) else ""


# Statements of the loop.


def around_forward(
    forward: SourceLine | None, backward: SourceLine | None, words: str
) -> list[Edit]:
    """A `with` around the statements from the forward pass up to the backward pass.

    Raises:
        NoDiffError: they do not stand side by side, or what stands there cannot be indented.
    """
    source = _at(forward, "the forward pass")
    assert forward is not None
    apart = NoDiffError("the forward and the backward pass do not stand side by side")
    if backward is None or backward.file != forward.file:
        raise apart
    block, first = _statement_at(source, forward.line)
    last = next(
        (n for n, each in enumerate(block) if each.lineno <= backward.line <= _end(each)), None
    )
    if last is None or last <= first:
        raise apart
    if sum(_calls_backward(each) for each in block) != 1:
        raise NoDiffError("the loop has several backward passes")
    _needs(source, "torch")
    inside = block[first:last]
    if any(
        isinstance(node, (ast.Constant, ast.JoinedStr)) and _end(node) > node.lineno
        for each in inside
        for node in ast.walk(each)
    ):
        raise NoDiffError("a text of several lines stands between them")
    begin, end = inside[0].lineno, _end(inside[-1])
    lines = source.lines[begin - 1 : end]
    indent = _indent(source, inside[0])
    if source.lines[_end(inside[-1]) - 1][inside[-1].end_col_offset :].strip().startswith(b";"):
        raise apart
    with_line = f"{indent}with {words}:{source.newline}"
    return [
        _put(source, begin + number, 0, "    " if number else f"{with_line}    ")
        for number, line in enumerate(lines)
        if line.strip()
    ]


def before_loop(forward: SourceLine | None, mode: str) -> list[Edit]:
    """`model.compile()` before the outermost loop, in the scope that makes the model.

    Raises:
        NoDiffError: the model has no name there, or is made elsewhere.
    """
    source = _at(forward, "the forward pass")
    assert forward is not None
    made = {
        name.id: scope
        for node in ast.walk(source.tree)
        if isinstance(node, (ast.Assign, ast.AnnAssign))
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
        for name in ast.walk(target)
        if isinstance(name, ast.Name)
        for scope in [_scope(source, node)]
    }
    calls = [
        node
        for node in ast.walk(source.tree)
        if isinstance(node, ast.Call)
        and node.lineno <= forward.line <= _end(node)
        and isinstance(node.func, ast.Name)
        and made.get(node.func.id) is _scope(source, node)
    ]
    if len(calls) != 1:
        raise NoDiffError("the model has no name where its loop begins, or is made elsewhere")
    (call,) = calls
    assert isinstance(call.func, ast.Name)
    loops = [each for each in _around(source, call) if isinstance(each, (ast.For, ast.While))]
    scope = _scope(source, call)
    loops = [each for each in loops if _scope(source, each) is scope]
    if not loops:
        raise NoDiffError("the loop stands elsewhere than the call of the model")
    outermost = loops[-1]
    line = f"{_indent(source, outermost)}{call.func.id}.compile({mode}){source.newline}"
    return [_put(source, outermost.lineno, 0, line)]


def _statement_at(source: _Source, line: int) -> tuple[list[ast.stmt], int]:
    """The innermost block with a statement at this line, and which one it is."""
    found: tuple[list[ast.stmt], int] | None = None
    for node in ast.walk(source.tree):
        for name in ("body", "orelse", "finalbody"):
            block = getattr(node, name, None)
            if not isinstance(block, list):
                continue
            for number, each in enumerate(block):
                if isinstance(each, ast.stmt) and each.lineno <= line <= _end(each):
                    found = block, number  # walked from the outside inwards
    if found is None:
        raise NoDiffError(f"no statement stands at line {line} of {source.file}")
    return found


def _calls_backward(statement: ast.stmt) -> int:
    return sum(
        isinstance(node, ast.Call) and _last_word(node.func) == "backward"
        for node in ast.walk(statement)
    )


def _around(source: _Source, node: ast.AST) -> Iterator[ast.AST]:
    """What holds a node, from the inside outwards."""
    while (holder := source.above.get(node)) is not None:
        yield holder
        node = holder


def _scope(source: _Source, node: ast.AST) -> ast.AST:
    scopes = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)
    return next((each for each in _around(source, node) if isinstance(each, scopes)), source.tree)


# Lines at the top.


def after_imports(script: str, lines: Sequence[str]) -> list[Edit]:
    """Lines behind the imports at the top of a file.

    Raises:
        NoDiffError: there are none, or the script does something of the kind itself.
    """
    source = _source(script)
    begins: Callable[[str], str] = lambda line: line.split("(")[0].split(" =")[0]  # noqa: E731
    text = b"".join(source.lines).decode(errors="replace")
    for line in lines:
        if begins(line) in text:
            raise NoDiffError(f"the script sets {begins(line)} itself")
    last = None
    for number, node in enumerate(source.tree.body):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            last = node
        elif number and last is not None:
            break
    if last is None:
        raise NoDiffError("the script has no imports at its top")
    _needs(source, "torch")
    ending = source.newline
    if not source.lines[_end(last) - 1].endswith(b"\n"):
        raise NoDiffError("the script ends with its imports")
    put = "".join(f"{line}{ending}" for line in lines)
    return [_put(source, _end(last) + 1, 0, put)]


def _needs(source: _Source, name: str) -> None:
    """That a module is there by its name.

    Raises:
        NoDiffError: it is not.
    """
    imported = {
        (each.asname or each.name).split(".")[0]
        for node in source.tree.body
        if isinstance(node, ast.Import)
        for each in node.names
    }
    if name not in imported:
        raise NoDiffError(f"{source.file} does not import {name} by that name")


# Places.


def _end(node: ast.stmt | ast.expr) -> int:
    return node.end_lineno or node.lineno


def _indent(source: _Source, statement: ast.stmt | ast.expr) -> str:
    """What stands before a statement on its line.

    Raises:
        NoDiffError: another statement does.
    """
    before = source.lines[statement.lineno - 1][: statement.col_offset].decode()
    if before.strip():
        raise NoDiffError("several statements stand on one line")
    return before


def _instead(source: _Source, node: ast.expr, text: str) -> Edit:
    return Edit(
        source.file, node.lineno, node.col_offset, _end(node), node.end_col_offset or 0, text
    )


def _put(source: _Source, line: int, column: int, text: str) -> Edit:
    return Edit(source.file, line, column, line, column, text)
