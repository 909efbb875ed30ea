"""Options that a library makes of the fields of a class or the parameters of a function. Pure."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from .script_text import default_of_field, target_name

MOST_NESTED = 4
"""Dataclasses inside dataclasses that are followed."""
_Place = tuple[int, ast.expr | None, ast.AST]


class FieldOption(NamedTuple):
    """One option of a library that reads a class or a function.

    Attributes:
        flag: as it is typed.
        text: which of the texts declares it.
        value: its default, `None` without one.
        holder: the field or the parameter.
    """

    flag: str
    text: int
    value: ast.expr | None
    holder: ast.AST


class _Style(NamedTuple):
    """How a library spells what it finds.

    Attributes:
        dashes: `--batch-size` for `batch_size`.
        dotted: a field of an inner class has the names of the outer ones before it.
    """

    dashes: bool
    dotted: bool


_STYLES = {
    "tyro.cli": _Style(dashes=True, dotted=True),
    "HfArgumentParser": _Style(dashes=False, dotted=False),
    "TrlParser": _Style(dashes=False, dotted=False),
    "simple_parsing.parse": _Style(dashes=False, dotted=False),
    "add_arguments": _Style(dashes=False, dotted=False),
    "fire.Fire": _Style(dashes=False, dotted=False),
    "Fire": _Style(dashes=False, dotted=False),
    "typer.run": _Style(dashes=True, dotted=False),
    "draccus.parse": _Style(dashes=False, dotted=True),
    "jsonargparse.CLI": _Style(dashes=False, dotted=True),
    "jsonargparse.auto_cli": _Style(dashes=False, dotted=True),
}
"""Styles by how the parsers are called, also where the name alone was imported."""


def field_options(trees: Sequence[ast.Module]) -> Iterator[FieldOption]:
    """The options of the classes and functions that are given to such a library in any text."""
    known = {
        node.name: (number, node)
        for number, tree in enumerate(trees)
        for node in ast.walk(tree)
        if isinstance(node, (ast.ClassDef, ast.FunctionDef))
    }
    for tree in trees:
        imported = _imported_names(tree)
        for node in ast.walk(tree):
            if not isinstance(node, ast.Call):
                continue
            style = _style_of(node.func, imported)
            for name in _given(node) if style is not None else ():
                if style is not None and name in known:
                    yield from _options(name, known, style, ())


def _options(
    name: str,
    known: dict[str, tuple[int, ast.ClassDef | ast.FunctionDef]],
    style: _Style,
    path: tuple[str, ...],
) -> Iterator[FieldOption]:
    text, node = known[name]
    for base in node.bases if isinstance(node, ast.ClassDef) else ():
        if (target_name(base) or "") in known and len(path) < MOST_NESTED:
            yield from _options(target_name(base) or "", known, style, path)
    for field, kind, value, holder in _fields(node):
        inner = target_name(kind) if kind is not None else None
        if inner in known and inner != name and len(path) < MOST_NESTED:
            yield from _options(inner or "", known, style, (*path, field))
            continue
        words = (*path, field) if style.dotted else (field,)
        flag = ".".join(words)
        flag = flag.replace("_", "-") if style.dashes else flag
        yield FieldOption(f"--{flag}", text, value, holder)


def _fields(
    node: ast.ClassDef | ast.FunctionDef,
) -> Iterator[tuple[str, ast.expr | None, ast.expr | None, ast.AST]]:
    """The name, annotation, default and place of each."""
    if isinstance(node, ast.ClassDef):
        for each in node.body:
            if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name):
                value = None if each.value is None else default_of_field(each.value)
                yield each.target.id, each.annotation, value, each
        return
    named = [*node.args.posonlyargs, *node.args.args]
    without: list[ast.expr | None] = [None] * (len(named) - len(node.args.defaults))
    for argument, value in (
        *zip(named, (*without, *node.args.defaults), strict=True),
        *zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True),
    ):
        yield argument.arg, argument.annotation, value, argument


def _given(call: ast.Call) -> Iterator[str]:
    """The names of what a call is given: `cli(Args)`, `HfArgumentParser((ModelArgs, DataArgs))`."""
    given = [*call.args, *(keyword.value for keyword in call.keywords)]
    for value in given:
        for each in value.elts if isinstance(value, (ast.Tuple, ast.List)) else (value,):
            name = target_name(each)
            if name is not None:
                yield name


def _style_of(function: ast.expr, imported: dict[str, str]) -> _Style | None:
    name = target_name(function)
    if name is None:
        return None
    if isinstance(function, ast.Attribute):
        owner = target_name(function.value)
        whole = f"{imported.get(owner or '', owner)}.{name}"
    else:
        whole = imported.get(name, name)
    return _STYLES.get(whole) or _STYLES.get(whole.rpartition(".")[2])


def _imported_names(tree: ast.Module) -> dict[str, str]:
    """Full names of a file's imports: `tyro.cli` of `cli`, `simple_parsing` of `sp`."""
    names = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            for each in node.names:
                names[each.asname or each.name] = f"{node.module}.{each.name}"
        elif isinstance(node, ast.Import):
            for each in node.names:
                names[each.asname or each.name] = each.name
    return names
