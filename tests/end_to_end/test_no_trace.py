"""A probed script leaves what it made before and during its first steps, and that is listed."""

from .driver import SCRIPTS, listing, run


def test_a_trainer_that_leaves_traces(styled):
    result = styled("class_trainer")
    touched = {(one.path, one.action) for one in result.record.files}
    assert {
        ("runs", "mkdir"),
        ("runs/config.json", "write"),
        ("runs/train.log", "write"),
    } <= touched
    # Checkpoints were asked for, and not written.
    saves = {path for path, action in touched if action == "save (not written)"}
    assert saves <= {f"runs/epoch{number}.pt" for number in range(4)}
    written = {path for path, action in touched if action in ("write", "mkdir")}
    there = {one for one in listing(result.folder) if not one.startswith("out")}
    # No final.pt, finally.txt or atexit.txt: the script's ending never ran.
    assert there == written | {"class_trainer.py"} == {
        "class_trainer.py", "runs", "runs/config.json", "runs/train.log",
    }  # fmt: skip


def test_a_save_is_counted_and_not_made(tmp_path):
    """A checkpoint at every step, over one that is there already."""
    text = (SCRIPTS / "plain.py").read_text()
    loop = "        optimizer.step()\n"
    assert loop in text
    save = "        torch.save(model.state_dict(), 'model.pt')\n"
    ending = "import atexit; atexit.register(lambda: open('atexit.txt', 'w'))\n"
    script = tmp_path / "saves.py"
    script.write_text(ending + text.replace(loop, loop + save))
    (tmp_path / "model.pt").write_bytes(b"precious")
    before = listing(tmp_path)
    options = ("--json", "-q", "-o", "out", "--no-profile", "--goal", "memory", "--sizes", "40")
    done = run("run", *options, "saves.py", folder=tmp_path)
    assert done.code == 0, done
    assert [(one.path, one.action) for one in done.record.files] == [
        ("model.pt", "save (not written)")
    ]
    after = {name: data for name, data in listing(tmp_path).items() if not name.startswith("out")}
    assert after == before
    assert done.left == []


def test_only_the_run_folder_is_new(styled):
    for name in ("plain", "spawn_workers", "gan"):
        result = styled(name)
        there = {one.name for one in result.folder.iterdir()}
        assert there == {"out", f"{name}.py"}
        files = {one.name for one in result.run_folder.iterdir()}
        assert files - {"traces"} == {"record.json", "samples.jsonl", "script.log"}
        assert list(result.run_folder.rglob(".*")) == []
