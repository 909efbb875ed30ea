"""Compiled modules: the user's own where Python keeps them, else the run's, and no others."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest
from batchadvisor.probes.process import worker_environment
from batchadvisor.probes.process.worker_environment import (
    CACHE_PREFIX,
    DONT_WRITE,
    variables_for,
    worker_command,
)


@pytest.fixture
def module(tmp_path, monkeypatch):
    """A module that nobody compiled, standing for torch."""
    monkeypatch.setattr(sys, "pycache_prefix", None)
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    path = tmp_path / "site/heavy.py"
    path.parent.mkdir()
    path.write_text("WEIGHT = 1\n")
    real = importlib.util.find_spec
    spec = importlib.util.spec_from_file_location("torch", path)
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: spec if name == "torch" else real(name)
    )
    return path


def compiled(module):
    return Path(importlib.util.cache_from_source(module))


@pytest.mark.parametrize(
    ("why", "is_kept"),
    [("", True), ("forbidden, but there", True), ("forbidden", False), ("read only", False)],
)
def test_where_python_keeps_it_nothing_changes(module, monkeypatch, why, is_kept):
    """Else each process would compile it, and the run keeps it."""
    monkeypatch.setattr(sys, "dont_write_bytecode", "forbidden" in why)
    monkeypatch.setattr(worker_environment.os, "access", lambda *_: why != "read only")
    if "there" in why:
        compiled(module).parent.mkdir()
        compiled(module).touch()
    own = {"A": "1", DONT_WRITE: "1"}
    of_the_run = {"A": "1", CACHE_PREFIX: str(Path("scratch/bytecode"))}
    assert variables_for(own, Path("scratch")) == (own if is_kept else of_the_run)


def test_a_worker_keeps_it_in_the_run_and_nowhere_else(module, tmp_path, monkeypatch):
    """The flags of this interpreter go along, except the one that forbids it."""
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    scratch = tmp_path / "scratch"
    variables = variables_for({**os.environ, "PYTHONPATH": str(module.parent)}, scratch)
    command = worker_command(0, 1, variables)
    assert "-B" not in command
    command[-1] = "import heavy"
    subprocess.run(command, env=variables, check=True)
    assert [path.name.partition(".")[0] for path in scratch.rglob("heavy.*.pyc")] == ["heavy"]
    assert not compiled(module).exists()
