"""A batch size that a script computes from other settings: `batch = environments * steps`. Pure."""

from __future__ import annotations

import ast

from .script_text import ScriptText, name_of, target_name

MOST_COMPUTATIONS = 4
_ROUNDING = ("int", "round", "max", "min", "floor", "ceil")
_ARITHMETIC = (ast.Mult, ast.FloorDiv, ast.Div)


def computed_as(
    file: str, text: ScriptText, name: str
) -> tuple[tuple[str, ...], tuple[str, ...]] | None:
    """How `name` is computed, step by step, and the settings that it comes from at last.

    `None` where it is no product or quotient of several settings, or one of a setting of its own
    name.
    """
    steps: list[str] = []
    leaves: list[str] = []
    _follow(file, text, name, steps, leaves)
    if not steps or name.lower() in {leaf.lower() for leaf in leaves}:
        return None
    return tuple(steps), tuple(dict.fromkeys(leaves))


def _follow(file: str, text: ScriptText, name: str, steps: list[str], leaves: list[str]) -> None:
    """Collects the steps that lead to a name."""
    found = _computation(text, name) if len(steps) < MOST_COMPUTATIONS else None
    if found is None:
        leaves.append(name)
        return
    node, names = found
    steps.append(f"{name} = {text.segment(_bare(node))} ({file}:{node.lineno})")
    for each in names:
        if each == name:
            leaves.append(name)
        else:
            _follow(file, text, each, steps, leaves)


def _computation(text: ScriptText, name: str) -> tuple[ast.expr, tuple[str, ...]] | None:
    """The value that is assigned to a name, and the settings in it, where it computes with them."""
    for node in ast.walk(text.tree):
        targets = node.targets if isinstance(node, ast.Assign) else ()
        if not any(target_name(target) == name for target in targets):
            continue
        value = _bare(node.value) if isinstance(node, ast.Assign) else None
        if isinstance(value, ast.BinOp) and isinstance(value.op, _ARITHMETIC):
            names = _names(value)
            if names:
                return value, tuple(dict.fromkeys(names))
    return None


def _bare(node: ast.expr) -> ast.expr:
    """Without `int(...)` around it."""
    while isinstance(node, ast.Call) and target_name(node.func) in _ROUNDING and node.args:
        node = node.args[0]
    return node


def _names(node: ast.expr) -> list[str]:
    """The settings in an expression of numbers and settings alone; else none."""
    node = _bare(node)
    if isinstance(node, ast.BinOp):
        left, right = _names(node.left), _names(node.right)
        numbers = [isinstance(_bare(side), ast.Constant) for side in (node.left, node.right)]
        whole = (left or numbers[0]) and (right or numbers[1])
        return left + right if whole else []
    name = name_of(node) if isinstance(node, (ast.Name, ast.Attribute, ast.Subscript)) else None
    return [] if name is None else [name]
