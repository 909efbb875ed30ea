"""The drawings of docs/architecture.md, and every path that a page names, are there in the code.

And what is asked of every module: one meaning for a constant, traits in the place of a door's name,
sentences that only word a decision.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator

import pytest

from . import pages
from .pages import ROOT
from .test_layers import PARTS, feature_of, imports_of, modules

SEVERAL_VALUES = {
    *("KINDS", "LEAST_NUMBERS", "MOST", "NARROW", "OUTSIDE", "PIECE", "SMALLEST", "UNKNOWN")
}
"""Names that still mean several things in rooms apart: the list only ever becomes shorter."""


class TestArchitecture:
    def test_the_rooms_are_the_folders(self) -> None:
        drawn = set(re.findall(r"\b([a-z]+)/", pages.block("rooms").text))
        assert drawn == _tops()
        for name in re.findall(r"\b\w+\.py\b", pages.block("rooms").text):
            assert (ROOT / name).is_file(), name

    def test_the_way_of_a_trial_is_in_the_code(self) -> None:
        stations = re.findall(r"(\d+) ([\w/]+\.py) +(\w+)", pages.block("trial").text)
        assert sorted(int(number) for number, _, _ in stations) == list(range(1, 16))
        for _, path, name in stations:
            text = (ROOT / path).read_text()
            assert re.search(rf"^ *(?:def|class) {name}\b", text, flags=re.MULTILINE), path

    def test_every_file_that_a_page_names_exists(self) -> None:
        rooms = _tops()
        named = [
            (page, path)
            for page, text in pages.texts().items()
            for path in re.findall(r"`((?:\w+/)+[\w.-]*)`", text)
            if path.split("/")[0] in {*rooms, "tests", "bench", "scripts", "examples"}
        ]
        assert len(named) > 50
        assert [pair for pair in named if not (ROOT / pair[1]).exists()] == []


def test_every_folder_is_listed() -> None:
    """Else a build warns that setuptools takes it for a package that is left out."""
    files = (file for top in _tops() for file in (ROOT / top).rglob("*") if file.is_file())
    folders = {file.parent.relative_to(ROOT).parts for file in files}
    names = {".".join(("batchadvisor", *parts)) for parts in folders if "__pycache__" not in parts}
    assert names == set(_packages()) - {"batchadvisor"}


class TestConstants:
    """A reader who has met a constant's name knows what it means, wherever it is met again."""

    def test_one_name_has_one_value(self) -> None:
        places: defaultdict[str, dict[str, str]] = defaultdict(dict)
        for path, file in modules().items():
            for name, value in _constants(file.read_text()):
                places[name][path] = value
        several = {
            name
            for name, values in places.items()
            # A picture and a page have a width, a gap and columns of their own.
            if len(set(values.values())) > 1 and not all(_is_of_a_page(path) for path in values)
        }
        assert several == SEVERAL_VALUES

    def test_equal_values_are_equal_however_they_are_written(self) -> None:
        assert dict(_constants("A = 1 << 20\nB: int = 1024**2")) == {"A": "1048576", "B": "1048576"}
        assert dict(_constants("A, B = 2, 'b'\n_C = 3")) == {"A": "2", "B": "'b'"}


def _is_of_a_page(path: str) -> bool:
    part = path.removesuffix(".py").split("/")[2] if feature_of(path) else ""
    return path.startswith("reports/") or part in {*PARTS} - {"records"}


def _constants(text: str) -> Iterator[tuple[str, str]]:
    """Names and values of the public constants of a module."""
    for node in ast.parse(text).body:
        if not isinstance(node, (ast.Assign, ast.AnnAssign)) or node.value is None:
            continue
        target = node.targets[0] if isinstance(node, ast.Assign) else node.target
        pairs = [(target, node.value)]
        if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
            pairs = list(zip(target.elts, node.value.elts, strict=True))
        for each, value in pairs:
            if isinstance(each, ast.Name) and each.id.isupper() and not each.id.startswith("_"):
                yield each.id, _value(value)


def _value(node: ast.expr) -> str:
    """A value as text; one of numbers is computed, so that `1 << 20` is 1,048,576."""
    parts = (ast.Constant, ast.BinOp, ast.UnaryOp, ast.operator, ast.unaryop)
    if all(isinstance(part, parts) for part in ast.walk(node)):
        return repr(eval(compile(ast.Expression(node), "constant", "eval")))
    return ast.unparse(node)


def _tops() -> set[str]:
    return {name.split(".")[1] for name in _packages() if "." in name}


def _packages() -> list[str]:
    """The packages that pyproject.toml lists; tomllib needs Python 3.11."""
    text = (ROOT / "pyproject.toml").read_text()
    listed = text.partition("\npackages = [")[2].partition("]")[0]
    return re.findall(r'"([\w.]+)"', listed)


MAY_COMPARE_DOORS = ("probes/doors/", "cli/")
"""Elsewhere what follows from a door is asked of its traits; see records/doors.py."""


def compared_doors(text: str) -> list[int]:
    """The lines that compare a door with a name, or choose by one."""
    lines = set()
    for node in ast.walk(ast.parse(text)):
        sides: list[ast.expr] = []
        if isinstance(node, ast.Match):
            sides = [node.subject]
        elif isinstance(node, ast.Compare) and any(
            isinstance(operator, (ast.Eq, ast.NotEq, ast.In, ast.NotIn)) for operator in node.ops
        ):
            sides = [node.left, *node.comparators]
        if any(getattr(side, "id", getattr(side, "attr", "")) == "door" for side in sides):
            lines.add(node.lineno)
    return sorted(lines)


class TestDoors:
    def test_nobody_compares_a_door_where_its_traits_say_what_follows(self) -> None:
        bad = [
            f"{path}:{line}"
            for path, file in modules().items()
            if not path.startswith(MAY_COMPARE_DOORS)
            for line in compared_doors(file.read_text())
        ]
        assert bad == []

    def test_a_comparison_is_seen(self) -> None:
        text = """discovery.door == "loader"
"loader" != record.discovery.door
door in ("loader", "keras")
match options.door:
    case "live":
        pass
discovery.traits.takes_turns
found.door is None
"""
        assert compared_doors(text) == [1, 2, 3, 4]


@pytest.mark.parametrize("path", ["advisor/explain/reasons.py", "advisor/explain/headline.py"])
def test_the_sentences_of_an_answer_choose_nothing(path: str) -> None:
    """A sentence that chose again could contradict the choice."""
    text = modules()[path].read_text()
    asked = {name for _, name, *_ in imports_of(text, path)}
    chosen = {name for name in asked if name.startswith("./advisor/choose")}
    assert chosen <= {"./advisor/choose/decision"}
    names = {
        alias.name
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.ImportFrom) and node.module == "choose.decision"
        for alias in node.names
    }
    assert "Decision" in names
    assert names <= {"Because", "Decision", "Rival", "Rule"}


def test_what_one_bench_takes_from_another_is_there() -> None:
    """No test runs most of them: a name that moved would be missed by whoever measures next."""
    trees = {path.stem: ast.parse(path.read_text()) for path in (ROOT / "bench").glob("*.py")}
    missing = []
    for stem, tree in trees.items():
        for node in ast.walk(tree):
            if not isinstance(node, ast.ImportFrom) or node.module not in trees:
                continue
            there = {
                name.id if isinstance(name, ast.Name) else getattr(name, "name", "")
                for name in ast.walk(trees[node.module])
                if isinstance(name, (ast.Name, ast.FunctionDef, ast.ClassDef, ast.alias))
            }
            missing += [f"{stem}: {each.name}" for each in node.names if each.name not in there]
    assert not missing
