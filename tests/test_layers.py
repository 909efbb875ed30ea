"""The import rules between the rooms, read from the source of every module."""

import ast
import subprocess
import sys
from pathlib import Path

import batchadvisor
import pytest

PACKAGE = Path(batchadvisor.__file__).parent
NOT_THE_PACKAGE = {"tests", "bench", "build", "examples", "scripts", "dist", "docs", "site"}
SHARED = ("records", "errors", "units", "spread")
HEAVY = {"torch", "tensorboard", "torch_tb_profiler", "numpy", "rich", "jinja2", "pynvml"}

# Room (the longest prefix counts) -> outside modules, and rooms of ours, that it may import.
RULES = {
    "": ({"msgspec"}, {*SHARED}),
    "records": ({"msgspec"}, {"records"}),
    "advisor": ({"msgspec"}, {*SHARED, "advisor"}),
    "advisor/tails": ({"msgspec"}, {*SHARED, "advisor"}),
    "probes": ({"msgspec", "torch", "pynvml"}, {*SHARED, "__init__", "probes"}),
    "probes/trace": ({"msgspec", "numpy"}, {*SHARED, "probes/trace"}),
    "probes/distributed": ({"msgspec", "torch"}, {*SHARED, "probes"}),
    "probes/distributed/start_hook": (set(), set()),
    "reports": ({"msgspec", "rich", "jinja2", "tensorboard"}, {*SHARED, "reports"}),
    "reports/board": ({"msgspec", "jinja2"}, {*SHARED, "reports"}),
    "reports/html": ({"msgspec", "jinja2"}, {*SHARED, "reports"}),
}
DOORS = ("cli", "session", "callback", "tensorboard_plugin", "__init__", "__main__")
"""They join the rooms and may import everything, heavy things inside functions only."""
AT_THE_TOP = {"tensorboard_plugin.py": {"tensorboard"}}
"""Only TensorBoard imports this module, and it needs TensorBoard's base class to define its own."""
ONLY_IN_FUNCTIONS = {"reports": {"tensorboard"}}
TYPING_ONLY = {"typing_extensions"}


def modules():
    """Every module of the package: its path below the package, and its file."""
    files = sorted(PACKAGE.rglob("*.py"))
    shown = {one.relative_to(PACKAGE): one for one in files}
    return {
        path.as_posix(): file
        for path, file in shown.items()
        if path.parts[0] not in NOT_THE_PACKAGE and not path.parts[0].startswith(".")
    }


def room_of(path):
    """`probes/trace/reader.py` is in `probes/trace`, `units.py` in ``."""
    folder = Path(path).parent.as_posix()
    return "" if folder == "." else folder


def imports_of(text, path):
    """(line, outside module or path of ours, at module level, for types only)."""
    found = []

    def visit(node, level, types):
        for child in ast.iter_child_nodes(node):
            inner = level and not isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef))
            guarded = isinstance(child, ast.If) and "TYPE_CHECKING" in ast.dump(child.test)
            if isinstance(child, ast.Import):
                found.extend((child.lineno, one.name, level, types) for one in child.names)
            elif isinstance(child, ast.ImportFrom):
                found.extend(
                    (child.lineno, name, level, types) for name in _from(child, Path(path).parent)
                )
            visit(child, inner, types or guarded)

    visit(ast.parse(text), True, False)
    return found


def _from(node, folder):
    if not node.level:
        return [node.module]
    for _ in range(node.level - 1):
        if folder == Path():
            return ["<outside the package>"]
        folder = folder.parent
    base = folder / (node.module or "").replace(".", "/")
    if node.module and not (PACKAGE / base).is_dir():
        return [f"./{base.as_posix()}"]
    # `from . import host` names a module, `from .. import __version__` something of __init__.
    return [
        f"./{(base / one.name).as_posix()}"
        if (PACKAGE / base / f"{one.name}.py").exists() or (PACKAGE / base / one.name).is_dir()
        else f"./{(base / '__init__').as_posix()}"
        for one in node.names
    ]


def is_within(path, allowed):
    return any(path == one or path.startswith(one + "/") for one in allowed)


def violations(text, path):
    """What a module imports against the rules, one line each."""
    bad = []
    room = room_of(path)
    door = is_within(path.removesuffix(".py"), DOORS)
    for line, name, at_module_level, types_only in imports_of(text, path):
        where = f"{path}:{line}: {name}"
        top = name.split(".")[0]
        if top == "batchadvisor":
            bad.append(f"{where}: inside the package imports are relative")
        elif name == "<outside the package>":
            bad.append(f"{where}: leaves the package")
        elif door:
            allowed = AT_THE_TOP.get(path, ())
            if top in HEAVY and top not in allowed and at_module_level and not types_only:
                bad.append(f"{where}: heavy, belongs inside a function")
        elif name.startswith("./"):
            if not is_within(name[2:], RULES[room][1]):
                bad.append(f"{where}: {room or 'the root'} may not import it")
        elif top not in sys.stdlib_module_names and top not in RULES[room][0]:
            if not (types_only and top in TYPING_ONLY):
                bad.append(f"{where}: {room or 'the root'} may not import it")
        elif top in ONLY_IN_FUNCTIONS.get(room, ()) and at_module_level and not types_only:
            bad.append(f"{where}: belongs inside a function")
    return bad


class TestRules:
    def test_every_module_keeps_them(self):
        found = modules()
        bad = [one for path, file in found.items() for one in violations(file.read_text(), path)]
        assert bad == []
        # The walk really saw the rooms.
        assert {room_of(path) for path in found} >= {"", "advisor", "probes", "probes/trace"}
        assert {
            "records/run.py",
            "advisor/search.py",
            "probes/steering.py",
            "cli/run.py",
        } <= found.keys()

    def test_every_room_has_a_rule(self):
        rooms = {room_of(path) for path in modules()}
        assert {one for one in rooms - set(RULES) if one.split("/")[0] not in DOORS} == set()

    @pytest.mark.parametrize(
        ("path", "text", "part"),
        [
            ("advisor/bad.py", "import torch", "advisor may not import it"),
            ("advisor/bad.py", "def f():\n    import torch.nn", "bad.py:2: torch.nn"),
            ("advisor/bad.py", "from ..probes import host", "probes/host: advisor may not"),
            ("advisor/bad.py", "from ..probes.host import num_cores", "probes/host: advisor may"),
            ("advisor/bad.py", "from ..cli import main", "cli/__init__: advisor may not"),
            ("advisor/bad.py", "from batchadvisor.records import Goal", "relative"),
            ("advisor/bad.py", "from ...elsewhere import thing", "leaves the package"),
            ("advisor/bad.py", "import numpy as np", "advisor may not"),
            ("probes/bad.py", "from ..advisor.search import Done", "probes may not"),
            ("probes/bad.py", "import tensorboard", "probes may not"),
            ("probes/trace/bad.py", "import torch", "probes/trace may not"),
            ("probes/trace/bad.py", "from ..host import num_cores", "probes/trace may not"),
            ("reports/bad.py", "from ..advisor.advise import advise", "reports may not"),
            ("reports/bad.py", "from ..session import store", "reports may not"),
            ("reports/bad.py", "import tensorboard", "inside a function"),
            ("units.py", "from .advisor import search", "the root may not"),
            ("units.py", "import torch", "the root may not"),
            ("session/bad.py", "import torch", "heavy"),
            ("cli/run.py", "from rich.text import Text", "heavy"),
            ("cli/view.py", "from tensorboard import program", "heavy"),
            ("tensorboard_plugin.py", "import torch", "heavy"),
            ("cli/run.py", "try:\n    import numpy\nexcept ImportError:\n    pass", "heavy"),
        ],
    )
    def test_a_bad_module_is_seen(self, path, text, part):
        bad = violations(text, path)
        assert len(bad) == 1
        assert part in bad[0]

    @pytest.mark.parametrize(
        ("path", "text"),
        [
            ("advisor/good.py", "import math\nfrom ..records import Goal\nfrom . import knee"),
            ("probes/good.py", "import torch\nfrom . import host\nfrom .. import __version__"),
            ("probes/trace/good.py", "from ...errors import RunError\nfrom .events import Event"),
            ("reports/good.py", "def f():\n    import tensorboard"),
            ("session/good.py", "def f():\n    import torch\nfrom ..advisor.search import Done"),
            ("cli/run.py", "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import torch"),
        ],
    )
    def test_a_good_module_passes(self, path, text):
        assert violations(text, path) == []


PURE = ("advisor/", "reports/", "probes/trace/")
IMPORT_ALL = """
import importlib, sys

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "torch":
            raise ImportError("torch is blocked: " + name)

sys.meta_path.insert(0, Blocked())
for name in sys.argv[1:]:
    importlib.import_module(name)
assert "torch" not in sys.modules
print(len(sys.argv) - 1)
"""


def import_without_torch(names, folder):
    command = [sys.executable, "-c", IMPORT_ALL, *names]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder)


class TestWithoutTorch:
    def test_pure_rooms_import(self, tmp_path):
        names = [
            "batchadvisor." + path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
            for path in modules()
            if path.startswith(PURE)
        ]
        done = import_without_torch(names, tmp_path)
        assert done.returncode == 0, done.stderr
        assert int(done.stdout) == len(names) > 30

    def test_the_block_works(self, tmp_path):
        done = import_without_torch(["batchadvisor.probes.steering"], tmp_path)
        assert done.returncode == 1
        assert "torch is blocked" in done.stderr
