"""Every callback names the options one by one, as editors show them."""

from __future__ import annotations

import ast
import inspect
from dataclasses import fields
from pathlib import Path

import pytest
from batchadvisor import ProfilingCallback
from batchadvisor import callback as package
from batchadvisor.callback.options import Options

FOLDER = Path(package.__file__).parent


def constructor(name):
    """Parameters of a callback's constructor, read without its framework: name to default."""
    tree = ast.parse((FOLDER / f"{package._HOMES[name]}.py").read_text())
    (made,) = (one for one in tree.body if isinstance(one, ast.ClassDef) and one.name == name)
    (init,) = (one for one in made.body if getattr(one, "name", "") == "__init__")
    arguments = init.args
    assert arguments.vararg is None
    assert arguments.kwarg is None
    assert all(one.annotation is not None for one in [*arguments.args[1:], *arguments.kwonlyargs])
    pairs = zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
    return {one.arg: ast.literal_eval(default) for one, default in pairs}, init


@pytest.mark.parametrize("name", package.__all__)
def test_a_callback_names_every_option(name):
    options = {one.name: one.default for one in fields(Options) if one.name != "logdir"}
    given, init = constructor(name)
    own = {"model": None, "optimizer": None} if name == "ProfilingCallback" else {}
    assert given == {**own, **options}
    (made,) = (
        one
        for one in ast.walk(init)
        if isinstance(one, ast.Call) and getattr(one.func, "id", "") == "Options"
    )
    assert {one.arg: one.value.id for one in made.keywords} == {
        one: one for one in ["logdir", *options]
    }


def test_an_option_that_does_not_exist(tmp_path):
    assert "profile_after" in inspect.signature(ProfilingCallback).parameters
    with pytest.raises(TypeError, match="profil"):
        ProfilingCallback(tmp_path, profil=True)
