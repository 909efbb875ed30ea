"""A file's code with another number in one place."""

import ast
import importlib
import inspect
import pathlib
import sys
import traceback
from importlib.machinery import SourceFileLoader
from pathlib import Path

import pytest
from batchadvisor.probes.source.replaced import (
    compiled,
    in_pathlib,
    put_in_force,
    replacement_at,
    replacement_of,
)
from batchadvisor.records import BatchSizeSource, SourceLine

SCRIPT = '''\
"""Its text."""
from __future__ import annotations
EPOCHS, B = 3, 2 ** 5  # é
def loader(batch_size: Unknown = 16, workers=16):
    return batch_size, workers
def wrong(): raise ValueError(B)
'''


@pytest.fixture
def script(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text(SCRIPT)
    return "train.py"


def source(line, before, template):
    place = SourceLine(file="train.py", line=line)
    return BatchSizeSource(place=place, before=before, template=template)


def names_of(path, *replacements):
    names = {"__name__": "train"}
    exec(compiled(path, replacements), names)
    return names


def test_a_place_that_was_found(script):
    found = source(4, "batch_size: Unknown = 16", "batch_size: Unknown = {}")
    there = replacement_at(found, 16, 48)
    assert there.line == 4
    assert names_of(script)["loader"]() == (16, 16)
    assert names_of(script, there)["loader"]() == (48, 16)
    assert names_of(script, there.with_number(7))["loader"]() == (7, 16)
    assert Path(script).read_text() == SCRIPT


def test_any_expression(script):
    """It may be computed; the lines, and the text that a traceback shows, are the file's."""
    values = ast.parse(SCRIPT).body[2].value.elts
    names = names_of(script, replacement_of(script, values[1], 5))
    assert (names["EPOCHS"], names["B"]) == (3, 5)
    with pytest.raises(ValueError, match=r"^5$") as raised:
        names["wrong"]()
    assert traceback.extract_tb(raised.tb)[-1].line == SCRIPT.splitlines()[5]
    assert inspect.getsource(names["wrong"]) == SCRIPT.splitlines(keepends=True)[5]


@pytest.mark.parametrize(
    "found",
    [
        source(4, "=16", "={}"),  # not told from another one
        source(4, "batch_size=20", "batch_size={}"),
        source(3, "B = 16", "B = {}"),
        source(40, "batch_size=16", "batch_size={}"),
        source(4, "batch_size=args.b", ""),
        BatchSizeSource(place=None, before="--b 16", template="--b {}"),
        BatchSizeSource(place=SourceLine(file="gone.py", line=1), before="b=16", template="b={}"),
    ],
)
def test_a_place_that_is_not_sure(script, found):
    assert replacement_at(found, 16, 48) is None


def test_a_file_that_was_changed_since(script):
    there = replacement_at(source(4, "batch_size: Unknown = 16", "batch_size: Unknown = {}"), 16, 2)
    Path(script).write_text("# one line more\n" + SCRIPT)
    with pytest.raises(LookupError, match=r"line 4 of .*train\.py is not what it was"):
        compiled(script, [there])


def test_modules_that_are_imported(script, monkeypatch):
    """Also where Python has compiled them before."""
    monkeypatch.syspath_prepend(".")
    monkeypatch.setattr(SourceFileLoader, "get_code", SourceFileLoader.get_code)
    Path("settings_of_it.py").write_text("SIZE = 16\n")
    Path("others_of_it.py").write_text("from settings_of_it import SIZE\n")
    import settings_of_it

    assert settings_of_it.SIZE == 16
    del sys.modules["settings_of_it"]
    node = ast.parse(Path("settings_of_it.py").read_text()).body[0].value
    put_in_force([replacement_of("settings_of_it.py", node, 3)])
    assert importlib.import_module("others_of_it").SIZE == 3


def test_what_pathlib_of_python_310_keeps_is_replaced_too(monkeypatch):
    class Kept:
        open = staticmethod(open)

    monkeypatch.setattr(pathlib, "_NormalAccessor", Kept, raising=False)
    in_pathlib("open", len)
    in_pathlib("rename", len)  # it keeps none
    assert Kept.open is len
    assert not hasattr(Kept, "rename")
