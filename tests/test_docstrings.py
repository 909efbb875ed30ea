"""Docstrings are sentences, and the examples in them are true."""

import ast
import doctest
import importlib
import re

import pytest

from .test_layers import modules

WITH_EXAMPLES = sorted(path for path, file in modules().items() if ">>> " in file.read_text())
FRAGMENT = re.compile(r"(?:Of|So (?:much|many|long|few|near|is)|The same)\b")
"""Openings that make no sense to a reader who has not read the line above them."""


def test_there_are_some():
    assert "session/setup/options.py" in WITH_EXAMPLES


@pytest.mark.parametrize("path", WITH_EXAMPLES)
def test_examples(path):
    name = path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    results = doctest.testmod(
        importlib.import_module(f"batchadvisor.{name}"), optionflags=doctest.ELLIPSIS
    )
    assert results.attempted > 0
    assert results.failed == 0


def docstrings(text):
    """Line and text of each docstring: of the module, classes, functions, constants and fields."""
    for node in ast.walk(ast.parse(text)):
        body = node.body if isinstance(getattr(node, "body", None), list) else []
        for before, each in zip([None, *body], body, strict=False):
            documents = before is None or isinstance(before, (ast.Assign, ast.AnnAssign))
            value = each.value if documents and isinstance(each, ast.Expr) else None
            if isinstance(value, ast.Constant) and isinstance(value.value, str):
                yield each.lineno, value.value


def fragments(text):
    return [(line, said) for line, said in docstrings(text) if FRAGMENT.match(said)]


def test_no_docstring_begins_with_a_fragment():
    found = {path: fragments(file.read_text()) for path, file in modules().items()}
    assert {path: said for path, said in found.items() if said} == {}


def test_fragments_would_be_seen():
    text = '''"""The same for a notebook."""
X = 3
"""So many batches at once."""
class A:
    """A whole sentence."""
    x: int = 3
    """Of a block."""
    def f(self):
        """Of a tensor."""
'''
    assert [line for line, _ in fragments(text)] == [1, 3, 7, 9]
