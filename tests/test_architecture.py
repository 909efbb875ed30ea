"""The drawings of docs/architecture.md, and every path that a page names, are there in the code."""

from __future__ import annotations

import re

from . import pages
from .pages import ROOT


class TestArchitecture:
    """The drawings name what is there."""

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


def _tops() -> set[str]:
    return {name.split(".")[1] for name in _packages() if "." in name}


def _packages() -> list[str]:
    """The packages that pyproject.toml lists; tomllib needs Python 3.11."""
    text = (ROOT / "pyproject.toml").read_text()
    listed = text.partition("\npackages = [")[2].partition("]")[0]
    return re.findall(r'"([\w.]+)"', listed)
