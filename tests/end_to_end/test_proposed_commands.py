"""Commands that answers and errors propose: each is typed as it was printed, and does what it says.

Nothing of a command is known here beforehand but its first words.
"""

import json
import re
import shlex

import pytest
from batchadvisor.session.recording.store import read_record

from ..ports import free_ports
from .driver import SCRIPTS, run_well
from .driver import run_preloaded as run

pytestmark = pytest.mark.slow

OPTIONS = ("-o", "out", "--no-profile", "--goal", "memory")
PLAIN = (*OPTIONS, "--budget", "60s", "--sizes", "4,8")


def next_of(text):
    """The command of the last line that begins with `Next: `."""
    lines = [line for line in text.splitlines() if line.startswith("Next: ")]
    return lines[-1].removeprefix("Next: ")


def command_of(text):
    """The command inside the sentence of an error."""
    found = re.search(r"batchadvisor run .*?(?=   \(|\. It was not tried|\.$|$)", text)
    assert found is not None, text
    return found[0]


def typed(command, folder, *more):
    """Runs a command as it was printed, with options that end it sooner."""
    program, verb, *words = shlex.split(command)
    assert program == "batchadvisor"
    return run(verb, *more, *words, folder=folder)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A run in a folder with a space, of a script whose epochs end with a short batch."""
    folder = tmp_path_factory.mktemp("a folder")
    text = (SCRIPTS / "uneven_tail.py").read_text().replace("batch_size=8", "batch_size=4")
    (folder / "train.py").write_text(text)
    words = ("-o", "an out", "--goal", "memory", "--no-profile", "--sizes", "4,8")
    return run_well("run", *words, "train.py", "maps", folder=folder)


class TestAnswers:
    def test_all_of_it_and_from_there_a_report(self, finished):
        (line,) = [one for one in finished.stdout.splitlines() if one.startswith("All of it: ")]
        done = typed(line.removeprefix("All of it: "), finished.folder)
        assert done.code == 0, done
        (command,) = set(re.findall(r"batchadvisor report .* -o report\.html", done.stdout))
        done = typed(command, finished.folder)
        assert done.code == 0, done
        assert (finished.folder / "report.html").read_text().startswith("<!doctype html>")

    def test_the_page_of_a_case(self, finished):
        advised = run("advise", "--json", finished.run_folder, folder=finished.folder)
        tails = [
            found["remedy"] for found in json.loads(advised.stdout)["advice"]["findings"]
            if found["rule"].startswith("tails.")
        ]  # fmt: skip
        assert tails
        for remedy in tails:
            command = remedy[remedy.index("batchadvisor tails --explain") :]
            done = typed(command, finished.folder)
            assert done.code == 0, done
            assert command.split()[-1] in done.stdout

    def test_a_budget_that_was_spent(self, tmp_path):
        (tmp_path / "train.py").write_text((SCRIPTS / "plain.py").read_text())
        words = ("-o", "out", "--no-profile", "--budget", "2s", "train.py")
        done = run("run", *words, folder=tmp_path)
        command = next_of(done.stdout)
        assert "--resume out" in command
        before = read_record(tmp_path / "out")
        again = typed(command.replace(re.search(r"--budget \S+", command)[0], "--budget 16s"),
                      tmp_path)  # fmt: skip
        assert again.code == 0, again
        after = read_record(tmp_path / "out")
        assert len(after.trials) > len(before.trials)
        assert after.trials[: len(before.trials)] == before.trials


class TestErrors:
    def test_a_process_for_each_size(self, tmp_path):
        script = SCRIPTS / "shaped_by_size.py"
        loader = ("--loader", "0")  # the user insists on it
        done = run("run", "-q", "--no-profile", "--goal", "memory", "--max-batch", "40", *loader,
                   script, folder=tmp_path)  # fmt: skip
        assert done.code == 1, done
        again = typed(command_of(done.error), tmp_path, "-o", "again")
        assert again.code == 0, again
        record = read_record(tmp_path / "again")
        assert len({trial.arrived_batch_size for trial in record.trials}) > 1

    def test_a_placeholder_that_is_not_needed(self, tmp_path):
        script = SCRIPTS / "argparse_validate_first.py"
        words = ("-q", *PLAIN, script, "--lr", "0.1", "--batch-size", "{batch_size}")
        done = run("run", *words, folder=tmp_path)
        assert done.code == 2, done
        again = typed(command_of(done.error), tmp_path)
        assert again.code == 0, again

    def test_ranks_that_are_started_past_it(self, tmp_path):
        words = (*PLAIN, SCRIPTS / "starts_other_rank.py", free_ports(2), "past")
        done = run("run", *words, folder=tmp_path)
        assert done.code == 1, done
        assert "were started past batchadvisor" in done.error
        script = " ".join(map(str, words[-3:]))
        command = command_of(done.error).replace("SCRIPT", script)
        again = typed(command, tmp_path, "-o", "again")
        assert again.code == 0, again
        assert read_record(tmp_path / "again").distribution.world_size == 2

    def test_a_rank_of_a_job(self, tmp_path):
        (tmp_path / "train.py").write_text(
            "import os\nrank = int(os.environ['RANK'])\n" + (SCRIPTS / "train_ddp.py").read_text()
        )
        done = run("run", *PLAIN, "train.py", folder=tmp_path)
        assert done.code == 1, done
        assert "It expects to be a rank of a job" in done.error
        again = typed(command_of(done.error), tmp_path, "-o", "again")
        assert again.code == 0, again

    def test_a_size_between_multiples(self, tmp_path):
        words = (*OPTIONS, "--budget", "60s", "--multiple-of", "4", "--sizes")
        done = run("run", *words, "9", SCRIPTS / "plain.py", folder=tmp_path)
        assert done.code == 2, done
        for size in re.search(r"Take (\d+) or (\d+)\.", done.error).groups():
            again = run("run", "-o", f"again-{size}", *words[2:], size, SCRIPTS / "plain.py",
                        folder=tmp_path)  # fmt: skip
            assert again.code == 0, again

    def test_a_number_by_its_name(self, tmp_path):
        text = "NUM_A = 12\nNUM_B = 3\n" + CONSTANT
        (tmp_path / "train.py").write_text(text)
        done = run("run", *PLAIN, "train.py", folder=tmp_path)
        assert done.code == 1, done
        command = command_of(done.error).replace("NAME=", "NUM_A=")
        assert "--set" in command
        again = typed(command, tmp_path, "-o", "again")
        assert again.code == 0, again
        sizes = {one.arrived_batch_size for one in read_record(tmp_path / "again").trials}
        assert sizes == {4, 8}


CONSTANT = """\
import torch
model = torch.nn.Linear(64, 64)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(4000):
    loss = model(torch.randn(NUM_A, 64)).square().mean()
    loss.backward()
    optimizer.step()
"""
