"""The text of the script with remedies in it: the edits that a diff is made of.

All lines or none: a remedy whose lines cannot be placed surely has no diff, and the reason is said.
"""

from __future__ import annotations

import ast
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from ...probes.source.thread_variables import THREAD_VARIABLES
from ...records import SourceLine
from ...session.change_diff import Edit, NoDiffError, edited
from .settings import LOADER_FIELDS, Settings, UsedAlready

LOADERS = ("DataLoader",)
FIRST_BY_PLACE = 5
"""Arguments of a loader that may stand without their names: the next one is its workers."""
Arguments = dict[str, object]
"""Keyword arguments; those that are `None` are only written where there is another value."""
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
    # torch's own call stands for these.
    in_script = THREAD_VARIABLES if settings.threads is not None else ()
    if any(name not in in_script for name, _ in settings.variables):
        raise NoDiffError("variables of the environment stand outside the script")
    if settings.compile and len(used.modules) > 1:
        raise NoDiffError(f"several modules were compiled: {', '.join(used.modules)}")
    if settings.optimizer and used.num_optimizer_places > 1:
        raise NoDiffError("optimizers are made in several places, and all of them were changed")
    edits: list[Edit] = []
    if loader_arguments(settings):
        edits += in_call(used.loader_place, LOADERS, loader_arguments(settings))
    if settings.optimizer:
        arguments = optimizer_arguments(settings)
        edits += in_call(used.optimizer_place, used.optimizer_classes, arguments)
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


def loader_arguments(settings: Settings) -> Arguments:
    """The arguments of a loader with these settings."""
    values = {name: getattr(settings, name) for name in LOADER_FIELDS}
    return {name: value for name, value in values.items() if value is not None}


def optimizer_arguments(settings: Settings) -> Arguments:
    """The arguments of an optimizer: one implementation, for torch refuses two."""
    other = "foreach" if settings.optimizer == "fused" else "fused"
    return {settings.optimizer: True, other: None}


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
        path = os.path.abspath(file)  # noqa: PTH100  links stay as the user named them
        return _source_of(path, Path(file).read_bytes())
    except (OSError, SyntaxError, ValueError) as error:
        raise NoDiffError(f"{file} cannot be read as Python") from error


def _source_of(path: str, data: bytes) -> _Source:
    tree = ast.parse(data)
    above = {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
    return _Source(path, data.splitlines(keepends=True), tree, above)


def _at(place: SourceLine | None, what: str) -> _Source:
    if place is None:
        raise NoDiffError(f"the line of {what} is not known")
    return _source(place.file)


# Arguments of a call.


def in_call(place: SourceLine | None, names: Sequence[str], arguments: Arguments) -> list[Edit]:
    """Keyword arguments of the call at a place: those that are there are replaced.

    Args:
        names: what is called, as the last word of it.

    Raises:
        NoDiffError: the call is not found, or holds arguments that are not written there.
    """
    source = _at(place, names[0] if names else "the call")
    assert place is not None
    return _in_call(source, place.line, names, arguments, str(place))


def in_line(line: str, names: Sequence[str], arguments: Arguments) -> str:
    """One line with keyword arguments in the call that it holds; empty where they have no place.

    >>> in_line("x = Ahead(DataLoader(data, 8,))", LOADERS, {"num_workers": 2})
    'x = Ahead(DataLoader(data, 8, num_workers=2,))'
    """
    try:
        source = _source_of("", line.encode())
        return edited(line.encode(), _in_call(source, 1, names, arguments, line)).decode()
    except (NoDiffError, SyntaxError, ValueError):
        return ""


def _in_call(
    source: _Source, line: int, names: Sequence[str], arguments: Arguments, where: str
) -> list[Edit]:
    calls = [
        node
        for node in ast.walk(source.tree)
        if isinstance(node, ast.Call)
        and node.lineno <= line <= _end(node)
        and _last_word(node.func) in names
    ]
    if len(calls) != 1:
        raise NoDiffError(f"{where} does not call {' or '.join(names)} by that name")
    call = calls[0]
    elsewhere = any(keyword.arg is None for keyword in call.keywords)
    if elsewhere or any(isinstance(each, ast.Starred) for each in call.args):
        raise NoDiffError(f"{where} takes its arguments from elsewhere")
    if names == LOADERS and len(call.args) > FIRST_BY_PLACE:
        raise NoDiffError(f"{where} gives its workers without their name")
    there = {keyword.arg: keyword.value for keyword in call.keywords}
    edits = [_instead(source, there[name], str(value)) for name, value in arguments.items()
             if name in there]  # fmt: skip
    more = ", ".join(
        f"{name}={value}"
        for name, value in arguments.items()
        if name not in there and value is not None
    )
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
    _needs_torch(source)
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
    more = "\t" if indent.startswith("\t") else "    "  # Python takes no mixture
    return [
        _put(source, begin + number, 0, more if number else f"{with_line}{more}")
        for number, line in enumerate(lines)
        if line.strip()
    ]


def is_forward(line: str) -> bool:
    """Whether a line is a whole statement, without a backward pass: it may stand under autocast.

    >>> is_forward("out = model(x)"), is_forward("out = model("), is_forward("f(x).backward()")
    (True, False, False)
    """
    try:
        block = ast.parse(line).body
    except (SyntaxError, ValueError):
        return False
    return len(block) == 1 and not _calls_backward(block[0])


def before_loop(forward: SourceLine | None, mode: str) -> list[Edit]:
    """`model.compile()` before the outermost loop that does not make the model, in its scope.

    Raises:
        NoDiffError: the model has no name there, or is made elsewhere.
    """
    source = _at(forward, "the forward pass")
    assert forward is not None
    made = [
        (name.id, node)
        for node in ast.walk(source.tree)
        if isinstance(node, (ast.Assign, ast.AnnAssign))
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
        for name in ast.walk(target)
        if isinstance(name, ast.Name) and isinstance(name.ctx, ast.Store)
    ]
    calls = [
        node
        for node in ast.walk(source.tree)
        if isinstance(node, ast.Call)
        and node.lineno <= forward.line <= _end(node)
        and isinstance(node.func, ast.Name)
        and any(
            name == node.func.id and _scope(source, each) is _scope(source, node)
            for name, each in made
        )
    ]
    if len(calls) != 1:
        raise NoDiffError("the model has no name where its loop begins, or is made elsewhere")
    (call,) = calls
    assert isinstance(call.func, ast.Name)
    scope = _scope(source, call)
    makers = {
        holder for name, each in made if name == call.func.id for holder in _around(source, each)
    }
    loops = [
        each
        for each in _around(source, call)
        if isinstance(each, (ast.For, ast.While))
        and _scope(source, each) is scope
        and each not in makers  # before such a loop there is no model, or another one
    ]
    if not loops:
        raise NoDiffError("the loop stands elsewhere than the call of the model, or makes it anew")
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
    """Lines behind the imports at the top of a file, torch's among them.

    Raises:
        NoDiffError: there are none, or the script does something of the kind itself.
    """
    source = _source(script)
    begins: Callable[[str], str] = lambda line: line.split("(")[0].split(" =")[0]  # noqa: E731
    text = b"".join(source.lines).decode(errors="replace")
    for line in lines:
        if begins(line) in text:
            raise NoDiffError(f"the script sets {begins(line)} itself")
    _needs_torch(source)
    last, is_there = None, False
    for node in source.tree.body:
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            last = node
            is_there = is_there or "torch" in _imported(node)
        elif is_there:
            break
    assert last is not None
    ending = source.newline
    if not source.lines[_end(last) - 1].endswith(b"\n"):
        raise NoDiffError("the script ends with its imports")
    put = "".join(f"{line}{ending}" for line in lines)
    return [_put(source, _end(last) + 1, 0, put)]


def _needs_torch(source: _Source) -> None:
    """That torch is there by its name.

    Raises:
        NoDiffError: it is not.
    """
    imported = {each for node in source.tree.body for each in _imported(node)}
    if "torch" not in imported:
        raise NoDiffError(f"{source.file} does not import torch by that name")


def _imported(node: ast.stmt) -> list[str]:
    """The names of modules that a statement brings."""
    names = node.names if isinstance(node, ast.Import) else []
    return [(each.asname or each.name).split(".")[0] for each in names]


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
