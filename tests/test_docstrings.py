"""The examples in docstrings are true."""

import doctest
import importlib

import pytest

from .test_layers import modules

WITH_EXAMPLES = sorted(path for path, file in modules().items() if ">>> " in file.read_text())


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
