"""The working folder before and after."""

import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from batchadvisor.probes.process import folder_snapshot
from batchadvisor.probes.process.folder_snapshot import FolderSnapshot


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "kept.txt").write_text("as it was")
    (tmp_path / "changed.txt").write_text("before")
    (tmp_path / "gone.txt").write_text("soon")
    (tmp_path / "out").mkdir()
    return tmp_path


def changes(snapshot):
    return {(change.path, change.action) for change in snapshot.changes()}


def test_new_changed_and_gone(here):
    snapshot = FolderSnapshot(here, (here / "out",))
    Path("changed.txt").write_text("after it")
    Path("gone.txt").unlink()
    Path("new").mkdir()
    Path("new/file.db").write_bytes(b"1")
    Path("out/record.json").write_text("ours")
    assert changes(snapshot) == {
        ("changed.txt", "write"),
        ("gone.txt", "remove"),
        ("new", "mkdir"),
        ("new/file.db", "write"),
    }
    assert all(change.listed for change in snapshot.changes()), "nobody saw the script do it"


def test_names_that_are_not_utf8(here):
    snapshot = FolderSnapshot(here, ())
    Path(os.fsdecode(b"caf\xe9.txt")).write_text("")
    (change,) = snapshot.changes()
    assert (change.path, change.action) == (r"caf\udce9.txt", "write")
    assert msgspec.json.decode(msgspec.json.encode(change), type=type(change)) == change


def test_a_folder_of_ours_that_was_made_since(here):
    snapshot = FolderSnapshot(here, ())
    Path("ours").mkdir()
    Path("ours/file").write_text("")
    snapshot.ignore(Path("ours"))
    assert changes(snapshot) == set()


STARTED = """
import subprocess, sys, time
print("begun", flush=True)
child = subprocess.Popen([sys.executable, "child.py"], stdin=subprocess.PIPE,
                         stdout=subprocess.DEVNULL, start_new_session=True)
time.sleep(0.5)
print("more", flush=True)
child.communicate(b"")
"""
CHILD = """
import sys, time
from pathlib import Path
from batchadvisor.probes.process.folder_snapshot import FolderSnapshot
snapshot = FolderSnapshot(Path.cwd(), ())
print("begun", flush=True)
sys.stdin.read()
Path("made.txt").write_text("by the script")
print([change.path for change in snapshot.changes()], file=sys.stderr)
"""


@pytest.mark.parametrize(
    "command", ["child.py > out.txt", "child.py | tee out.txt", "started.py > out.txt"]
)
def test_where_our_own_output_goes_is_no_file_of_the_script(command, here):
    """Nor is that of who started us in a group of our own, as each device of several is."""
    (here / "child.py").write_text(CHILD)
    (here / "started.py").write_text(STARTED)
    command = f"{sys.executable} {command}"
    done = subprocess.run(
        command, shell=True, cwd=here, input="", capture_output=True, text=True, check=False
    )
    assert done.stderr.splitlines()[-1:] == ["['made.txt']"], done


def test_what_python_itself_leaves_is_left_out(here):
    snapshot = FolderSnapshot(here, ())
    assert changes(snapshot) == set()
    Path("__pycache__").mkdir()
    Path("__pycache__/a.pyc").write_text("")
    assert changes(snapshot) == set()


def test_where_our_own_output_goes_is_left_out(here):
    """`batchadvisor run ... > log 2>&1`: the shell opened that file, not the script."""
    with Path("log").open("wb") as log:
        saved = os.dup(2)
        try:
            os.dup2(log.fileno(), 2)
            snapshot = FolderSnapshot(here, ())
            os.write(2, b"progress")
        finally:
            os.dup2(saved, 2)
            os.close(saved)
    assert changes(snapshot) == set()


def test_a_large_tree_is_not_listed(here, monkeypatch):
    monkeypatch.setattr(folder_snapshot, "MAX_TREE_ENTRIES", 2)
    snapshot = FolderSnapshot(here, ())
    assert not snapshot.complete
    Path("new.txt").write_text("")
    assert changes(snapshot) == set()


def test_links_are_not_followed(here):
    (here / "loop").symlink_to(here)
    snapshot = FolderSnapshot(here, ())
    assert snapshot.complete
    assert changes(snapshot) == set()
