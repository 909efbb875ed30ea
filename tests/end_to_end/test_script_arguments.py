"""What the script's own arguments, folder and exit look like from inside."""

import shlex

import pytest

from .driver import SCRIPTS, line_of, listing, run, run_well

TRAINS = (SCRIPTS / "plain.py").read_text()


class TestTheScriptsOwn:
    @pytest.mark.parametrize(
        ("typed", "file", "arguments", "checks"),
        [
            (
                ("-m", "pack.train"),
                "pack/train.py",
                ["--json", "-o", "x y", "--loader=3", "--budget", "--", "-q", "é", "--help"],
                """
from pack.helper import VALUE
assert sys.argv[0] == __file__, sys.argv
assert __name__ == '__main__' and __package__ == 'pack'
""",
            ),
            (
                ("./train.py",),
                "train.py",
                ["--dry-run", "--sizes", "3", "-m", "--goal", "best"],
                """
from helper import VALUE
assert sys.argv[0] == './train.py', sys.argv
assert os.getcwd() == os.path.dirname(os.path.abspath(__file__))
""",
            ),
        ],
        ids=["a module", "a script"],
    )
    def test_everything_after_its_name(self, typed, file, arguments, checks, tmp_path):
        """Also what looks like ours."""
        script = tmp_path / file
        script.parent.mkdir(exist_ok=True)
        script.with_name("helper.py").write_text("VALUE = 7\n")
        head = f"import os, sys\nassert sys.argv[1:] == {arguments!r}, sys.argv"
        script.write_text(head + checks + TRAINS)
        done = run_well("run", "--dry-run", "--json", *typed, *arguments, folder=tmp_path)
        assert done.discovery.native_batch_size == 16
        line = line_of(script, "loader = DataLoader(")
        assert str(done.discovery.primary.place) == f"{file}:{line}"

    @pytest.mark.slow
    def test_a_folder_with_a_space(self, tmp_path):
        """The whole run in words; the paths that it names exist and its next command works."""
        folder = tmp_path / "mit Leerzeichen é"
        folder.mkdir()
        script = folder / "訓練 plain.py"
        # It saves a checkpoint at every step over one that is there, and more at its end.
        step = "        optimizer.step()\n"
        save = "        torch.save(model.state_dict(), 'model.pt')\n"
        ending = "import atexit; atexit.register(lambda: open('atexit.txt', 'w'))\n"
        script.write_text(ending + TRAINS.replace(step, step + save))
        (tmp_path / "model.pt").write_bytes(b"precious")
        before = listing(tmp_path)
        name = f"{folder.name}/{script.name}"
        options = ("-v", "--no-profile", "--budget", "30s", "--sizes", "16,40")
        done = run_well("run", *options, name, folder=tmp_path)
        assert done.record.script.path == name
        assert [(file.path, file.action) for file in done.record.files] == [
            ("model.pt", "save (not written)")
        ]
        assert "Saves not written: model.pt" in done.stdout
        after = listing(tmp_path).items()
        assert before == {n: d for n, d in after if not n.startswith("batchadvisor-runs")}
        said = done.stdout.partition(":")[0]
        assert said in ("Use batch size 40", "Use batch size 16", "Keep batch size 16")
        place = done.record.discovery.primary.place
        assert str(place) == f"{name}:{line_of(script, 'loader = DataLoader(')}"
        lines = done.stdout.splitlines()
        written = [line.split("  ")[-1].strip() for line in lines if line.startswith("Wrote ")]
        names = ["record.json", "samples.jsonl", "script.log", "traces"]
        assert [path.rsplit("/", 1)[1] for path in written] == names
        assert all((tmp_path / path).exists() for path in written)
        (following,) = (line for line in lines if line.startswith("Next: "))
        words = shlex.split(following.removeprefix("Next: "))
        assert words[:2] == ["batchadvisor", "view"]  # it serves until it is interrupted
        again = run("advise", words[2], folder=tmp_path)
        assert again.code == 0, again
        assert again.stdout.startswith(said)
