"""The import rules between the rooms, read from the source of every module."""

import ast
import re
import sys
from itertools import chain
from pathlib import Path

import batchadvisor
import pytest

PACKAGE = Path(batchadvisor.__file__).parent
NOT_THE_PACKAGE = {"tests", "bench", "build", "examples", "scripts", "dist", "docs", "site"}
SHARED = ("records", "errors", "units", "spread")
REPORTS_AS_DATA = ("report", "chart", "text", "sizes", "tab", "anatomy", "blocks")
"""Builders make it, renderers show it."""
HEAVY = {"torch", "tensorboard", "torch_tb_profiler", "numpy", "rich", "jinja2", "pynvml"}

RULES_BY_ROOM = """
.                           | msgspec        | SHARED
records                     | msgspec        | records
advisor                     | msgspec        | SHARED advisor
advisor/measured            | msgspec numpy  | SHARED advisor/measured advisor/tails
advisor/search              | msgspec        | SHARED advisor/search advisor/choose
                                               advisor/measured
advisor/choose              | msgspec        | SHARED advisor/choose advisor/measured
advisor/explain             | msgspec        | SHARED advisor/explain advisor/choose
                                               advisor/measured advisor/tails
advisor/gpu_memory          | msgspec        | SHARED advisor/gpu_memory
advisor/split               | msgspec        | SHARED advisor/split advisor/measured
advisor/tails               | msgspec        | SHARED advisor/tails
probes                      |                |
probes/process              | msgspec torch  | SHARED __init__ probes/process probes/devices
                                               probes/source
probes/worker               | msgspec torch  | SHARED __init__ probes/worker probes/windows
                                               probes/doors probes/loader probes/devices
                                               probes/source probes/process probes/distributed
                                               probes/fake_step
probes/windows              | msgspec torch  | SHARED probes/windows probes/loader
                                               probes/devices/device_probe probes/process/messages
                                               probes/process/orders
probes/doors                | msgspec torch  | SHARED probes/doors probes/loader probes/source
                                               probes/devices probes/process/messages
                                               probes/process/orders probes/process/faults
probes/loader               | msgspec torch  | SHARED probes/loader
probes/devices              | msgspec torch  | SHARED probes/devices probes/nvml
probes/nvml                 | msgspec pynvml | SHARED probes/nvml
probes/source               | msgspec yaml   | SHARED probes/source
probes/trace                | msgspec numpy  | SHARED probes/trace
probes/fake_step            | torch          | SHARED probes/fake_step probes/devices/live_objects
                                               probes/memory/stacks probes/windows/optimizer_hooks
                                               probes/windows/step_flops
probes/memory               | msgspec        | SHARED probes/memory
probes/distributed          | msgspec torch  | SHARED probes/distributed probes/worker
                                               probes/windows probes/devices/device_probe
                                               probes/process
probes/distributed/start_hook |              |
reports                     | msgspec        | SHARED MODEL reports/words
reports/words               |                | SHARED reports/words
reports/builder             | msgspec        | SHARED MODEL reports/words reports/builder
reports/builder/charts      | msgspec        | SHARED MODEL reports/words reports/builder
reports/builder/devices     | msgspec        | SHARED MODEL reports/words reports/builder
reports/builder/sections    | msgspec        | SHARED MODEL reports/words reports/builder
reports/builder/sizes       | msgspec        | SHARED MODEL reports/words reports/builder
reports/terminal            | rich           | SHARED MODEL reports/words reports/terminal
reports/markdown            |                | MODEL reports/words reports/markdown
reports/data                | msgspec        | SHARED MODEL
reports/events              | tensorboard    | SHARED MODEL reports/events
reports/html                | msgspec jinja2 | SHARED MODEL reports/words reports/html
features                    |                |
features/remedies/in_script | msgspec torch  | SHARED features/remedies/in_script
                                               features/remedies/records features/remedies/settings
                                               probes/fake_step/checkpointed_blocks probes/loader
                                               probes/source/call_site probes/windows
                                               probes/worker/task
features/estimate/fit       | msgspec        | SHARED features/estimate/fit
                                               features/estimate/records advisor/gpu_memory
                                               advisor/measured
features/plan/split         | msgspec        | SHARED features/plan/split features/plan/records
                                               advisor/measured advisor/split
"""
"""Of each room the outside modules, and the rooms of ours (or modules), that it may import.

`features/remedies/in_script` runs inside the script's process, and is as bound as a probe.
"""
SHORT_NAMES = {
    "SHARED": SHARED,
    "MODEL": tuple(f"reports/{name}" for name in REPORTS_AS_DATA),
}


def _rules():
    """The table by room: two sets."""
    rules = {}
    for row in re.split(r"\n(?=\S)", RULES_BY_ROOM.strip()):
        room, outside, ours = row.split("|")
        named = (SHORT_NAMES.get(name, (name,)) for name in ours.split())
        rules[room.strip().removeprefix(".")] = set(outside.split()), {*chain(*named)}
    return rules


RULES = _rules()
PARTS = {
    "records": "records",
    "words": "reports/words",
    "page": "reports/builder",
    "terminal": "reports/terminal",
    "markdown": "reports/markdown",
    "html": "reports/html",
}
"""A feature's own part, a module or a folder of that name, keeps the rules of a room of the core,
and may import the feature's own data too."""
OWN_DATA = ("records", "words")
"""Each of them may import those that stand before it."""
DOORS = ("cli", "session", "callback", "__init__", "__main__")
DOORS_OF_FEATURES = ("features/plan/engines",)
"""They join the rooms and may import everything, heavy things inside functions only; `session`
does not import what calls it. So do modules of a feature that are no part with rules."""
AT_THE_TOP = {"features/board/tensorboard_plugin.py": {"tensorboard"}}
"""Only TensorBoard imports this module, and it needs TensorBoard's base class to define its own."""
ONLY_IN_FUNCTIONS = {
    "reports/events": {"tensorboard"},
    "probes/process": {"torch"},
    "probes/worker": {"./probes/distributed", "./probes/fake_step"},
}
"""`./` is a wing of ours: most runs need nothing of it, and it imports the other one."""
TYPING_ONLY = {"typing_extensions"}


def modules():
    """Every module of the package: its path below the package, and its file."""
    files = sorted(PACKAGE.rglob("*.py"))
    shown = {path.relative_to(PACKAGE): path for path in files}
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
    imports = []

    def visit(node, level, types):
        for child in ast.iter_child_nodes(node):
            inner = level and not isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef))
            guarded = isinstance(child, ast.If) and "TYPE_CHECKING" in ast.dump(child.test)
            if isinstance(child, ast.Import):
                imports.extend((child.lineno, alias.name, level, types) for alias in child.names)
            elif isinstance(child, ast.ImportFrom):
                imports.extend(
                    (child.lineno, name, level, types) for name in _from(child, Path(path).parent)
                )
            visit(child, inner, types or guarded)

    visit(ast.parse(text), True, False)
    return imports


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
        f"./{(base / alias.name).as_posix()}"
        if (PACKAGE / base / f"{alias.name}.py").exists() or (PACKAGE / base / alias.name).is_dir()
        else f"./{(base / '__init__').as_posix()}"
        for alias in node.names
    ]


def feature_of(path):
    """`features/plan/engines/slurm.py` is of `plan`, `session/run.py` and `features` of none."""
    parts = path.split("/")
    return parts[1] if parts[0] == "features" and len(parts) > 2 else ""


def rule_of(path):
    """What a module may import: outside modules, and rooms of ours; `None` for a door."""
    room, feature = room_of(path), feature_of(path)
    part = path.removesuffix(".py").split("/")[2] if feature else ""
    if part in PARTS:
        data = OWN_DATA[: OWN_DATA.index(part)] if part in OWN_DATA else OWN_DATA
        own = {f"features/{feature}/{each}" for each in (*data, part)}
        outside, ours = RULES[PARTS[part]]
        return outside, {*ours, *own}
    joins = (*DOORS, *DOORS_OF_FEATURES)
    if is_within(path.removesuffix(".py"), joins) or (feature and room == f"features/{feature}"):
        return None
    return RULES[room]


def is_within(path, allowed):
    return any(path == folder or path.startswith(folder + "/") for folder in allowed)


def violations(text, path):
    """What a module imports against the rules, one line each."""
    bad = []
    room = room_of(path)
    feature, rule = feature_of(path), rule_of(path)
    for line, name, at_module_level, types_only in imports_of(text, path):
        where = f"{path}:{line}: {name}"
        top = name.split(".")[0]
        if top == "batchadvisor":
            bad.append(f"{where}: inside the package imports are relative")
        elif name == "<outside the package>":
            bad.append(f"{where}: leaves the package")
        elif feature_of(f"{name[2:]}/") not in ("", feature):
            bad.append(f"{where}: a feature is imported by itself alone")
        elif rule is None:
            if room.startswith("session") and is_within(name, ("./cli", "./callback")):
                bad.append(f"{where}: the corridor does not know who comes through it")
            allowed = AT_THE_TOP.get(path, ())
            if top in HEAVY and top not in allowed and at_module_level and not types_only:
                bad.append(f"{where}: heavy, belongs inside a function")
        elif name.startswith("./"):
            if not is_within(name[2:], rule[1]):
                bad.append(f"{where}: {room or 'the root'} may not import it")
            elif (
                is_within(name, ONLY_IN_FUNCTIONS.get(room, ()))
                and at_module_level
                and not types_only
            ):
                bad.append(f"{where}: belongs inside a function")
        elif top not in sys.stdlib_module_names and top not in rule[0]:
            if not (types_only and top in TYPING_ONLY):
                bad.append(f"{where}: {room or 'the root'} may not import it")
        elif top in ONLY_IN_FUNCTIONS.get(room, ()) and at_module_level and not types_only:
            bad.append(f"{where}: belongs inside a function")
    return bad


class TestRules:
    def test_every_module_keeps_them(self):
        files = modules()
        assert [bad for path in files for bad in violations(files[path].read_text(), path)] == []
        # The walk really saw the rooms; each has a rule, or `rule_of` had failed.
        seen = {"records/run.py", "probes/doors/loader.py", "features/estimate/command.py"}
        assert seen <= files.keys()

    @pytest.mark.parametrize(
        ("path", "text", "part"),
        [
            ("advisor/bad.py", "import torch", "advisor may not import it"),
            ("advisor/bad.py", "def f():\n    import torch.nn", "bad.py:2: torch.nn"),
            ("advisor/bad.py", "from ..probes.devices import host", "host: advisor may not"),
            ("advisor/bad.py", "from ..probes.devices.host import num_cores", "host: advisor may"),
            ("advisor/bad.py", "from ..cli import main", "cli/__init__: advisor may not"),
            ("advisor/bad.py", "from batchadvisor.records import Goal", "relative"),
            ("advisor/bad.py", "from ...elsewhere import thing", "leaves the package"),
            ("advisor/bad.py", "from ..features.estimate.records import E", "by itself alone"),
            ("advisor/choose/bad.py", "from ..search.cost import Budget", "choose may not"),
            ("advisor/search/bad.py", "from ..explain import reasons", "search may not"),
            ("probes/doors/bad.py", "from ...advisor.search import next_trial", "doors may not"),
            ("probes/doors/bad.py", "from ..worker import trial_runner", "probes/doors may not"),
            ("probes/process/bad.py", "import torch", "inside a function"),
            ("probes/worker/bad.py", "from ..distributed.lockstep import Agreement", "function"),
            ("probes/trace/bad.py", "import torch", "probes/trace may not"),
            ("reports/bad.py", "from ..advisor.advise import advise", "reports may not"),
            ("reports/events/bad.py", "import tensorboard", "inside a function"),
            ("reports/html/bad.py", "from ..builder.run import build_report", "html may not"),
            ("reports/builder/bad.py", "from rich.text import Text", "builder may not"),
            ("cli/bad.py", "from ..features.estimate import estimate", "by itself alone"),
            ("session/bad.py", "def f():\n    from ..features import estimate", "by itself alone"),
            ("features/gone/bad.py", "from ..estimate import estimate", "by itself alone"),
            ("features/gone/page.py", "from ..estimate.words import fits", "by itself alone"),
            ("features/estimate/page.py", "import rich", "page.py:1: rich"),
            ("features/estimate/page.py", "from .estimate import gpus_of", "may not import it"),
            ("features/estimate/words.py", "from .fit import gpus", "may not import it"),
            ("features/board/html/bad.py", "from ..board import Board", "may not import it"),
            ("features/estimate/records.py", "from ...units import GIB", "may not import it"),
            ("features/estimate/records.py", "from .words import fits", "may not import it"),
            ("features/estimate/fit/bad.py", "from ....session import run", "fit may not import"),
            ("features/board/html/bad.py", "from ..page import compare_page", "may not import"),
            ("features/plan/engines/bad.py", "import torch", "heavy"),
            ("features/board/tensorboard_plugin.py", "import torch", "heavy"),
            ("units.py", "from .advisor import search", "the root may not"),
            ("session/bad.py", "import torch", "heavy"),
            ("session/setup/bad.py", "from ...cli.run import run", "corridor"),
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
            ("advisor/choose/good.py", "import math\nfrom ...records import G\nfrom . import knee"),
            ("probes/worker/good.py", "import torch\nfrom ..devices import host"),
            ("probes/worker/good.py", "from ... import __version__"),
            ("probes/trace/good.py", "from ...errors import RunError\nfrom .events import Event"),
            ("reports/events/good.py", "def f():\n    import tensorboard"),
            ("session/good.py", "def f():\n    import torch\nfrom ..advisor.advise import advise"),
            ("cli/run.py", "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import torch"),
            ("features/estimate/good.py", "from ...session.run import Run\nfrom .fit import gpus"),
            ("features/estimate/page.py", "from ...reports.builder.sections import tail"),
            ("features/estimate/page.py", "from .words.fits import TITLE"),
            ("features/board/tensorboard_plugin.py", "import tensorboard"),
        ],
    )
    def test_a_good_module_passes(self, path, text):
        assert violations(text, path) == []
