"""What the script's own arguments, folder and exit look like from inside."""

import shlex

import pytest
from batchadvisor.advisor.explain.change import change

from .driver import SCRIPTS, line_of, listing, run, run_preloaded

TRAINS = (SCRIPTS / "plain.py").read_text()


class TestTheScriptsOwn:
    def test_module_and_arguments(self, tmp_path):
        """Everything after the name is the script's, also what looks like ours."""
        arguments = ["--json", "-o", "x y", "--loader=3", "--budget", "--", "-q", "é", "--help"]
        package = tmp_path / "pack"
        package.mkdir()
        (package / "helper.py").write_text("VALUE = 7\n")
        checks = (
            "import sys\n"
            "from pack.helper import VALUE\n"
            f"assert sys.argv[1:] == {arguments!r}, sys.argv\n"
            "assert sys.argv[0] == __file__, sys.argv\n"
            "assert __name__ == '__main__' and __package__ == 'pack'\n"
        )
        (package / "train.py").write_text(checks + TRAINS)
        options = ("--dry-run", "--json", "-m")
        done = run_preloaded("run", *options, "pack.train", *arguments, folder=tmp_path)
        assert done.code == 0, done
        place = done.discovery.primary.place
        assert (
            str(place) == f"pack/train.py:{line_of(package / 'train.py', 'loader = DataLoader(')}"
        )

    def test_script_and_arguments(self, tmp_path):
        arguments = ["--dry-run", "--sizes", "3", "-m", "--goal", "best"]
        (tmp_path / "helper.py").write_text("VALUE = 7\n")
        checks = (
            "import sys, os\n"
            "from helper import VALUE\n"
            f"assert sys.argv == ['./train.py', *{arguments!r}], sys.argv\n"
            "assert os.getcwd() == os.path.dirname(os.path.abspath(__file__))\n"
        )
        (tmp_path / "train.py").write_text(checks + TRAINS)
        done = run_preloaded(
            "run", "--dry-run", "--json", "./train.py", *arguments, folder=tmp_path
        )
        assert done.code == 0, done
        assert done.discovery.native_batch_size == 16

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
        done = run_preloaded("run", *options, name, folder=tmp_path)
        assert done.code == 0, done
        assert done.left == []
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

    @pytest.mark.slow
    def test_the_change_changes_it(self, tmp_path, styled):
        """The script with its line changed as told has the recommended size."""
        result = styled("positional")
        size = result.advice.recommended.batch_size
        text = (result.folder / "positional.py").read_text()
        changed = tmp_path / "changed.py"
        changed.write_text(text.replace("BATCH = 16", f"BATCH = {size}"))
        assert size != 16
        assert f"BATCH = 16 → BATCH = {size}" in change(result.record, size, None)
        done = run_preloaded("run", "--dry-run", "--json", changed, folder=tmp_path)
        assert done.discovery.native_batch_size == size
