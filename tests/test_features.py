"""Commands of features are found by their names, late; the core does its job without any."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import click
import pytest
from batchadvisor.cli import FEATURES, cli

from .test_layers import NOT_THE_PACKAGE, PACKAGE

MAIN = (
    "import sys; "
    "sys.meta_path[:] = [each for each in sys.meta_path if 'editable' not in repr(each)]; "
    "from batchadvisor.cli import main; main()"
)
"""An installation for developers would find what the package in the folder lacks."""
LOADED = """
import json, sys
from batchadvisor.cli import cli
cli.main(sys.argv[1:], standalone_mode=False)
loaded = (name.split(".")[2] for name in sys.modules if name.startswith("batchadvisor.features."))
print("\\n" + json.dumps(sorted(set(loaded))))
"""


def python(code: str, *arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Runs code in a process of its own, which sees a package in `folder` first."""
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.run(
        command, capture_output=True, text=True, check=False, cwd=folder, timeout=120
    )


class TestCommands:
    def test_each_is_there_under_its_name(self) -> None:
        context = click.Context(cli)
        assert set(FEATURES) <= set(cli.list_commands(context))
        for verb in FEATURES:
            command = cli.get_command(context, verb)
            assert command is not None
            assert command.name == verb

    def test_every_feature_with_a_command_is_listed(self) -> None:
        holders = {path.parent.name for path in (PACKAGE / "features").glob("*/command.py")}
        assert set(FEATURES.values()) <= holders
        assert holders >= {"board", "estimate", "plan", "snapshot"}

    def test_no_feature_has_it(self) -> None:
        assert cli.get_command(click.Context(cli), "nonsense") is None

    @pytest.mark.parametrize(
        ("arguments", "loaded"),
        [
            (("run", "--help-all"), []),
            (("advise", "--help"), []),
            (("memory", "--help"), ["snapshot"]),
            (("emit", "--help"), ["plan"]),
        ],
    )
    def test_what_is_not_asked_for_is_not_loaded(
        self, arguments: tuple[str, ...], loaded: list[str], tmp_path: Path
    ) -> None:
        done = python(LOADED, *arguments, folder=tmp_path)
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout.splitlines()[-1]) == loaded


class TestWithoutFeatures:
    """The package as it is, but for its features."""

    @pytest.fixture
    def folder(self, tmp_path: Path) -> Path:
        package = tmp_path / "batchadvisor"
        package.mkdir()
        for each in PACKAGE.iterdir():
            if each.name not in {*NOT_THE_PACKAGE, "features"} and each.name[0] != ".":
                (package / each.name).symlink_to(each)
        return tmp_path

    def test_the_core_does_its_job(self, folder: Path) -> None:
        record = Path(__file__).with_name("data") / "records/char_gpt_cpu.json"
        done = python(MAIN, "report", str(record), "-o", "report.html", folder=folder)
        assert done.returncode == 0, done.stderr
        assert (folder / "report.html").is_file()
        done = python(MAIN, "run", "--help-all", folder=folder)
        assert done.returncode == 0, done.stderr

    def test_they_are_not_there(self, folder: Path) -> None:
        done = python(MAIN, "memory", "snapshot.pickle", folder=folder)
        assert "No module named 'batchadvisor.features'" in done.stderr
