"""What must stay light: `--help` and the side that only supervises; and the list of options."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import click
import pytest
from batchadvisor.cli import cli
from batchadvisor.cli.run import MORE, SECTIONS, run
from click.testing import CliRunner

SCRIPTS = Path(__file__).with_name("scripts")
FLAGS = Path(__file__).with_name("golden_flags.txt")
HEAVY = ("torch", "tensorboard", "numpy", "rich", "jinja2", "torch_tb_profiler")
WATCH = """
import json, sys
try:
    exec(sys.argv.pop(1))
except SystemExit as end:
    assert not end.code, end.code
print("\\n" + json.dumps(sorted({name.partition(".")[0] for name in sys.modules})))
"""
HELP = "from batchadvisor.cli import main; main()"


def imported_by(code, *arguments, folder):
    """The top-level modules that are loaded after `code` ran in a fresh process."""
    command = [sys.executable, "-c", WATCH, code, *arguments]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, cwd=folder, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return set(json.loads(done.stdout.splitlines()[-1]))


class TestLight:
    @pytest.mark.parametrize(
        "arguments",
        [
            ("--help",),
            ("run", "--help"),
            ("run", "--help-all"),
            ("advise", "--help"),
            ("analyze", "--help"),
            ("tails", "--help"),
            ("doctor", "--help"),
            ("memory", "--help"),
            ("estimate", "--help"),
            ("plan", "--help"),
            ("emit", "--help"),
            ("view", "--help"),
            ("report", "--help"),
            ("compare", "--help"),
            ("--version",),
        ],
    )
    def test_help_is_light(self, arguments, tmp_path):
        seen = imported_by(HELP, *arguments, folder=tmp_path)
        assert "batchadvisor" in seen
        assert seen.isdisjoint(HEAVY)

    def test_a_heavy_import_would_be_seen(self, tmp_path):
        seen = imported_by("import numpy; " + HELP, "--help", folder=tmp_path)
        assert seen.intersection(HEAVY) == {"numpy"}

    def test_the_supervisor_lives_without_torch(self, tmp_path):
        seen = imported_by("import batchadvisor.session.run", folder=tmp_path)
        assert "batchadvisor" in seen
        assert seen.isdisjoint({"torch", "tensorboard", "torch_tb_profiler", "numpy"})

    def test_a_whole_run_is_supervised_without_torch(self, tmp_path, monkeypatch):
        """A script is steered, measured and advised on; torch is in its process alone."""
        script = tmp_path / "train.py"
        script.write_text((SCRIPTS / "plain.py").read_text())
        monkeypatch.setenv("OMP_NUM_THREADS", "1")
        options = ("--device", "cpu", "--sizes", "16", "--budget", "10s", "--quiet", "--no-profile")
        seen = imported_by(HELP, "run", *options, str(script), folder=tmp_path)
        assert "batchadvisor" in seen
        assert "torch" not in seen

    def test_torch_would_be_seen(self, tmp_path):
        seen = imported_by("import torch; " + HELP, "--help", folder=tmp_path)
        assert "torch" in seen

    def test_a_report_needs_no_torch(self, tmp_path):
        record = Path(__file__).with_name("data") / "records/char_gpt_cpu.json"
        arguments = ("report", str(record), "-o", "report.html")
        seen = imported_by(HELP, *arguments, folder=tmp_path)
        assert (tmp_path / "report.html").is_file()
        assert seen.isdisjoint({"torch", "tensorboard", "torch_tb_profiler", "pynvml"})


def flags():
    """Every verb with its options and arguments, one a line."""
    lines = []
    context = click.Context(cli)
    for verb in cli.list_commands(context):
        command = cli.get_command(context, verb)
        lines.append(verb)
        for parameter in sorted(
            command.params, key=lambda parameter: (parameter.param_type_name, parameter.name)
        ):
            if isinstance(parameter, click.Argument):
                lines.append(f"    {parameter.human_readable_name}")
            else:
                value = "" if parameter.is_flag else f" {parameter.type.name}"
                lines.append(
                    f"    {', '.join([*parameter.opts, *parameter.secondary_opts])}{value}"
                )
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
