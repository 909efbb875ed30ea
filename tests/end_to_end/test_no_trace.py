"""A probed script leaves what it made before and during its first steps, and that is listed."""

import pickle

import pytest
import torch

from .driver import SCRIPTS, listing, run_preloaded, run_well


def test_a_trainer_that_leaves_traces(styled):
    result = styled("class_trainer")
    touched = {(file.path, file.action) for file in result.record.files}
    assert {
        ("runs", "mkdir"),
        ("runs/config.json", "write"),
        ("runs/train.log", "write"),
    } <= touched
    # Checkpoints were asked for, and not written.
    saves = {path for path, action in touched if action == "save (not written)"}
    assert saves <= {f"runs/epoch{number}.pt" for number in range(4)}
    written = {path for path, action in touched if action in ("write", "mkdir")}
    there = {text for text in listing(result.folder) if not text.startswith("out")}
    # No final.pt, finally.txt or atexit.txt: the script's ending never ran.
    assert there == written | {"class_trainer.py"} == {
        "class_trainer.py", "runs", "runs/config.json", "runs/train.log",
    }  # fmt: skip


@pytest.mark.parametrize(
    "name",
    ["plain", *(pytest.param(name, marks=pytest.mark.slow) for name in ("spawn_workers", "gan"))],
)
def test_only_the_run_folder_is_new(styled, name):
    result = styled(name)
    there = {path.name for path in result.folder.iterdir()}
    assert there == {"out", f"{name}.py"}
    files = {path.name for path in result.run_folder.iterdir()}
    assert files - {"traces"} == {"record.json", "samples.jsonl", "script.log"}
    assert list(result.run_folder.rglob(".*")) == []


@pytest.mark.slow
def test_a_script_that_leaves_its_spawned_workers(tmp_path):
    """Its end closes the tracker of its semaphores; they are gone all the same."""
    text = (SCRIPTS / "spawn_workers.py").read_text()
    assert text.count("optimizer.step()") == 1
    script = tmp_path / "train.py"
    script.write_text(text.replace("optimizer.step()", "__import__('os')._exit(3)"))
    done = run_preloaded(
        "run", "--json", "-q", "-o", "out", "--no-profile", script.name, folder=tmp_path
    )
    assert done.code == 1
    assert "exit code 3" in done.error
    assert done.left == []


def run_after(code, folder):
    """A run of plain.py with something before it."""
    (folder / "train.py").write_text(code + (SCRIPTS / "plain.py").read_text())
    options = ("--json", "-q", "-o", "out", "--no-profile", "--goal", "memory", "--sizes", "32")
    return run_well("run", *options, "train.py", folder=folder)


SAVES = """
import os, pickle, torch
cache = torch.arange(6.0)
if not os.path.exists("cache.pkl"):
    with open("cache.pkl", "wb") as file:
        pickle.dump(cache, file)
with open("cache.pkl", "rb") as file:
    assert torch.equal(pickle.load(file), cache)
for name in ("opened.pt", "trained.pt"):
    with open(name, "wb") as file:
        torch.save(cache, file)
torch.save(cache, "named.pt")
"""


@pytest.mark.slow
def test_caches_are_whole_and_saves_are_listed(tmp_path):
    """What the script pickles it can read, also later; a file that stays empty is named."""
    torch.save("a real training", tmp_path / "trained.pt")
    done = run_after(SAVES, tmp_path)
    assert {(file.path, file.action) for file in done.record.files} == {
        ("cache.pkl", "write"),
        ("opened.pt", "write"),
        ("opened.pt", "save (not written)"),
        ("trained.pt", "write"),
        ("trained.pt", "save (not written)"),
        ("named.pt", "save (not written)"),
    }
    there = {"train.py", "out", "cache.pkl", "opened.pt", "trained.pt"}
    assert {path.name for path in tmp_path.iterdir()} == there
    assert torch.load(tmp_path / "trained.pt") == "a real training"
    assert torch.equal(pickle.loads((tmp_path / "cache.pkl").read_bytes()), torch.arange(6.0))


WRITES_IN_C = """
import sqlite3, subprocess
table = sqlite3.connect("runs.db")
table.execute("create table if not exists steps (loss real)")
table.commit()
subprocess.run(["sh", "-c", "echo started > from_a_child.txt; rm -f old.txt"], check=True)
subprocess.run(["touch", b"caf\\xe9.txt"], check=True)
open(b"th\\xe9.txt", "w").close()
"""


@pytest.mark.slow
def test_what_no_hook_sees_is_named_too(tmp_path):
    """A database and a child of the script: the listing of the folder finds what they left."""
    (tmp_path / "old.txt").write_text("made before")
    done = run_after(WRITES_IN_C, tmp_path)
    touched = {(file.path, file.action) for file in done.record.files}
    assert {
        ("runs.db", "write"),
        ("from_a_child.txt", "write"),
        ("old.txt", "remove"),
        (r"caf\udce9.txt", "write"),
        (r"th\udce9.txt", "write"),
    } <= touched
    assert len(done.record.files) == len({file.path for file in done.record.files})
    assert not [change for change in touched if change[0].startswith("out")]


CLEARED = """
import os, shutil
import torch
shutil.rmtree("kept", ignore_errors=True)
os.makedirs("kept")
raise ValueError("a bad option")
"""


@pytest.mark.parametrize("more", [(), ("--dry-run",)])
def test_what_was_removed_is_listed_where_the_script_fails(tmp_path, more):
    """An earlier checkpoint is gone, and no answer says so."""
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "model.pt").write_text("weights")
    (tmp_path / "train.py").write_text(CLEARED)
    done = run_preloaded("run", "-q", *more, "train.py", folder=tmp_path)
    assert done.code == 1
    *_, listed, error = done.stderr.rstrip().split("\n\n")
    assert listed == (
        "What the script itself did to files\n"
        "  remove  kept/model.pt\n"
        "  remove  kept\n"
        "  mkdir   kept"
    )
    assert error.startswith("Error: train.py raised ValueError: a bad option.")
