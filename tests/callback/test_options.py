"""Every callback shows its options to editors, and takes no others."""

from __future__ import annotations

import ast
import sys
from dataclasses import fields
from pathlib import Path
from types import ModuleType

import pytest
from batchadvisor import ProfilingCallback
from batchadvisor import callback as package
from batchadvisor.callback.options import GivenOptions, Options, script

FOLDER = Path(package.__file__).parent / "adapters"


@pytest.mark.parametrize("name", package.__all__)
def test_the_signature_of_a_callback_shows_every_option(name):
    """Editors look through `Unpack`; read without the callback's framework."""
    tree = ast.parse((FOLDER / f"{package._HOMES[name]}.py").read_text())
    (made,) = (node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == name)
    (init,) = (node for node in made.body if getattr(node, "name", "") == "__init__")
    assert init.args.kwarg is not None
    assert ast.unparse(init.args.kwarg.annotation) == "Unpack[GivenOptions]"


def test_they_are_the_fields_of_the_options():
    shown = {field.name: field.type for field in fields(Options) if field.name != "logdir"}
    types = {name: kind.__forward_arg__ for name, kind in GivenOptions.__annotations__.items()}
    assert types == shown


def test_an_option_that_does_not_exist(tmp_path):
    with pytest.raises(TypeError, match="profil"):
        ProfilingCallback(tmp_path, profil=True)


def test_the_program_of_a_ray_worker_is_not_the_users_script(monkeypatch):
    monkeypatch.setattr("sys.argv", ["/env/ray/_private/workers/default_worker.py", "--node"])
    assert script().endswith("default_worker.py")  # somebody's own, without Ray
    monkeypatch.setitem(sys.modules, "ray", ModuleType("ray"))
    assert script() == "ray-worker"
