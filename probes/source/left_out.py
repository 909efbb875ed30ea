"""Finds out whether the training loop itself leaves out a batch that is shorter than the size."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from ...records import SourceLine
from .script_text import LONGEST_TEXT, ScriptText, name_of, target_name
from .size_names import option_rank


def find_left_out(files: Sequence[str]) -> str:
    """The place and the condition, `train.py:14 (len(x) < batch_size)`; empty without.

    Every loop with a backward pass must have one, ahead of that: `if len(x) < batch_size: break`,
    or `continue`. Compared has to be with a name of the size, which follows it.

    Args:
        files: of the user's code.
    """
    found = []
    for file in files:
        text = ScriptText.of(SourceLine(file=file, line=1))
        if text is None or ".backward(" not in text.text:
            continue
        for loop in ast.walk(text.tree):
            passes = _backward(loop) if isinstance(loop, ast.For) else []
            if not isinstance(loop, ast.For) or not passes:
                continue
            test = _test_of(loop, before=min(passes))
            if test is None:
                return ""
            shown = " ".join(text.segment(test).split())[:LONGEST_TEXT]
            found.append(f"{SourceLine(file=file, line=test.lineno)} ({shown})")
    return found[0] if found else ""


def _backward(loop: ast.For) -> list[int]:
    """Lines of the backward passes of a loop; not those of a loop or function within it."""
    return [
        node.lineno
        for node in _own_nodes(loop.body)
        if isinstance(node, ast.Call) and target_name(node.func) == "backward"
    ]


def _own_nodes(body: Sequence[ast.AST]) -> Iterator[ast.AST]:
    for node in body:
        yield node
        if not isinstance(node, (ast.For, ast.While, ast.FunctionDef, ast.Lambda, ast.ClassDef)):
            yield from _own_nodes(list(ast.iter_child_nodes(node)))


def _test_of(loop: ast.For, before: int) -> ast.Compare | None:
    """The comparison by which a loop leaves out a short batch above a line."""
    batch = {node.id for node in ast.walk(loop.target) if isinstance(node, ast.Name)}
    lengths: set[str] = set()
    for statement in loop.body:
        if statement.lineno >= before:
            return None
        if isinstance(statement, ast.Assign):
            names = {node.id for node in ast.walk(statement) if isinstance(node, ast.Name)}
            made = {target_name(each) or "" for each in statement.targets} - {""}
            for target in statement.targets:
                made |= {node.id for node in ast.walk(target) if isinstance(node, ast.Name)}
            if _is_length(statement.value, batch, lengths):
                lengths |= made
            elif names & batch:
                batch |= made
        elif isinstance(statement, ast.If) and isinstance(
            statement.body[-1], (ast.Break, ast.Continue)
        ):
            test = statement.test
            if isinstance(test, ast.Compare) and _asks(test, batch, lengths):
                return test
    return None


def _asks(test: ast.Compare, batch: set[str], lengths: set[str]) -> bool:
    """Whether a comparison is true of a batch that has fewer samples than the size."""
    if len(test.ops) != 1:
        return False
    left, right, kind = test.left, test.comparators[0], test.ops[0]
    if isinstance(kind, ast.Gt):  # batch_size > len(x)
        left, right, kind = right, left, ast.Lt()
    if isinstance(kind, ast.NotEq) and _is_length(right, batch, lengths):
        left, right = right, left
    if not isinstance(kind, (ast.Lt, ast.NotEq)):
        return False
    return _is_length(left, batch, lengths) and option_rank(name_of(right) or "") is not None


def _is_length(node: ast.expr, batch: set[str], lengths: set[str]) -> bool:
    """Whether an expression counts the samples of a batch: `len(x)`, `x.size(0)`, `x.shape[0]`."""
    if isinstance(node, ast.Name):
        return node.id in lengths
    counted: ast.expr | None = None
    if isinstance(node, ast.Call):
        arguments = node.args
        if target_name(node.func) == "len" and len(arguments) == 1:
            counted = arguments[0]
        elif isinstance(node.func, ast.Attribute) and node.func.attr == "size":
            counted = node.func.value if _is_zero(*arguments) else None
    elif isinstance(node, ast.Subscript) and _is_zero(node.slice):
        shape = node.value
        if isinstance(shape, ast.Call):  # x.size()[0]
            shape = shape.func
        if isinstance(shape, ast.Attribute) and shape.attr in ("shape", "size"):
            counted = shape.value
    if counted is None:
        return False
    return any(isinstance(each, ast.Name) and each.id in batch for each in ast.walk(counted))


def _is_zero(*arguments: ast.expr) -> bool:
    return len(arguments) == 1 and (
        isinstance(arguments[0], ast.Constant) and arguments[0].value == 0
    )
