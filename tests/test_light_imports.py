"""What must stay light: `--help`, the side that only supervises, rooms without torch, features.

And the list of options.
"""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import click
import pytest
from batchadvisor.cli import FEATURES, cli
from batchadvisor.cli.run import MORE, SECTIONS, run
from click.testing import CliRunner

from .test_layers import NOT_THE_PACKAGE, PACKAGE, feature_of, modules, rule_of

SCRIPTS = Path(__file__).with_name("scripts")
RECORD = Path(__file__).with_name("data") / "records/char_gpt_cpu.json"
FLAGS = Path(__file__).with_name("golden_flags.txt")
HEAVY = ("torch", "tensorboard", "numpy", "rich", "jinja2", "torch_tb_profiler")
WATCH = """
import json, sys
try:
    exec(sys.argv.pop(1))
except SystemExit as end:
    assert not end.code, end.code
print("\\n" + json.dumps(sorted(sys.modules)))
"""
HELP = "from batchadvisor.cli import main; main()"
HELPS = """
from batchadvisor.cli import main
for words in sys.argv[1:]:
    sys.argv = ["batchadvisor", *words.split()]
    try:
        main()
    except SystemExit as end:
        assert not end.code, (words, end.code)
"""
"""Several commands, one after another; each of them is one argument."""
WITHOUT_TORCH = """
import importlib, sys

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "torch":
            raise ImportError("torch is blocked: " + name)

sys.meta_path.insert(0, Blocked())
for name in sys.argv[1:]:
    importlib.import_module(name)
"""
PURE = ("advisor/", "reports/", "probes/trace/", "probes/memory/")
"""Rooms that import where there is no torch, as do parts of features with such a rule."""


def imported_by(code, *arguments, folder):
    """The modules that are loaded after `code` ran in a fresh process."""
    command = [sys.executable, "-c", WATCH, code, *arguments]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, cwd=folder, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return set(json.loads(done.stdout.splitlines()[-1]))


class TestLight:
    def test_help_is_light(self, tmp_path):
        verbs = cli.list_commands(click.Context(cli))
        pages = ("--help", "--version", "run --help-all", *(f"{verb} --help" for verb in verbs))
        seen = imported_by(HELPS, *pages, folder=tmp_path)
        assert {f"batchadvisor.features.{name}" for name in FEATURES.values()} <= seen
        assert seen.isdisjoint(HEAVY)

    def test_a_heavy_import_would_be_seen(self, tmp_path):
        assert "numpy" in imported_by(f"import numpy; {HELP}", "--help", folder=tmp_path)

    def test_the_supervisor_lives_without_torch(self, tmp_path):
        seen = imported_by("import batchadvisor.session.run", folder=tmp_path)
        assert "batchadvisor" in seen
        assert seen.isdisjoint({"torch", "tensorboard", "torch_tb_profiler", "numpy"})

    def test_a_whole_run_is_supervised_without_torch(self, tmp_path, monkeypatch):
        """A script is steered, measured and advised on; torch is in its process alone."""
        script = tmp_path / "train.py"
        script.write_text((SCRIPTS / "plain.py").read_text())
        monkeypatch.setenv("OMP_NUM_THREADS", "1")
        options = ("--device", "cpu", "--sizes", "16", "--budget", "5s", "--quiet", "--no-profile")
        seen = imported_by(HELP, "run", *options, str(script), folder=tmp_path)
        assert "batchadvisor" in seen
        assert "torch" not in seen

    def test_a_report_needs_no_torch(self, tmp_path):
        arguments = ("report", str(RECORD), "-o", "report.html")
        seen = imported_by(HELP, *arguments, folder=tmp_path)
        assert (tmp_path / "report.html").is_file()
        assert seen.isdisjoint({"torch", "tensorboard", "torch_tb_profiler", "pynvml"})


class TestWithoutTorch:
    def test_pure_rooms_import(self, tmp_path):
        bound = [
            path
            for path in modules()
            if feature_of(path) and (rule := rule_of(path)) is not None and "torch" not in rule[0]
        ]
        names = {
            "batchadvisor." + path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
            for path in (*bound, *(path for path in modules() if path.startswith(PURE)))
        }
        seen = imported_by(WITHOUT_TORCH, *names, folder=tmp_path)
        assert names <= seen
        assert len(names) > 30
        assert "torch" not in seen

    def test_the_block_works(self, tmp_path):
        with pytest.raises(AssertionError, match="torch is blocked"):
            imported_by(WITHOUT_TORCH, "batchadvisor.probes.doors.loader", folder=tmp_path)


class TestFeatures:
    """Their commands are found by their names, late; the core does its job without any."""

    def test_each_command_is_there_under_its_name(self):
        context = click.Context(cli)
        assert set(FEATURES) <= set(cli.list_commands(context))
        assert all(cli.get_command(context, verb).name == verb for verb in FEATURES)
        assert cli.get_command(context, "nonsense") is None
        holders = {path.parent.name for path in (PACKAGE / "features").glob("*/command.py")}
        assert holders >= {*FEATURES.values(), "board", "estimate", "plan", "snapshot"}

    @pytest.mark.parametrize(
        ("arguments", "features"),
        [
            ("run --help-all", set()),
            ("advise --help", set()),
            ("memory --help", {"snapshot"}),
            ("emit --help", {"plan"}),
        ],
    )
    def test_what_is_not_asked_for_is_not_loaded(self, arguments, features, tmp_path):
        seen = imported_by(HELP, *arguments.split(), folder=tmp_path)
        loaded = {name.split(".")[2] for name in seen if name.startswith("batchadvisor.features.")}
        assert loaded == features

    @pytest.fixture
    def folder(self, tmp_path):
        """The package as it is, but for its features."""
        package = tmp_path / "batchadvisor"
        package.mkdir()
        for each in PACKAGE.iterdir():
            if each.name not in {*NOT_THE_PACKAGE, "features"} and each.name[0] != ".":
                (package / each.name).symlink_to(each)
        return tmp_path

    def test_the_core_does_its_job_without_them(self, folder):
        # An installation for developers would find what the package in the folder lacks.
        main = (
            "import sys\nfinders = [each for each in sys.meta_path if 'editable' not in repr(each)]"
        )
        main += f"\nsys.meta_path[:] = finders\n{HELP}"
        imported_by(main, "report", str(RECORD), "-o", "report.html", folder=folder)
        assert (folder / "report.html").is_file()
        imported_by(main, "run", "--help-all", folder=folder)
        with pytest.raises(AssertionError, match=r"No module named .batchadvisor[.]features"):
            imported_by(main, "memory", "snapshot.pickle", folder=folder)


def flags():
    """Every verb with its options and arguments, one a line."""
    lines = []
    context = click.Context(cli)
    for verb in cli.list_commands(context):
        command = cli.get_command(context, verb)
        lines.append(verb)
        for each in sorted(command.params, key=lambda each: (each.param_type_name, each.name)):
            if isinstance(each, click.Argument):
                lines.append(f"    {each.human_readable_name}")
            else:
                value = "" if each.is_flag else f" {each.type.name}"
                lines.append(f"    {', '.join([*each.opts, *each.secondary_opts])}{value}")
    return "\n".join(lines) + "\n"


class TestTwoLevels:
    """`run --help` shows what people use, `run --help-all` the rest as well."""

    def test_each_option_has_one_place(self):
        names = [name for rows in (*SECTIONS.values(), *MORE.values()) for name in rows]
        options = [each.name for each in run.params if isinstance(each, click.Option)]
        assert sorted(names) == sorted(options)

    def test_the_first_page_is_short(self):
        first, every = (CliRunner().invoke(run, [page]).output for page in ("--help", "--help-all"))
        shown = re.findall(r"^  (-.+?)(?:  |$)", first, re.MULTILINE)
        assert 10 < len(shown) <= 15
        assert set(shown) < set(re.findall(r"^  (-.+?)(?:  |$)", every, re.MULTILINE))
        assert all(each.get_help_record(click.Context(run))[1].split()[0] in every
                   for each in run.params if isinstance(each, click.Option))  # fmt: skip


class TestFlags:
    def test_they_are_those_of_the_list(self):
        """Run with BATCHADVISOR_UPDATE_GOLDEN=1, this writes the list anew; read the diff."""
        if os.environ.get("BATCHADVISOR_UPDATE_GOLDEN"):
            FLAGS.write_text(flags())
        assert flags() == FLAGS.read_text()
