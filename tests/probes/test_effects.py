"""The files that a script touches, seen by an audit hook in a process of its own."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from batchadvisor.probes.worker.file_effects import MAX_TOUCHED, FileWatch

WATCH = """
import json, os, shutil, sys
from pathlib import Path
import numpy
from batchadvisor.probes.worker.file_effects import FileWatch

watch = FileWatch(ignore=(os.path.abspath("ours") + os.sep,))
watch.install()
exec(sys.argv[1])
print(json.dumps([[file.path, file.action] for file in watch.take()]))
"""


@pytest.fixture
def touched(tmp_path):
    """What a piece of code touches, in a fresh process in an empty folder."""

    def _touched(code):
        done = subprocess.run(
            [sys.executable, "-c", WATCH, code],
            capture_output=True,
            text=True,
            check=False,
            cwd=tmp_path,
        )
        assert done.returncode == 0, done.stderr
        return [tuple(load) for load in json.loads(done.stdout.splitlines()[-1])]

    return _touched


class TestSeen:
    @pytest.mark.parametrize(
        ("code", "expected"),
        [
            ("open('a.txt', 'w').close()", [("a.txt", "write")]),
            ("open('a.txt', 'ab').close()", [("a.txt", "write")]),
            ("open('a.txt', 'x').close()", [("a.txt", "write")]),
            ("Path('a.txt').write_text('x')", [("a.txt", "write")]),
            ("os.close(os.open('a.txt', os.O_WRONLY | os.O_CREAT))", [("a.txt", "write")]),
            ("numpy.save('a.npy', numpy.zeros(2))", [("a.npy", "write")]),
            ("os.makedirs('b/c')", [("b", "mkdir"), ("b/c", "mkdir")]),
            ("open('/dev/null', 'w').close()", []),
            ("os.mkdir('ours'); open('ours/x', 'w').close()", [("ours", "mkdir")]),
            ("open('x.pyc', 'w').close()", []),
            ("import tempfile; tempfile.TemporaryFile(dir='.').close()", []),
            (r"open(b'caf\xe9.txt', 'w').close()", [(r"caf\udce9.txt", "write")]),
            ("open('old').read(); Path('old').read_bytes()", []),
            (
                "os.rename('old', 'new'); os.remove('new'); os.mkdir('d'); os.rmdir('d')",
                [("new", "rename"), ("new", "remove"), ("d", "mkdir"), ("d", "remove")],
            ),
            ("for _ in range(3): open('a', 'w').close()", [("a", "write")]),
            ("if os.fork() == 0: open('child', 'w').close(); os._exit(0)\nos.wait()", []),
        ],
    )
    def test_what_a_script_changes(self, touched, tmp_path, code, expected):
        (tmp_path / "old").write_text("x")
        assert touched(code) == expected

    def test_what_changes_nothing(self, touched, tmp_path):
        """A folder that is there already is not made, and a file that is not there not removed."""
        (tmp_path / "old").mkdir()
        assert touched("os.makedirs('old', exist_ok=True); os.makedirs('old/new')") == [
            ("old/new", "mkdir")
        ]
        assert touched("Path('gone').unlink(missing_ok=True)") == []

    def test_paths_from_an_open_folder(self, touched, tmp_path):
        """shutil.rmtree removes what is in a folder by names that are seen from the folder."""
        (tmp_path / "keep").write_text("x")
        (tmp_path / "old" / "inner").mkdir(parents=True)
        (tmp_path / "old" / "keep").write_text("x")
        (tmp_path / "old" / "inner" / "keep").write_text("x")
        assert sorted(touched("shutil.rmtree('old')")) == [
            ("old", "remove"),
            ("old/inner", "remove"),
            ("old/inner/keep", "remove"),
            ("old/keep", "remove"),
        ]

    def test_every_action_knows_its_open_folder(self, touched, tmp_path):
        (tmp_path / "d").mkdir()
        code = (
            "at = os.open('d', os.O_RDONLY)\n"
            "os.mkdir('a', dir_fd=at); os.rename('a', 'b', src_dir_fd=at, dst_dir_fd=at)\n"
            "os.rename('d/b', 'c', dst_dir_fd=at); os.rmdir(os.path.abspath('d/c'), dir_fd=at)"
        )
        assert touched(code) == [
            ("d/a", "mkdir"),
            ("d/b", "rename"),
            ("d/c", "rename"),
            ("d/c", "remove"),
        ]

    def test_what_is_removed_of_ours_is_not(self, touched, tmp_path):
        (tmp_path / "ours").mkdir()
        (tmp_path / "ours" / "x").write_text("x")
        assert touched("shutil.rmtree('ours')") == [("ours", "remove")]

    def test_outside_the_working_folder_the_path_is_whole(self, touched, tmp_path):
        other = tmp_path.parent / f"{tmp_path.name}-other.txt"
        assert touched(f"open({str(other)!r}, 'w').close()") == [(str(other), "write")]


class TestTake:
    def test_only_what_is_new(self, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        watch = FileWatch(ignore=())
        watch._audit("open", ("a", "w", 0))
        assert [file.path for file in watch.take()] == ["a"]
        assert watch.take() == ()
        watch._audit("open", ("a", "w", 0))
        watch._audit("open", ("b", "w", 0))
        assert [file.path for file in watch.take()] == ["b"]

    def test_bounded(self):
        watch = FileWatch(ignore=())
        for number in range(MAX_TOUCHED + 50):
            watch._audit("open", (f"file-{number}", "w", 0))
        assert len(watch.take()) == MAX_TOUCHED

    def test_torch_save(self, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        watch = FileWatch(ignore=())
        watch.saved("model.pt")
        watch.saved(Path("runs/other.pt"))
        watch.saved(object())
        with Path("third.pt").open("wb") as file:
            watch.saved(file)
        assert [(file.path, file.action) for file in watch.take()] == [
            (name, "save (not written)") for name in ("model.pt", "runs/other.pt", "third.pt")
        ]

    def test_descriptors_are_no_paths(self):
        watch = FileWatch(ignore=())
        watch._audit("open", (3, "w", 0))
        watch._audit("os.mkdir", (None, 0o777, -1))
        watch._audit("os.remove", ("in a folder that is not open", 10_000))
        assert watch.take() == ()
