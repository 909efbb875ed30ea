"""The text of a script and its syntax tree, and what expressions in it mean for a batch size."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator
from typing import NamedTuple

from ...records import SourceLine
from .call_site import source_text

LONGEST_TEXT = 80
"""Characters of a line of the script that are shown; longer ones are named in short."""
_KEYWORDS = ("batch_size", "batch_sampler")


class ScriptText(NamedTuple):
    """One file of the user's code."""

    text: str
    tree: ast.Module

    @classmethod
    def of(cls, place: SourceLine, *, mentions: Collection[str] = ()) -> ScriptText | None:
        """The file that a place names, `None` where it cannot be read or is no Python.

        Args:
            mentions: words of which it has to have one, else it is not parsed either.
        """
        try:
            text = source_text(place)
            if mentions and not any(word in text for word in mentions):
                return None
            return cls(text, ast.parse(text))
        except (OSError, SyntaxError, ValueError):
            return None

    def segment(self, node: ast.AST) -> str:
        """The text of a node."""
        return ast.get_source_segment(self.text, node) or ""

    def calls(self, line: int) -> Iterator[ast.Call]:
        """The calls on a line."""
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Call) and node.lineno <= line <= (
                node.end_lineno or node.lineno
            ):
                yield node

    def bindings(self, name: str) -> Iterator[tuple[ast.expr, ast.AST]]:
        """Every value that the file gives to `name`, and what holds it."""
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Assign):
                for target in node.targets:
                    for value in _assigned(target, node.value, name):
                        yield value, node
            elif isinstance(node, ast.AnnAssign) and node.value is not None:
                if target_name(node.target) == name:
                    yield default_of_field(node.value), node
            elif isinstance(node, ast.Dict):
                for key, value in zip(node.keys, node.values, strict=True):
                    if isinstance(key, ast.Constant) and key.value == name:
                        yield value, key
            elif isinstance(node, ast.Call):
                for keyword in node.keywords:
                    if keyword.arg == name:
                        yield keyword.value, keyword
            elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                yield from _defaults(node.args, name)

    def marked(
        self, number: ast.expr, holder: ast.AST, setting: str = "batch_size"
    ) -> tuple[str, str]:
        """The text of `holder`, up to the number at least, and the same with `{}` for the number.

        Where that is no short text on one line: a plain `batch_size=NUMBER`, or what the setting is
        called.
        """
        whole = self.segment(holder)
        # As the syntax tree counts: lines end at \n alone, columns are bytes.
        line = self.text.split("\n")[number.lineno - 1].encode()
        first, column = getattr(holder, "lineno", 0), getattr(holder, "col_offset", 0)
        if first == getattr(holder, "end_lineno", 0) == number.end_lineno:
            ends = (getattr(holder, "end_col_offset", 0), number.end_col_offset or 0)
            whole = line[column : max(ends)].decode()
        part = self.segment(number)
        if first != number.lineno or "\n" in whole or len(whole) > LONGEST_TEXT:
            return f"{setting}={part}", f"{setting}={{}}"
        offset = len(line[column : number.col_offset].decode())
        template = (
            whole[:offset].replace("{", "{{").replace("}", "}}")
            + "{}"
            + whole[offset + len(part) :].replace("{", "{{").replace("}", "}}")
        )
        return " ".join(whole.split()), template


def _assigned(target: ast.expr, value: ast.expr, name: str) -> Iterator[ast.expr]:
    """The value assigned to `name`, alone or among others: `BATCH, EPOCHS = 32, 10`."""
    if target_name(target) == name:
        yield value
    if not isinstance(target, ast.Tuple) or not isinstance(value, ast.Tuple):
        return
    if len(target.elts) == len(value.elts):  # else a starred name takes several
        for element, part in zip(target.elts, value.elts, strict=True):
            yield from _assigned(element, part, name)


def _defaults(arguments: ast.arguments, name: str) -> Iterator[tuple[ast.expr, ast.AST]]:
    """Defaults of the parameters called `name`."""
    named = [*arguments.posonlyargs, *arguments.args]
    pairs = [
        *zip(reversed(named), reversed(arguments.defaults), strict=False),
        *zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True),
    ]
    for argument, default in pairs:
        if argument.arg == name and default is not None:
            yield default, argument


def batch_size_argument(call: ast.Call) -> ast.expr | None:
    """The argument of a call that makes batches which says how large they are."""
    for wanted in _KEYWORDS:
        for keyword in call.keywords:
            if keyword.arg == wanted:
                return keyword.value
    name = target_name(call.func) or ""
    if name.endswith("Loader") and len(call.args) >= 2:
        return call.args[1]
    if name.endswith("BatchSampler"):
        named = (arg for arg in call.args if "batch" in (name_of(arg) or "").lower())
        return next(
            (arg for arg in call.args if isinstance(arg, ast.Constant)),
            next(named, call.args[1] if len(call.args) >= 2 else None),
        )
    return None


def batch_size_entry(value: ast.expr) -> tuple[ast.expr, ast.AST] | None:
    """The size in a dictionary and what holds it: `{"batch_size": 32}` or `dict(batch_size=32)`."""
    if isinstance(value, ast.Dict):
        for key, element in zip(value.keys, value.values, strict=True):
            if isinstance(key, ast.Constant) and key.value == "batch_size":
                return element, key
    if isinstance(value, ast.Call):
        for keyword in value.keywords:
            if keyword.arg == "batch_size":
                return keyword.value, keyword
    return None


def chains_in(node: ast.expr) -> list[tuple[str, ...]]:
    """The settings that an expression reads, each without its root.

    `cfg.train.batch_size` is train, batch_size; so are `cfg["train"]["batch_size"]`,
    `int(cfg["train"].get("batch_size", 8))` and the first of `cfg.train.batch_size // ranks`.
    """
    if isinstance(node, (ast.Name, ast.Attribute, ast.Subscript)):
        chain = _chain(node)
        return [chain] if chain else []
    parts: list[ast.expr] = []
    if isinstance(node, ast.Call):
        if isinstance(node.func, ast.Attribute) and node.func.attr in ("get", "pop") and node.args:
            key, owner = node.args[0], _chain(node.func.value)
            if isinstance(key, ast.Constant) and owner:
                rooted = owner[1:] if isinstance(node.func.value, ast.Name) else owner
                return [(*rooted, str(key.value))]
        if target_name(node.func) in ("int", "min", "max"):
            parts = node.args
    elif isinstance(node, ast.BoolOp):
        parts = node.values
    elif isinstance(node, ast.BinOp):
        parts = [node.left, node.right]
    elif isinstance(node, ast.IfExp):
        parts = [node.body, node.orelse]
    return [chain for part in parts for chain in chains_in(part)]


def _chain(node: ast.expr) -> tuple[str, ...]:
    """The names of a dotted expression; without the root where there are more."""
    names: list[str] = []
    while isinstance(node, (ast.Attribute, ast.Subscript)):
        name = name_of(node)
        if name is None:
            return ()
        names.append(name)
        node = node.value
    if isinstance(node, ast.Name) and not names:
        return (node.id,)
    return tuple(reversed(names))


def default_of_field(value: ast.expr) -> ast.expr:
    """The number in `field(default=16)` of a dataclass, or in pydantic's `Field(16)`."""
    if isinstance(value, ast.Call) and target_name(value.func) in ("field", "Field"):
        for keyword in value.keywords:
            if keyword.arg == "default":
                return keyword.value
        if value.args:
            return value.args[0]
    return value


def name_of(node: ast.expr) -> str | None:
    """The name by which an expression takes its value: `NAME`, `a.NAME` or `a["NAME"]`."""
    if isinstance(node, ast.Subscript):
        return str(node.slice.value) if isinstance(node.slice, ast.Constant) else None
    return target_name(node)


def target_name(node: ast.expr) -> str | None:
    """The last part of a dotted name."""
    if isinstance(node, ast.Name):
        return node.id
    return node.attr if isinstance(node, ast.Attribute) else None


def bound_names(tree: ast.Module, *, assigned: bool = False) -> Iterator[str]:
    """Names to which a text gives a value.

    Args:
        assigned: all that is assigned, whatever it gets, and nothing else.
    """
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign):
            for target in node.targets:
                for each in target.elts if isinstance(target, ast.Tuple) else (target,):
                    yield target_name(each) or ""
        elif isinstance(node, ast.AnnAssign):
            yield target_name(node.target) or ""
        elif assigned:
            continue
        elif isinstance(node, ast.Dict):
            for key in node.keys:
                if isinstance(key, ast.Constant) and isinstance(key.value, str):
                    yield key.value
        elif isinstance(node, (ast.keyword, ast.arg)):
            yield node.arg or ""


def numbers_at_the_top(tree: ast.Module) -> Iterator[tuple[str, ast.expr, ast.AST]]:
    """`NAME = NUMBER` at the top of the script."""
    for node in tree.body:
        if isinstance(node, ast.Assign) and number_of(node.value) is not None:
            for target in node.targets:
                if isinstance(target, ast.Name):
                    yield target.id, node.value, node


def number_of(value: ast.expr | None) -> int | None:
    """A whole number above 0, as a text has it."""
    if isinstance(value, ast.Constant) and type(value.value) is int and value.value > 0:
        return value.value
    return None
