"""The diff of `--json=brief`: git applies it, and the script then trains on such batches."""

import subprocess

import pytest

from .driver import run_preloaded as run
from .driver import run_well
from .test_edit import OPTIONS, PLAIN

pytestmark = pytest.mark.slow


def test_the_applied_diff_sets_the_size(tmp_path):
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    script = tmp_path / "train.py"
    script.write_text(PLAIN)
    options = ("--json=brief", *OPTIONS[1:])
    done = run_well("run", *options, "train.py", folder=tmp_path)
    assert (done.answer["size"], done.answer["own_size"]) == (64, 16)
    assert len(done.stdout.encode()) < 2048
    assert script.read_text() == PLAIN  # nothing edited it
    subprocess.run(["git", "apply"], input=done.answer["diff"], text=True, cwd=tmp_path, check=True)
    again = run("run", "--dry-run", "--json", "train.py", folder=tmp_path)
    assert again.answer["discovery"]["native_batch_size"] == 64
