"""Checkpoints under the hooks: a script that is measured leaves none behind."""

import os
import shutil
import sys
from types import ModuleType

import pytest
import torch
from batchadvisor.probes.worker.saves import silence_safetensors

SAVED = "\nlistener.tell([str(getattr(one, 'name', one)) for one in saved])"
READ_BACK = "\nlistener.tell([torch.equal(there, data.tensors[0]), len(saved)])"


@pytest.mark.parametrize(
    ("code", "left"),
    [
        ("torch.save(model, 'model.pt')", []),
        ("torch.save(obj=model, f='model.pt')", []),
        ("with open('model.pt', 'wb') as file: torch.save(model, file)", [0]),
    ],
    ids=["positional", "keyword", "open file"],
)
def test_nothing_is_written(run, tmp_path, code, left):
    assert run(code + SAVED) == ["model.pt"]
    assert [path.stat().st_size for path in tmp_path.iterdir()] == left


class TestSave:
    @pytest.mark.parametrize("new", [True, False], ids=["zip", "older format"])
    @pytest.mark.parametrize("name", ["model.pt", "here/../model.pt"])
    def test_a_real_one_that_is_opened_anew_stays(self, run, tmp_path, name, new):
        (tmp_path / "here").mkdir()
        path = tmp_path / "model.pt"
        torch.save({"of": "a real training"}, path, _use_new_zipfile_serialization=new)
        content, changed_ns = path.read_bytes(), path.stat().st_mtime_ns
        save = f"with open({name!r}, 'wb') as file: torch.save(model, file)\n"
        assert len(run(save * 3 + SAVED)) == 3
        assert (path.read_bytes(), path.stat().st_mtime_ns) == (content, changed_ns)

    @pytest.mark.parametrize(
        "code",
        [
            "with open('model.pt', 'wb') as file: file.write(b'new'); torch.save(model, file)",
            "with open('model.pt', 'wb') as file: file.write(b'new')",
            (
                "os.remove('model.pt'); file = open('model.pt', 'wb', 0)\n"
                "torch.save(model, file); file.write(b'new')"
            ),
        ],
        ids=["with something else", "something else", "another one"],
    )
    def test_what_the_script_writes_itself_is_written(self, run, tmp_path, code):
        torch.save({"of": "a real training"}, tmp_path / "model.pt")
        run(code + SAVED)
        assert (tmp_path / "model.pt").read_bytes() == b"new"

    @pytest.mark.parametrize(
        "code",
        [
            # torch pickles a tensor through torch.save.
            "import pickle\nthere = pickle.loads(pickle.dumps(data.tensors[0]))",
            "import io\nfile = io.BytesIO()\nfile.name = 'model.pt'",
            "import tempfile\nfile = tempfile.TemporaryFile()",
        ],
        ids=["pickle", "buffer", "file without a name"],
    )
    def test_what_leaves_no_file_is_saved(self, run, code):
        if "file =" in code:
            code += "\ntorch.save(data.tensors[0], file); file.seek(0); there = torch.load(file)"
        assert run(code + READ_BACK) == [True, 0]


BY_PATH = "torch.save(model, 'new.tmp')"
BY_FILE = "with open('new.tmp', 'wb') as f: torch.save(model, f)"
MOVES = (
    "os.replace('new.tmp', 'last.pt')",
    "os.rename('new.tmp', 'last.pt')",
    "from pathlib import Path; Path('new.tmp').replace('last.pt')",
    "import shutil; shutil.move('new.tmp', 'last.pt')",
    "import shutil; shutil.copyfile('new.tmp', 'last.pt')",
    "import shutil; shutil.copy2('new.tmp', 'last.pt')",
)


class TestAfterSave:
    """What scripts do with a checkpoint that was not written."""

    @pytest.mark.parametrize(
        ("save", "move"),
        [
            *((BY_PATH, way) for way in MOVES),
            (BY_FILE, MOVES[0]),
            (BY_FILE, MOVES[4]),
        ],
    )
    def test_a_real_one_is_not_replaced(self, run, tmp_path, save, move):
        (tmp_path / "last.pt").write_text("of a real training")
        assert run(f"{save}\n{move}{SAVED}") == ["new.tmp", "last.pt"]
        assert (tmp_path / "last.pt").read_text() == "of a real training"
        there = {path.name for path in tmp_path.iterdir()}
        assert there == {"last.pt"} | ({"new.tmp"} if "copy" in move and "open" in save else set())

    @pytest.mark.parametrize("take", ["os.remove('new.tmp')", "os.replace('new.tmp', 'last.pt')"])
    def test_an_older_one_below_the_temporary_name_stays(self, run, tmp_path, take):
        torch.save({"of": "a real training"}, tmp_path / "new.tmp")
        assert run(f"{BY_FILE}\n{take}{SAVED}")[0] == "new.tmp"
        assert [path.name for path in tmp_path.iterdir()] == ["new.tmp"]
        assert torch.load(tmp_path / "new.tmp") == {"of": "a real training"}

    def test_a_copy_into_a_folder(self, run, tmp_path):
        (tmp_path / "best").mkdir()
        code = "torch.save(model, 'a.pt')\nimport shutil\nshutil.copy('a.pt', 'best')"
        assert run(code + SAVED) == ["a.pt", "best/a.pt"]
        assert list((tmp_path / "best").iterdir()) == []

    def test_the_oldest_is_removed(self, run, tmp_path):
        """One of an earlier training, that was to be overwritten, stays."""
        (tmp_path / "1.pt").write_text("of a real training")
        code = "torch.save(model, '1.pt'); os.remove('1.pt')\nopen('x', 'w'); os.unlink('x')"
        assert run(code + SAVED) == ["1.pt"]
        assert [path.name for path in tmp_path.iterdir()] == ["1.pt"]

    def test_the_oldest_folder_is_removed(self, run, tmp_path):
        """Not with a checkpoint of an earlier training, that was to be overwritten."""
        (tmp_path / "1").mkdir()
        (tmp_path / "1/model.pt").write_text("of a real training")
        code = (
            "import shutil\n"
            "for n in range(1, 3):\n"
            "    os.makedirs(f'{n}', exist_ok=True)\n"
            "    torch.save(model, f'{n}/model.pt')\n"
            "shutil.rmtree('1'), shutil.rmtree('2')"
        )
        assert run(code + SAVED) == ["1/model.pt", "2/model.pt"]
        assert [path.name for path in tmp_path.iterdir()] == ["1"]
        assert (tmp_path / "1/model.pt").read_text() == "of a real training"

    @pytest.mark.parametrize("take", ["os.replace", "__import__('shutil').copyfile"])
    def test_a_file_that_is_put_there_is_one_again(self, run, tmp_path, take):
        code = "torch.save(model, 'a.pt')\nwith open('b', 'w') as f: f.write('b')\n"
        assert run(f"{code}{take}('b', 'a.pt'); os.remove('a.pt'){SAVED}") == ["a.pt"]
        assert not (tmp_path / "a.pt").exists()

    @pytest.mark.parametrize("path", ["'a.pt'", "os.path.abspath('a.pt')", "'b.pt'"])
    def test_it_is_read_back(self, run, tmp_path, path):
        code = (
            "torch.save(data.tensors[0], 'a.pt')\nimport shutil\nshutil.copy('a.pt', 'b.pt')\n"
            f"there = torch.load({path}, mmap=True)"
        )
        assert run(code + READ_BACK) == [True, 2]
        assert list(tmp_path.iterdir()) == []

    @pytest.mark.parametrize("save", [BY_PATH, BY_FILE])
    def test_its_size_is_told(self, run, save):
        code = (
            f"{save}\nnum_bytes = os.path.getsize('new.tmp'); os.remove('new.tmp')\n"
            "import io; file = io.BytesIO(); torch.save(model, file)\n"
            "listener.tell(num_bytes / len(file.getvalue()))"
        )
        assert 0.9 < run(code) < 1.1

    @pytest.mark.parametrize("asks", ["os.stat({}).st_mode", "pathlib.Path({}).stat().st_mode"])
    def test_others_may_read_what_was_moved_into_place(self, run, tmp_path, asks):
        """As Ignite saves; while the loop is measured, nothing is kept to ask."""
        code = (
            "import pathlib\n"
            "for batch in DataLoader(data, batch_size=8):\n"
            "    step(batch)\n"
            "    file = open('new.tmp', 'wb'); torch.save(model, file); file.close()\n"
            "    os.replace('new.tmp', 'a.pt')\n"
            f"    os.chmod('a.pt', {asks.format(repr('a.pt'))} | 0o44)\n"
            "    pathlib.Path('a.pt').chmod(0o644)\n"
            "    if door.in_control:\n"
            "        there = os.path.exists('a.pt') or pathlib.Path('a.pt').is_file()\n"
            "        listener.tell([there, os.path.getsize('a.pt')])"
        )
        assert run(code) == [False, 0]
        assert list(tmp_path.iterdir()) == []

    def test_a_file_of_the_scripts_own_keeps_its_mode(self, run, tmp_path):
        code = "open('a', 'w').close()\ntorch.save(model, 'b.pt')\nos.chmod('a', 0o600)"
        assert run(f"{code}\nlistener.tell(oct(os.stat('a').st_mode))") == "0o100600"

    def test_a_loop_that_saves_keeps_nothing(self, run, tmp_path):
        code = (
            "for batch in DataLoader(data, batch_size=8):\n"
            "    step(batch)\n"
            "    if door.in_control:\n"
            "        torch.save(model, 'a.pt')\n"
            "        try: torch.load('a.pt')\n"
            "        except FileNotFoundError: listener.tell('not there')"
        )
        assert run(code) == "not there"
        assert list(tmp_path.iterdir()) == []


def test_the_format_of_hugging_face_is_written_until_the_loop_is_measured(monkeypatch, tmp_path):
    """A Trainer's `model.safetensors` lies beside what torch saves of the same step."""
    module = ModuleType("safetensors.torch")
    module.save_file = lambda tensors, filename, metadata=None: filename.write_text(tensors)
    monkeypatch.setitem(sys.modules, "safetensors", ModuleType("safetensors"))
    monkeypatch.setitem(sys.modules, "safetensors.torch", module)
    path, saved, known, in_control = tmp_path / "model.safetensors", [], {}, []
    silence_safetensors(known, saved.append, lambda: not in_control)
    module.save_file("before", path)
    assert (saved, known) == ([], {})
    in_control.append(True)
    module.save_file("in the loop", path, metadata={"format": "pt"})
    assert path.read_text() == "before"
    assert (saved, list(known)) == ([path], [str(path)])


class TestOfAnEarlierTraining:
    @pytest.fixture(autouse=True)
    def made(self, tmp_path):
        """Checkpoints and a text from before, in a folder and beside it."""
        (tmp_path / "final").mkdir()
        for name in ("old.pt", "final/model.pt"):
            torch.save({"of": "a real training"}, tmp_path / name)
        for name in ("notes.txt", "final/notes.txt"):
            (tmp_path / name).write_text("old")
            os.utime(tmp_path / name, (1, 1))
        for name in ("old.pt", "final/model.pt"):
            os.utime(tmp_path / name, (1, 1))

    def left(self, tmp_path):
        return sorted(
            str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()
        )

    @pytest.mark.parametrize("remove", ["os.remove", "__import__('pathlib').Path.unlink"])
    def test_one_that_the_measured_loop_removes_stays(self, run, tmp_path, remove):
        """What would have taken its place was not written."""
        names = "map(__import__('pathlib').Path, ('old.pt', 'notes.txt'))"
        run(f"door.in_control = True\nfor name in {names}: {remove}(name){SAVED}")
        assert self.left(tmp_path) == ["final/model.pt", "final/notes.txt", "old.pt"]

    def test_a_folder_that_another_is_moved_to_stays(self, run, tmp_path):
        code = (
            "import shutil\n"
            "door.in_control = True\n"
            "for number in range(2):\n"
            "    os.makedirs('new'); torch.save(model, 'new/model.pt'); open('new/args', 'w')\n"
            "    shutil.rmtree('final'); os.rename('new', 'final')\n"
            "os.remove('final/model.pt')"
        )
        told = run(code + SAVED)
        assert told.count("final") == 2
        assert self.left(tmp_path) == ["final/model.pt", "final/notes.txt", "notes.txt", "old.pt"]

    def test_what_is_removed_before_the_loop_is_removed(self, run, tmp_path):
        run(f"import shutil\nos.remove('old.pt'); shutil.rmtree('final'){SAVED}")
        assert self.left(tmp_path) == ["notes.txt"]

    @pytest.mark.parametrize(
        "listed",
        [
            "os.listdir('final')",
            "__import__('glob').glob('final/*')",
            "list(__import__('pathlib').Path('final').glob('*'))",
            "[entry.name for entry in os.scandir('final')]",
        ],
    )
    @pytest.mark.parametrize(
        "saved", ["", "torch.save(model, 'final/1.pt')\n"], ids=["removed", "again"]
    )
    def test_a_loop_that_removes_until_few_are_left(self, run, tmp_path, listed, saved):
        """It ends, as it does alone, though each of them stays."""
        for name in ("final/1.pt", "final/2.pt"):
            shutil.copy2(tmp_path / "old.pt", tmp_path / name)
        code = (
            f"door.in_control = True\n{saved}removed = []\n"
            f"while len({listed}) > 2:\n"
            f"    removed.append(min(os.path.basename(one) for one in {listed}))\n"
            "    os.remove(os.path.join('final', removed[-1]))\n"
            "listener.tell(removed)"
        )
        assert run(code) == ["1.pt", "2.pt"]
        assert len(list((tmp_path / "final").iterdir())) == 4

    def test_what_os_says_of_its_functions_stays_true(self, run):
        """`shutil` asks which of them follow no links, and `shutil.copystat` does nothing then."""
        code = (
            "names = ('stat', 'chmod', 'scandir', 'listdir', 'remove', 'unlink', 'rename')\n"
            "sets = (os.supports_fd, os.supports_dir_fd, os.supports_follow_symlinks)\n"
            "listener.tell([[getattr(os, name) in each for name in names] for each in sets])"
        )
        names = ("stat", "chmod", "scandir", "listdir", "remove", "unlink", "rename")
        sets = (os.supports_fd, os.supports_dir_fd, os.supports_follow_symlinks)
        assert run(code) == [[getattr(os, name) in each for name in names] for each in sets]

    def test_one_that_was_removed_is_not_there(self, run, tmp_path):
        """Until the script makes another of that name. What `exists` finds goes once more."""
        code = (
            "door.in_control = True\nos.remove('old.pt')\n"
            "if os.path.exists('old.pt'): os.remove('old.pt')\n"
            "told = [os.listdir()]\n"
            "with open('old.pt', 'w') as file: file.write('new')\n"
            "told.append(os.listdir()); os.remove('old.pt'); listener.tell(told)"
        )
        without, again = run(code)
        assert sorted(without) == ["final", "notes.txt"]
        assert sorted(again) == ["final", "notes.txt", "old.pt"]
        assert self.left(tmp_path) == ["final/model.pt", "final/notes.txt", "notes.txt"]
