"""The numbers of threads that a script sets in its environment before it imports torch.

OpenMP and MKL read them as torch loads them, and a probed process has torch before its script runs.
"""

from __future__ import annotations

import ast
import contextlib
import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")
"""Read once, when torch is imported; later torch's own call says how many."""
_WITHOUT_TORCH = {*sys.stdlib_module_names, "numpy"}
"""Modules whose import surely brings no torch."""


@contextlib.contextmanager
def as_at_the_import(file: Path) -> Iterator[None]:
    """The environment as a script leaves it where it imports torch; afterwards as it was."""
    try:
        found = thread_variables(file.read_text(encoding="utf-8", errors="replace"), os.environ)
    except (OSError, SyntaxError, ValueError, RecursionError):  # said when it is run
        found = {}
    before = {name: os.environ.get(name) for name in found}
    os.environ.update(found)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def thread_variables(text: str, environment: Mapping[str, str]) -> dict[str, str]:
    """What a script's own lines set to a literal, before anything is imported that may be torch.

    >>> thread_variables("import os\\nos.environ['OMP_NUM_THREADS'] = '1'\\nimport torch", {})
    {'OMP_NUM_THREADS': '1'}
    >>> thread_variables("import torch, os\\nos.environ['OMP_NUM_THREADS'] = '1'", {})
    {}
    """
    found: dict[str, str] = {}
    for statement in ast.parse(text).body:
        if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef)):
            continue
        if not _packages_of(statement) <= _WITHOUT_TORCH:
            break
        for name, value, is_default in _settings(statement):
            known = name in found or name in environment
            if name in THREAD_VARIABLES and value is not None and not (is_default and known):
                found[name] = value
    return found


def _packages_of(statement: ast.stmt) -> set[str]:
    packages: set[str] = set()
    for node in ast.walk(statement):
        if isinstance(node, ast.Import):
            packages |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            packages.add("" if node.level else (node.module or "").partition(".")[0])
    return packages


def _settings(statement: ast.stmt) -> Iterator[tuple[str | None, str | None, bool]]:
    """Names and values that it puts into the environment, and whether only where none was."""
    if isinstance(statement, ast.Assign):
        for target in statement.targets:
            if isinstance(target, ast.Subscript) and _is_environment(target.value):
                yield _literal(target.slice), _literal(statement.value), False
    call = statement.value if isinstance(statement, ast.Expr) else None
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute):
        return
    if not _is_environment(call.func.value):
        return
    if call.func.attr == "setdefault" and len(call.args) == 2:
        yield _literal(call.args[0]), _literal(call.args[1]), True
    if call.func.attr == "update":
        for one in call.args:
            if isinstance(one, ast.Dict):
                for key, value in zip(one.keys, one.values, strict=True):
                    yield _literal(key), _literal(value), False
        for named in call.keywords:
            yield named.arg, _literal(named.value), False


def _is_environment(node: ast.expr) -> bool:
    """Whether it is `os.environ`, or `environ`."""
    return getattr(node, "attr", getattr(node, "id", "")) == "environ"


def _literal(node: ast.expr | None) -> str | None:
    """A text; also `str(4)`."""
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.Call(func=ast.Name(id="str"), args=[ast.Constant(value=int(number))]):
            return str(number)
    return None
