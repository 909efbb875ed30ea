"""The working folder before and after."""

import os
from pathlib import Path

import msgspec
import pytest
from batchadvisor.probes import tree
from batchadvisor.probes.tree import Tree


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "kept.txt").write_text("as it was")
    (tmp_path / "changed.txt").write_text("before")
    (tmp_path / "gone.txt").write_text("soon")
    (tmp_path / "out").mkdir()
    return tmp_path


def changes(found):
    return {(one.path, one.action) for one in found.changes()}


def test_new_changed_and_gone(here):
    found = Tree(here, (here / "out",))
    Path("changed.txt").write_text("after it")
    Path("gone.txt").unlink()
    Path("new").mkdir()
    Path("new/file.db").write_bytes(b"1")
    Path("out/record.json").write_text("ours")
    assert changes(found) == {
        ("changed.txt", "write"),
        ("gone.txt", "remove"),
        ("new", "mkdir"),
        ("new/file.db", "write"),
    }
    assert all(one.listed for one in found.changes()), "nobody saw the script do it"


def test_names_that_are_not_utf8(here):
    found = Tree(here, ())
    Path(os.fsdecode(b"caf\xe9.txt")).write_text("")
    (one,) = found.changes()
    assert (one.path, one.action) == (r"caf\udce9.txt", "write")
    assert msgspec.json.decode(msgspec.json.encode(one), type=type(one)) == one


def test_a_folder_of_ours_that_was_made_since(here):
    found = Tree(here, ())
    Path("ours").mkdir()
    Path("ours/file").write_text("")
    found.ignore(Path("ours"))
    assert changes(found) == set()


def test_nothing_happened(here):
    assert changes(Tree(here, ())) == set()


def test_what_python_itself_leaves_is_left_out(here):
    found = Tree(here, ())
    Path("__pycache__").mkdir()
    Path("__pycache__/a.pyc").write_text("")
    assert changes(found) == set()


def test_where_our_own_output_goes_is_left_out(here):
    """`batchadvisor run ... > log 2>&1`: the shell opened that file, not the script."""
    with Path("log").open("wb") as log:
        saved = os.dup(2)
        try:
            os.dup2(log.fileno(), 2)
            found = Tree(here, ())
            os.write(2, b"progress")
        finally:
            os.dup2(saved, 2)
            os.close(saved)
    assert changes(found) == set()


def test_a_large_tree_is_not_listed(here, monkeypatch):
    monkeypatch.setattr(tree, "MAX_ENTRIES", 2)
    found = Tree(here, ())
    assert not found.complete
    Path("new.txt").write_text("")
    assert changes(found) == set()


def test_links_are_not_followed(here):
    (here / "loop").symlink_to(here)
    found = Tree(here, ())
    assert found.complete
    assert changes(found) == set()
