"""Finds the values that callers give to a function's parameters, by the syntax tree. Pure."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import NamedTuple

Function = ast.FunctionDef | ast.AsyncFunctionDef


class Around(NamedTuple):
    """The function around a line.

    Attributes:
        owner: the class that it is a method of; empty for a plain function.
    """

    function: Function
    owner: str

    @property
    def names(self) -> set[str]:
        """Names by which the function is called; a class is called by its own name."""
        if self.function.name != "__init__":
            return {self.function.name}
        return {self.owner, "__init__"}

    def takes(self, name: str) -> bool:
        """Whether callers may give `name`."""
        return self.collects(name) or name in [*self._by_position(), *self._by_keyword()]

    def collects(self, name: str) -> bool:
        """Whether `name` is among what comes as `**kwargs`."""
        arguments = self.function.args
        return arguments.kwarg is not None and name not in self._by_position()

    def unpacks(self, call: ast.Call) -> bool:
        """Whether a call inside the function passes its `**kwargs` on."""
        own = self.function.args.kwarg
        return own is not None and any(
            keyword.arg is None
            and isinstance(keyword.value, ast.Name)
            and keyword.value.id == own.arg
            for keyword in call.keywords
        )

    def given(self, call: ast.Call, name: str) -> tuple[ast.expr, ast.AST] | None:
        """The value that a call gives to the parameter `name`, and the node that holds it."""
        for keyword in call.keywords:
            if keyword.arg == name:
                return keyword.value, keyword
        position = self._by_position().index(name) if name in self._by_position() else None
        if position is None or position >= len(call.args):
            return None
        if any(isinstance(arg, ast.Starred) for arg in call.args[: position + 1]):
            return None
        return call.args[position], call

    def _by_position(self) -> list[str]:
        arguments = self.function.args
        named = [argument.arg for argument in (*arguments.posonlyargs, *arguments.args)]
        return named[1:] if self.owner and not self._is_static() else named

    def _by_keyword(self) -> list[str]:
        return [argument.arg for argument in self.function.args.kwonlyargs]

    def _is_static(self) -> bool:
        return any(
            isinstance(decorator, ast.Name) and decorator.id == "staticmethod"
            for decorator in self.function.decorator_list
        )


def around(tree: ast.Module, line: int) -> Around | None:
    """The innermost function whose body a line belongs to."""
    innermost: Around | None = None
    for each in _functions(tree):
        node = each.function
        if node.body[0].lineno <= line <= (node.end_lineno or node.lineno):
            innermost = each
    return innermost


def function_of(tree: ast.Module, parameter: ast.arg) -> Around | None:
    """The function that a parameter belongs to."""
    of_it = (each for each in _functions(tree) if parameter in ast.walk(each.function.args))
    return next(of_it, None)


def _functions(tree: ast.Module) -> Iterator[Around]:
    """Every function of the text; those around others come first."""
    for owner in ast.walk(tree):
        for node in ast.iter_child_nodes(owner):
            if isinstance(node, Function):
                yield Around(node, owner.name if isinstance(owner, ast.ClassDef) else "")
