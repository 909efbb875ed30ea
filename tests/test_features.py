"""Commands of features are found by their names, late; the core does its job without any."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import click
import pytest
from batchadvisor.cli import cli, features

from .test_layers import NOT_THE_PACKAGE, PACKAGE

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
    def test_every_module_of_that_name_holds_the_command(self) -> None:
        context = click.Context(cli)
        verbs = {
            path.stem.removesuffix("_command")
            for path in (PACKAGE / "features").glob("*/*_command.py")
        }
        assert verbs >= {"estimate", "plan", "emit", "memory", "view"}
        assert verbs <= set(cli.list_commands(context))
        for verb in verbs:
            command = cli.get_command(context, verb)
            assert command is not None, verb
            assert command.name == verb

    def test_no_feature_has_it(self) -> None:
        assert features.command("nonsense") is None
        assert features.find("nonsense") is None
        assert features.command("records") is None  # a module of features, and no command

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

    HELP = "from batchadvisor.cli import main; main()"

    @pytest.fixture
    def folder(self, tmp_path: Path) -> Path:
        package = tmp_path / "batchadvisor"
        (package / "features").mkdir(parents=True)
        for each in PACKAGE.iterdir():
            if each.name not in {*NOT_THE_PACKAGE, "features"} and each.name[0] != ".":
                (package / each.name).symlink_to(each)
        (package / "features/__init__.py").touch()
        (tmp_path / "train.py").touch()
        return tmp_path

    def test_its_commands_are_there(self, folder: Path) -> None:
        done = python(self.HELP, "--help", folder=folder)
        assert done.returncode == 0, done.stderr
        listed = {line.split()[0] for line in done.stdout.splitlines() if line.startswith("  ")}
        assert listed >= {"run", "advise", "report"}
        assert listed.isdisjoint({"estimate", "plan", "emit", "memory", "view"})

    def test_an_engine_is_missed_in_one_line(self, folder: Path) -> None:
        done = python(self.HELP, "run", "--engine", "slurm", "train.py", folder=folder)
        assert done.returncode == 2
        assert "--engine" in done.stderr
        assert "Traceback" not in done.stderr
