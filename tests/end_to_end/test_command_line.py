"""What may stand on the command line: places, modules, the script's own arguments, wrong use."""

import hashlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from batchadvisor.cli import cli
from click.shell_completion import ShellComplete

from .driver import EXAMPLES, SCRIPTS, line_of, listing, run, run_preloaded, run_well

TRAINS = (SCRIPTS / "plain.py").read_text()


@pytest.mark.parametrize("words", [["run"], ["run", "--budget", "9s"], ["run", "a.py", "--data"],
                                   ["estimate"], ["emit", "k8s"]])  # fmt: skip
def test_the_shell_completes_scripts(words):
    completion = ShellComplete(cli, {}, "batchadvisor", "_BATCHADVISOR_COMPLETE")
    assert [item.type for item in completion.get_completions(words, "tr")] == ["file"]


class TestDryRun:
    def test_text_from_another_folder(self, tmp_path):
        scripts, here = tmp_path / "scripts", tmp_path / "here"
        scripts.mkdir()
        here.mkdir()
        script = scripts / "validates.py"
        script.write_text((SCRIPTS / "argparse_validate_first.py").read_text())
        done = run_well("run", "--dry-run", "../scripts/validates.py", folder=here)
        lines = done.stdout.splitlines()
        train = f"{script}:{line_of(script, 'train_loader = DataLoader(')}"
        val = f"{script}:{line_of(script, 'val_loader = DataLoader(')}"
        assert any(line.startswith(f"Loader 0 (steered): {train}  batch_size=16") for line in lines)
        assert any(
            line.startswith(f"Loader 1 (left alone): {val}  batch_size=50") for line in lines
        )
        option = f"{script}:{line_of(script, '--batch-size')}"
        assert f"    its size is set at {option}: default=16" in lines
        assert any(
            line.startswith("Optimizer 0 (steps): ") and "SGD, lr=0.05" in line for line in lines
        )
        assert "Step: 1 x 16 = 16 samples" in done.stdout
        assert done.left == []
        assert listing(here) == {}
        assert listing(scripts) == {"validates.py": script.read_bytes()}

    def test_a_loader_of_the_scripts_own_around_torchs(self, tmp_path):
        """The size comes through `**kwargs`; the line to change is that of the option."""
        script = SCRIPTS / "infinite_loader.py"
        done = run_well("run", "--dry-run", "--json", script, folder=tmp_path)
        source = done.discovery.primary.source
        assert source.place.line == line_of(script, '"--batch-size"')
        assert (source.before, source.option) == ("default=32", "--batch-size")
        # What the script did meanwhile is said, and is not undone.
        assert done.answer["files"] == [{"path": "notes.txt", "action": "write", "listed": False}]
        assert set(listing(tmp_path)) == {"notes.txt"}

    def test_another_loader(self, tmp_path):
        script = SCRIPTS / "two_loaders.py"
        done = run_well("run", "--dry-run", "--json", "--loader", "1", script, folder=tmp_path)
        assert done.discovery.primary_loader == 1
        assert done.discovery.native_batch_size == 24
        assert done.discovery.primary.num_samples == 2400
        assert done.answer["device"]["kind"] == "cpu"
        assert listing(tmp_path) == {}

    @pytest.mark.parametrize(
        ("script", "number", "said"),
        [
            ("two_loaders", "7", "loaders are numbered from 0, and the last is 1"),
            ("argparse_validate_first", "1", "yields nothing between optimizer steps"),
        ],
        ids=["not there", "does not train"],
    )
    def test_a_loader_that_cannot_be_steered(self, script, number, said, tmp_path):
        done = run_preloaded("run", "--loader", number, SCRIPTS / f"{script}.py", folder=tmp_path)
        done.assert_refused()
        assert f"--loader {number}" in done.error
        assert said in done.error
        # What to do: see them all, or those that train.
        assert "--dry-run" in done.error or "loaders that do: 0" in done.error.lower()
        assert listing(tmp_path) == {}


LONG = "x" * 300
ANY_BYTES = os.fsdecode(b"caf\xe9")
WRONG = {
    "no script": ([], "Missing argument"),
    "no file": (["nothere.py"], "there is no file nothere.py"),
    "a folder": (["folder"], "folder is a folder"),
    "binary": (["binary.py"], "binary.py"),
    "no Python": ([SCRIPTS / "syntax_error.py"], "syntax_error.py:11: expected ':'"),
    "unknown option": (["--fast", "plain.py"], "No such option"),
    "goal": (["--goal", "best", "plain.py"], "'best'"),
    "sizes as words": (["--sizes", "a,b", "plain.py"], "'a,b' is not a list of sizes"),
    "size 0": (["--sizes", "8,0", "plain.py"], "'8,0' is not a list of sizes"),
    "no sizes": (["--sizes", "", "plain.py"], "is not a list of sizes"),
    "a size beyond counting": (["--sizes", "9" * 20, "plain.py"], "9" * 20 + " is too large"),
    "a start beyond counting": (["--start", "9" * 20, "plain.py"], "is not in the range"),
    "a schedule too long": (["--profile-schedule", "0,0,101", "plain.py"], "100 steps at most"),
    "max-batch 0": (["--max-batch", "0", "plain.py"], "0 is not in the range"),
    "start -1": (["--start", "-1", "plain.py"], "-1 is not in the range"),
    "loader -1": (["--loader", "-1", "plain.py"], "-1 is not in the range"),
    "budget": (["--budget", "soon", "plain.py"], "'soon' is not a duration"),
    "no budget": (["--budget", "0", "plain.py"], "no time for any trial"),
    "budget below 0": (["--budget", "-5s", "plain.py"], "'-5s' is not a duration"),
    "timeout": (["--timeout", "1 day", "plain.py"], "'1 day' is not a duration"),
    "no timeout": (["--timeout", "0s", "plain.py"], "--timeout"),
    "bytes": (["--memory-limit", "lots", "plain.py"], "'lots' is not a size in bytes"),
    "margin": (["--memory-margin", "150%", "plain.py"], "'150%' is not a share"),
    "tolerance": (["--tolerance", "x", "plain.py"], "'x' is not a share"),
    "schedule": (["--profile-schedule", "1,2", "plain.py"], "WAIT,WARMUP,ACTIVE"),
    "no active step": (["--profile-schedule", "1,2,0", "plain.py"], "WAIT,WARMUP,ACTIVE"),
    "sizes and start": (["--sizes", "8", "--start", "4", "plain.py"], "contradict"),
    "sizes and max": (["--sizes", "8", "--max-batch", "4", "plain.py"], "contradict"),
    "sizes and keep": (["--sizes", "8", "--keep-effective-batch", "plain.py"], "contradict"),
    "start above max": (["--start", "64", "--max-batch", "8", "plain.py"], "--start 64"),
    "no profile but a schedule": (
        ["--no-profile", "--profile-schedule", "0,1,3", "plain.py"],
        "contradicts",
    ),
    "no profile but stacks": (["--no-profile", "--stacks", "plain.py"], "contradicts"),
    "resume and output": (["--resume", "a", "-o", "b", "plain.py"], "--resume"),
    "nothing to resume": (["--resume", "nothere", "plain.py"], "cannot read a record"),
    "no GPU": (["--device", "cuda", "plain.py"], "--device cuda"),
    "no such GPU": (["--device", "cuda:77", "plain.py"], "--device cuda:77"),
    "no such device": (["--device", "nonsense", "plain.py"], "--device nonsense"),
    "a name too long": ([LONG], "File name too long"),
    "an output too long": (["-o", LONG, "plain.py"], "File name too long"),
    "a run too long": (["--resume", LONG, "plain.py"], "File name too long"),
    "an output of any bytes": (["-o", ANY_BYTES, "plain.py"], "is not valid UTF-8"),
    "an argument of any bytes": (["plain.py", ANY_BYTES], "is not valid UTF-8"),
    "no name": ([""], "the script's name is empty"),
    "an output without a name": (["-o", "", "plain.py"], "the name is empty"),
    "a run without a name": (["--resume", "", "plain.py"], "the name is empty"),
    "output is a file": (["-o", "plain.py", "plain.py"], "cannot write into plain.py"),
    "output below a file": (["-o", "plain.py/x/y", "plain.py"], "cannot write into plain.py/x/y"),
    "output holds a run": (["-o", "run", "plain.py"], "run holds a run already"),
    "another script's run": (["--resume", "run", "plain.py"], "run is a run of other.py"),
    "a run of another text": (["--resume", "changed", "plain.py"], "which has changed since"),
    "a run of its namesake": (
        ["--resume", "changed", "folder/plain.py"],
        "which has changed since",
    ),
    "a run of other arguments": (["--resume", "same", "plain.py", "--x", "2"], "with --x 1"),
    "a run of arguments": (["--resume", "same", "plain.py"], "with --x 1"),
}


class TestWrongUse:
    @pytest.fixture
    def folder(self, tmp_path):
        (tmp_path / "plain.py").write_text(TRAINS)
        (tmp_path / "binary.py").write_bytes(b"\x7fELF\0\0")
        (tmp_path / "folder").mkdir()
        (tmp_path / "run").mkdir()
        text = (
            '{"schema_version": "1.0", "state": "finished", "started_at": "", "command": [],'
            ' "script": {"path": "other.py"}, "goal": {}}'
        )
        (tmp_path / "run" / "record.json").write_text(text)
        shutil.copy(tmp_path / "plain.py", tmp_path / "folder")
        own = hashlib.sha256(TRAINS.encode()).hexdigest()[:16]
        for name, digest in (("changed", "0" * 16), ("same", own)):
            script = f'"path": "plain.py", "arguments": ["--x", "1"], "digest": "{digest}"'
            (tmp_path / name).mkdir()
            (tmp_path / name / "record.json").write_text(text.replace('"path": "other.py"', script))
        return tmp_path

    @pytest.mark.parametrize("case", WRONG)
    def test_it_is_refused_at_once(self, folder, case):
        arguments, part = WRONG[case]
        before = listing(folder)
        # Not by NVML: a test of this process may have loaded a stand-in of its library.
        if case == "no GPU" and Path("/dev/nvidiactl").exists():
            pytest.skip("there is a GPU")
        done = run_preloaded("run", *arguments, folder=folder)
        done.assert_refused()
        assert part in done.error
        assert "None" not in done.error
        assert listing(folder) == before

    def test_a_folder_of_any_bytes(self, tmp_path):
        folder = tmp_path / ANY_BYTES
        folder.mkdir()
        (folder / "plain.py").write_text(TRAINS)
        done = run("run", "plain.py", folder=folder)
        done.assert_refused()
        assert r"caf\udce9' is not valid UTF-8" in done.error
        assert set(listing(folder)) == {"plain.py"}

    @pytest.mark.parametrize("module", ["no.such.module", "json"])
    def test_what_is_no_module_to_run(self, tmp_path, module):
        done = run_preloaded("run", "-m", module, folder=tmp_path)
        done.assert_refused()
        assert module in done.error
        assert listing(tmp_path) == {}

    def test_an_unknown_verb(self, tmp_path):
        done = run("walk", EXAMPLES / "char_gpt.py", folder=tmp_path)
        done.assert_refused()
        assert "'walk'" in done.error

    @pytest.mark.parametrize("verb", ["advise", "report", "analyze", "memory", "view"])
    def test_what_nobody_can_look_at(self, tmp_path, verb):
        done = run(verb, LONG, folder=tmp_path)
        done.assert_refused()
        assert "File name too long" in done.error

    def test_a_debug_of_the_scripts_own_is_not_ours(self, tmp_path):
        run("run", "nowhere.py", "--debug", folder=tmp_path).assert_refused()
        shown = run("run", "--debug", "nowhere.py", folder=tmp_path)
        assert "Traceback" in shown.stderr

    @pytest.mark.skipif(not Path("/dev/full").exists(), reason="the system has no /dev/full")
    def test_an_answer_that_cannot_be_written(self, tmp_path):
        command = [sys.executable, "-m", "batchadvisor"]
        words = [*command, "tails", "--samples", "9", "--batch-size", "4"]
        with Path("/dev/full").open("w") as full:
            done = subprocess.run(
                words, cwd=tmp_path, stdout=full, stderr=subprocess.PIPE, text=True, check=False
            )
        assert done.returncode == 1
        assert done.stderr == "Error: cannot write the answer: No space left on device.\n"

    @pytest.mark.parametrize("words", ["run t.py", "view /"])
    def test_a_working_folder_that_is_gone(self, tmp_path, words):
        command = f"mkdir gone; cd gone; rmdir ../gone; {sys.executable} -m batchadvisor {words}"
        done = subprocess.run(
            command, cwd=tmp_path, shell=True, capture_output=True, text=True, check=False
        )
        assert done.returncode == 2
        assert done.stderr.splitlines()[-1].startswith("Error: cannot find the working folder")
        assert "Traceback" not in done.stderr

    @pytest.mark.slow
    def test_a_limit_below_the_model(self, tmp_path):
        script = SCRIPTS / "memory_hungry.py"
        done = run("run", "-q", "--memory-limit", "150MiB", script, folder=tmp_path)
        done.assert_refused()
        assert "nothing fits" in done.error
        assert "150 MiB" in done.error
        assert "--memory-limit" in done.error
        assert listing(tmp_path) == {}

    @pytest.mark.slow
    def test_a_library_that_fails_otherwise_below_the_limit(self, tmp_path):
        """Without memory an import may find no source text, or a parser no text at all."""
        (tmp_path / "job.py").write_text("import json, torch\njson.loads('')\n")
        done = run("run", "-q", "--memory-limit", "150MiB", "job.py", folder=tmp_path)
        done.assert_refused()
        assert "nothing fits" in done.error
        (tmp_path / "job.py").write_text("import torch\nraise ValueError('my own')\n")
        done = run("run", "-q", "--memory-limit", "150MiB", "job.py", folder=tmp_path)
        assert done.code == 1
        assert "raised ValueError: my own" in done.error


@pytest.mark.slow
def test_progress_that_nobody_reads_any_more(tmp_path):
    options = ["--json", "--budget=20s", "--no-profile", "--goal=memory", "--sizes=8,16"]
    command = [sys.executable, "-m", "batchadvisor", "run", *options, SCRIPTS / "plain.py"]
    with subprocess.Popen(
        command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as started:
        started.stderr.close()
        answer = json.loads(started.stdout.read())
    assert started.returncode == 0
    assert answer["record"]["state"] == "finished"
