"""Where a script's text binds a number to a name, where steps show that it trains on so many. Pure.

A guess, and said as one: names that are called like a batch size first, then a number that the text
has in one place alone.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterator

from ...records import BatchSizeSource, SourceLine
from .script_options import declared_options, source_file
from .script_text import ScriptText

_LIKE_A_SIZE = re.compile(r"b|n|bs|bsz|(\w+_)?(batch|batch_?size\w*|micro_?batch)|batch\w*")


def place_of_number(
    script: str,
    numbers: Collection[int],
    *,
    module: bool = False,
    besides: str = "",
    after: SourceLine | None = None,
) -> tuple[str, BatchSizeSource] | None:
    """The place that may set one of the numbers, the first of them first, and its name.

    Args:
        besides: the option that does not.
        after: a line that is known to set it as well.
    """
    file = source_file(script, module=module)
    text = ScriptText.of(SourceLine(file=file, line=1))
    if text is None:
        return None
    for number in dict.fromkeys(numbers):
        found = list(_places(text, file, number, besides)) if number > 1 else []
        found = [each for each in found if each[1].place != after]
        named = [each for each in found if _LIKE_A_SIZE.fullmatch(each[0].lower())]
        if named or len(found) == 1:
            return (*named, *found)[0]
    return None


def _places(
    text: ScriptText, file: str, number: int, besides: str
) -> Iterator[tuple[str, BatchSizeSource]]:
    """Names with this number, options before others."""

    def made(node: ast.expr, holder: ast.AST, name: str, option: str | None) -> BatchSizeSource:
        before, template = text.marked(node, holder, name)
        place = SourceLine(file=file, line=node.lineno)
        return BatchSizeSource(place=place, before=before, template=template, option=option)

    defaults: set[ast.AST] = set()
    for declared in declared_options(text.tree):
        default = declared.default
        if default is None:
            continue
        defaults.add(default)
        flag = max(declared.flags, key=len)
        if _is(default.value, number) and besides not in declared.flags:
            yield flag.lstrip("-").replace("-", "_"), made(default.value, default, flag, flag)
    for name in sorted(_names(text.tree)):
        for node, holder in text.bindings(name):
            if _is(node, number) and holder not in defaults:
                yield name, made(node, holder, name, None)


def _names(tree: ast.Module) -> set[str]:
    """Everything in the text that a value can be bound to."""
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            names.add(node.id)
        elif isinstance(node, ast.Attribute):
            names.add(node.attr)
        elif isinstance(node, (ast.keyword, ast.arg)):
            names.add(node.arg or "")
        elif isinstance(node, ast.Dict):
            names.update(str(key.value) for key in node.keys if isinstance(key, ast.Constant))
    return names - {""}


def _is(node: ast.expr, number: int) -> bool:
    return isinstance(node, ast.Constant) and type(node.value) is int and node.value == number
