"""Every callback names the options one by one, as editors show them."""

from __future__ import annotations

import ast
import inspect
import sys
from dataclasses import fields
from pathlib import Path
from types import ModuleType

import pytest
from batchadvisor import ProfilingCallback
from batchadvisor import callback as package
from batchadvisor.callback.options import Options, script

FOLDER = Path(package.__file__).parent / "adapters"


def constructor(name):
    """Parameters of a callback's constructor, read without its framework: name to default."""
    tree = ast.parse((FOLDER / f"{package._HOMES[name]}.py").read_text())
    (made,) = (node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == name)
    (init,) = (node for node in made.body if getattr(node, "name", "") == "__init__")
    arguments = init.args
    assert arguments.vararg is None
    assert arguments.kwarg is None
    assert all(
        argument.annotation is not None for argument in [*arguments.args[1:], *arguments.kwonlyargs]
    )
    pairs = zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
    return {argument.arg: ast.literal_eval(default) for argument, default in pairs}, init


@pytest.mark.parametrize("name", package.__all__)
def test_a_callback_names_every_option(name):
    options = {field.name: field.default for field in fields(Options) if field.name != "logdir"}
    given, init = constructor(name)
    own = {"model": None, "optimizer": None} if name == "ProfilingCallback" else {}
    assert given == {**own, **options}
    (made,) = (
        node
        for node in ast.walk(init)
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "Options"
    )
    assert {keyword.arg: keyword.value.id for keyword in made.keywords} == {
        option: option for option in ["logdir", *options]
    }


def test_an_option_that_does_not_exist(tmp_path):
    assert "profile_after" in inspect.signature(ProfilingCallback).parameters
    with pytest.raises(TypeError, match="profil"):
        ProfilingCallback(tmp_path, profil=True)


def test_the_program_of_a_ray_worker_is_not_the_users_script(monkeypatch):
    monkeypatch.setattr("sys.argv", ["/env/ray/_private/workers/default_worker.py", "--node"])
    assert script().endswith("default_worker.py")  # somebody's own, without Ray
    monkeypatch.setitem(sys.modules, "ray", ModuleType("ray"))
    assert script() == "ray-worker"
