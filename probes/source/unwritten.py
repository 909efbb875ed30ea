"""A batch size that nobody wrote: the default of a library's class that the script calls.

Reads what the running script has imported, so only its own process can ask; calls nothing of it.
"""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Iterable, Iterator
from types import ModuleType
from typing import Any

from ...records import SourceLine
from .call_site import is_users, shown_path
from .script_text import ScriptText
from .size_names import option_rank

_NOTHING = object()


def unwritten_size(modules: Iterable[ModuleType]) -> str:
    """The call that leaves the batch size to a default, and that default; empty without one.

    Args:
        modules: that were imported; those of the user's are read.
    """
    for module in tuple(modules):
        file = getattr(module, "__file__", None)
        if not isinstance(file, str) or not file.endswith(".py") or not is_users(file):
            continue
        shown = shown_path(file)
        text = ScriptText.of(SourceLine(file=shown, line=1))
        for call in () if text is None else _calls(text.tree):
            default = _default_of(_named(call.func, module), call)
            if default is not None:
                assert text is not None
                called = f"{text.segment(call.func)}(...) at {shown}:{call.lineno}"
                return f"{called} takes {default} where the call names none"
    return ""


def _calls(tree: ast.Module) -> Iterator[ast.Call]:
    """The calls of which all arguments are seen."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            starred = any(isinstance(each, ast.Starred) for each in node.args)
            if not starred and all(each.arg is not None for each in node.keywords):
                yield node


def _named(node: ast.expr, module: ModuleType) -> Any:
    """The class or function of that name; nothing of an object is asked for."""
    if isinstance(node, ast.Name):
        return vars(module).get(node.id, _NOTHING)
    if isinstance(node, ast.Attribute):
        owner = _named(node.value, module)
        if isinstance(owner, (ModuleType, type)):
            return inspect.getattr_static(owner, node.attr, _NOTHING)
    return _NOTHING


def _default_of(called: Any, call: ast.Call) -> str | None:
    """`batch_size=32`, where the call leaves that to the default."""
    if not inspect.isclass(called) and not inspect.isfunction(called):
        return None
    owner = sys.modules.get(called.__module__)
    file = getattr(owner, "__file__", None)
    if owner is None or called.__module__.partition(".")[0] == "torch":
        return None  # torch's loaders are steered, or do not train
    if isinstance(file, str) and is_users(file):
        return None  # a default that the user wrote
    try:
        parameters = inspect.signature(called).parameters.values()
    except (TypeError, ValueError):
        return None
    given = {each.arg for each in call.keywords}
    for place, parameter in enumerate(parameters):
        number = parameter.default
        if option_rank(parameter.name) is None or type(number) is not int or number < 1:
            continue
        by_place = parameter.kind is not parameter.KEYWORD_ONLY and place < len(call.args)
        return None if by_place or parameter.name in given else f"{parameter.name}={number}"
    return None
