"""The command itself, on files, in a process of its own."""

import json
import os
import pickle
import subprocess
import sys

import pytest
from batchadvisor.records import MemoryAnalysis
from msgspec.json import decode

from .allocator import MIB, Allocator, frame, train


@pytest.fixture
def snapshot(tmp_path):
    device = Allocator()
    train(device, 8, leak=3 * MIB // 2)
    # A name of a file that would break out of HTML, Markdown and the terminal.
    device.malloc(40 * MIB, [frame("/x/<script>|`\x1b[31m.py", 7, "f<b>")])
    path = tmp_path / "snapshot.pickle"
    path.write_bytes(pickle.dumps(device.snapshot()))
    return path


def run(folder, *words):
    environment = {**os.environ, "COLUMNS": "100", "PYTHONIOENCODING": "utf-8"}
    return subprocess.run(
        [sys.executable, "-m", "batchadvisor", "memory", *map(str, words)],
        cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip


def test_the_text(tmp_path, snapshot):
    done = run(tmp_path, snapshot)
    assert (done.returncode, done.stderr) == (0, "")
    assert "job/train.py:41 (main) grew by 1.5 MiB a step over 6 steps" in done.stdout
    assert "(not tried)" in done.stdout
    assert "\x1b" not in done.stdout
    assert max(map(len, done.stdout.splitlines()[:-1])) <= 100
    assert "by stream and pool" not in done.stdout
    assert "by stream and pool" in run(tmp_path, snapshot, "--all").stdout


def test_json_is_the_record(tmp_path, snapshot):
    done = run(tmp_path, snapshot, "--json")
    analysis = decode(done.stdout.encode(), type=MemoryAnalysis)
    assert json.loads(done.stdout)["kind"] == "memory"
    assert analysis.devices[0].growth[0].bytes_per_step == 3 * MIB // 2
    assert [cut.tried for cut in analysis.cuts] == [False] * len(analysis.cuts)


def test_files_ask_nobody_and_are_escaped(tmp_path, snapshot):
    for name in ("memory.html", "memory.md", "memory.json"):
        for _ in range(2):  # its own file may be written over
            done = run(tmp_path, snapshot, "-o", name)
            assert done.returncode == 0, done.stderr
    text = (tmp_path / "memory.html").read_text()
    assert "default-src &#39;none&#39;" in text
    assert 'data-chart="c-memory_0"' in text
    assert "&lt;script&gt;|`" in text
    assert text.count("<script") == 2
    assert "<script>" not in (tmp_path / "memory.md").read_text()
    assert decode((tmp_path / "memory.json").read_bytes(), type=MemoryAnalysis).devices


def test_a_file_of_somebody_else_stays(tmp_path, snapshot):
    (tmp_path / "notes.md").write_text("mine")
    done = run(tmp_path, snapshot, "-o", "notes.md")
    assert done.returncode == 2
    assert (tmp_path / "notes.md").read_text() == "mine"


def test_a_bad_file_has_one_line_and_leaves_nothing(tmp_path):
    (tmp_path / "trap.pickle").write_bytes(b"\x80\x04cos\nsystem\n(X\x0a\0\0\0touch trap\x86R.")
    done = run(tmp_path, "trap.pickle", "-o", "memory.html")
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "wants to run code (os.system)" in done.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["trap.pickle"]


def test_torch_is_not_needed(tmp_path, snapshot):
    code = (
        "import sys; sys.modules['torch'] = sys.modules['numpy'] = None\n"
        "from batchadvisor.cli import main; main()"
    )
    words = [sys.executable, "-c", code, "memory", str(snapshot), "-o", "memory.html"]
    done = subprocess.run(
        words, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr
