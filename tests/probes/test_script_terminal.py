"""The terminal that a script's standard input is: its size, and that nobody types."""

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest
from batchadvisor.probes.process.worker_launch import open_terminal

READS = "import os, sys; print(os.read(0, 10), sys.stdin.isatty()); print(repr(sys.stdin.read()))"


def open_files():
    return {entry.name for entry in Path("/proc/self/fd").iterdir()}


@pytest.fixture
def ask():
    """What a command prints whose input it is, in a session of its own."""
    before = open_files()
    ours, theirs = open_terminal()

    def _ask(*command):
        done = subprocess.run(
            command, stdin=theirs, start_new_session=True, timeout=60, check=False, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        return done.stdout

    yield _ask
    os.close(ours)
    os.close(theirs)
    assert open_files() == before


@pytest.mark.parametrize(
    ("variables", "size"), [({}, "24 80"), ({"COLUMNS": "132", "LINES": "40"}, "40 132")]
)
def test_its_size_without_one_of_ours(tmp_path, monkeypatch, variables, size):
    """A process without any terminal, as under cron."""
    for name in ("COLUMNS", "LINES"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert stty_below(subprocess.DEVNULL) == size


def test_its_size_is_that_of_ours(monkeypatch):
    monkeypatch.setenv("COLUMNS", "132")
    ours, theirs = pty.openpty()
    with os.fdopen(ours), os.fdopen(theirs):
        subprocess.run(["stty", "rows", "31", "cols", "97"], stdin=theirs, check=True)
        assert stty_below(theirs) == "31 97"


def stty_below(stdin):
    code = (
        "import subprocess\n"
        "from batchadvisor.probes.process.worker_launch import open_terminal\n"
        "ours, theirs = open_terminal()\n"
        "print(subprocess.run(['stty', 'size'], stdin=theirs, capture_output=True, text=True))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], stdin=stdin, capture_output=True, text=True, check=True
    )
    return done.stdout.partition("stdout='")[2].partition("\\n")[0]


def test_a_read_says_end_of_file_each_time(ask):
    assert ask(sys.executable, "-c", READS) == "b'' True\n''\n"
    assert ask("cat") == ""


def test_a_question_is_an_error_and_no_wait(ask):
    assert "EOFError: EOF when reading a line" in ask(sys.executable, "-c", "input('name? ')")
    asked = "import getpass, warnings; warnings.simplefilter('ignore'); getpass.getpass()"
    assert "EOFError" in ask(sys.executable, "-c", asked)
