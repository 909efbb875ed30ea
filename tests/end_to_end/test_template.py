"""The template door: scripts that cannot be steered, and what sends them there."""

import pytest
from batchadvisor.session.recording.store import read_record

from .driver import SCRIPTS, listing
from .driver import run_preloaded as run

pytestmark = pytest.mark.slow

OPTIONS = ("--json", "-q", "-o", "out", "--no-profile", "--goal", "memory")


def search(record):
    return [trial for trial in record.trials if trial.purpose == "search"]


@pytest.fixture(scope="module")
def without_loader(tmp_path_factory):
    folder = tmp_path_factory.mktemp("template")
    (folder / "train.py").write_text((SCRIPTS / "no_loader.py").read_text())
    words = ("train.py", "--batch_size={batch_size}", "--gradient_accumulation_steps", "3")
    return run("run", *OPTIONS, "--sizes", "6,48", *words, folder=folder)


class TestWithoutLoader:
    """In the style of nanoGPT: no DataLoader at all."""

    def test_each_size_has_its_process(self, without_loader):
        done = without_loader
        assert done.code == 0, done
        assert done.stderr == ""
        assert done.left == []
        trials = done.record.trials
        assert [trial.batch_size for trial in search(done.record)] == [6, 48]
        assert {trial.outcome for trial in trials} == {"ok"}
        sizes_of = {}
        for trial in trials:
            sizes_of.setdefault(trial.worker, set()).add(trial.batch_size)
        assert all(len(sizes) == 1 for sizes in sizes_of.values())
        assert len(sizes_of) >= 3  # the confirmation is a fresh one
        assert done.advice.recommended.batch_size == 48
        assert done.advice.sureness == "confirmed"

    def test_what_was_found(self, without_loader):
        discovery = without_loader.record.discovery
        assert discovery.door == "template"
        assert discovery.native_batch_size == 12
        assert discovery.micro_batches == 3  # counted by backward passes
        assert [optimizer.name for optimizer in discovery.optimizers] == ["AdamW"]
        assert without_loader.record.script.arguments[0] == "--batch_size={batch_size}"

    def test_the_model_shows_the_size(self, without_loader):
        assert {trial.size_proof for trial in without_loader.record.trials} == {"shape"}
        rate = search(without_loader.record)[1]
        assert rate.samples_per_s.median == pytest.approx(48 * 3 / rate.step_s.median)

    def test_waiting_for_data_is_not_claimed(self, without_loader):
        for trial in without_loader.record.trials:
            assert trial.input_wait_s is None
            assert "DataLoader" in trial.unavailable["input_wait_s"]

    def test_the_line_to_change(self, without_loader):
        change = without_loader.advice.change
        assert change.startswith("train.py:11  default=12 → default=48")
        assert "--batch_size 48" in change


def test_it_runs_at_its_default_options(tmp_path):
    """As the page says, profile, FLOPs and all; the script is cheap."""
    (tmp_path / "gpt.py").write_text((SCRIPTS / "no_loader.py").read_text())
    words = ("gpt.py", "--batch_size={batch_size}", "--max_iters", "100000")
    done = run("run", "--budget", "20s", *words, folder=tmp_path)
    assert done.code == 0, done
    assert {trial.outcome for trial in done.record.trials} == {"ok"}
    own = next(trial for trial in search(done.record) if trial.batch_size == 12)
    assert own.flops is not None, own.unavailable
    assert own.profile is not None, own.unavailable


CONSTANT = """\
import torch, settings
model = torch.nn.Linear(64, 64)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
SIZE
for _ in range(4000):
    loss = model(torch.randn(rows, 64)).square().mean()
    loss.backward()
    optimizer.step()
"""


class TestWithoutAFlag:
    """The place of the size is known: the run goes there by itself."""

    def test_an_option(self, tmp_path):
        (tmp_path / "train.py").write_text((SCRIPTS / "no_loader.py").read_text())
        options = [option for option in OPTIONS if option not in ("--json", "-q")]
        done = run("run", *options, "--sizes", "6,24", "train.py", folder=tmp_path)
        assert done.code == 0, done
        said = "default=12 of --batch_size (train.py:11) sets them, and the script is started once"
        assert done.stderr.count(said) == 1
        assert done.record.discovery.native_batch_size == 12
        assert {trial.arrived_batch_size for trial in search(done.record)} == {6, 24}
        assert done.record.script.arguments == ()
        assert done.left == []
        more = run("run", "--resume", "out", "--sizes", "6,40", "train.py", folder=tmp_path)
        assert more.code == 0, more
        assert [trial.batch_size for trial in search(read_record(tmp_path / "out"))] == [6, 24, 40]

    @pytest.mark.parametrize(
        ("size", "place"),
        [
            ("BATCH_SIZE = 12; rows = BATCH_SIZE", "train.py:4"),
            ("rows = settings.BATCH_SIZE", "settings.py:1"),
            ("import json; rows = json.load(open('a.json'))['batch_size']", "a.json:2"),
        ],
    )
    def test_a_number_in_a_file(self, tmp_path, size, place):
        files = {
            "pkg/train.py": CONSTANT.replace("\nSIZE\n", f"\n{size}\n"),
            "settings.py": "BATCH_SIZE = 12\n" if "settings" in size else "",
            "a.json": '{\n"batch_size": 12}',
        }
        (tmp_path / "pkg").mkdir()
        for name, text in files.items():
            (tmp_path / name).write_text(text)
        done = run("run", *OPTIONS, "--sizes", "6,24", "-m", "pkg.train", folder=tmp_path)
        assert done.code == 0, done
        assert [trial.arrived_batch_size for trial in search(done.record)] == [6, 24]
        assert {trial.size_proof for trial in done.record.trials} == {"shape"}
        source = done.record.discovery.primary.source
        assert str(source.place) == place.replace("train.py", "pkg/train.py")
        assert "12 → " in done.advice.change
        assert {name: (tmp_path / name).read_text() for name in files} == files
        assert done.left == []


class TestNamed:
    """`--set NAME={batch_size}`."""

    def test_a_number(self, tmp_path):
        (tmp_path / "settings.py").write_text("")
        (tmp_path / "train.py").write_text(CONSTANT.replace("\nSIZE\n", "\nrows = 12\n"))
        named = ("--set", "rows={batch_size}", "train.py")
        done = run("run", *OPTIONS, "--sizes", "6,24", *named, folder=tmp_path)
        assert done.code == 0, done
        assert [trial.arrived_batch_size for trial in search(done.record)] == [6, 24]
        assert done.advice.change.startswith("train.py:4  rows = 12 → rows = 24")

    def test_one_that_is_not_there(self, tmp_path):
        (tmp_path / "train.py").write_text("rows = 12\nwidth = 4\n")
        done = run("run", "--set", "row={batch_size}", "train.py", folder=tmp_path)
        done.assert_refused()
        assert "--set row={batch_size}: train.py sets no number" in done.error
        assert "rows = 12 (train.py:1), width = 4 (train.py:2)" in done.error
        assert listing(tmp_path).keys() == {"train.py"}


class TestDatasetThatBatches:
    def test_it_goes_there_by_itself(self, tmp_path):
        options = (*OPTIONS, "--sizes", "4,40")
        done = run("run", *options, SCRIPTS / "batches_itself.py", "-b", "10", folder=tmp_path)
        assert done.code == 0, done
        assert [trial.arrived_batch_size for trial in search(done.record)] == [4, 40]
        assert done.record.discovery.native_batch_size == 10

    def test_it_runs(self, tmp_path):
        options = (*OPTIONS, "--sizes", "4,40")
        done = run(
            "run", *options, SCRIPTS / "batches_itself.py", "-b", "{batch_size}", folder=tmp_path
        )
        assert done.code == 0, done
        assert [trial.arrived_batch_size for trial in search(done.record)] == [4, 40]
        assert {trial.size_proof for trial in done.record.trials} == {"shape"}
        assert done.record.discovery.native_batch_size == 20
        assert all(trial.input_wait_s is not None for trial in search(done.record))
        # The length that such a loader claims counts batches.
        assert done.record.discovery.primary.num_samples is None


class TestShapedBySize:
    @pytest.mark.parametrize("words", [(), ("--skip-errors",)])
    def test_it_is_recognised(self, tmp_path, words):
        script = SCRIPTS / "shaped_by_size.py"
        options = ("-q", "--no-profile", "--budget", "60s")
        done = run("run", *options, script, *words, folder=tmp_path)
        assert done.code == 1, done
        assert "trains only at its own batch size 16" in done.error
        assert "RuntimeError: Expected hidden size" in done.error
        assert ("swallows" in done.error) is bool(words)
        typed = " ".join([str(script), *words, "--batch-size", "{batch_size}"])
        assert f"batchadvisor run --template {typed} " in done.error
        # What was measured stands all the same.
        assert "Keep batch size 16" in done.stdout
        assert done.record.state == "failed"

    def test_the_proposed_command_works(self, tmp_path):
        words = ("--template", SCRIPTS / "shaped_by_size.py", "--batch-size", "{batch_size}")
        done = run("run", *OPTIONS, "--sizes", "4,40", *words, folder=tmp_path)
        assert done.code == 0, done
        assert [trial.arrived_batch_size for trial in search(done.record)] == [4, 40]
        assert done.advice.tail.dropped == 0
        assert done.left == []


def test_memory_is_refused_to_a_size(tmp_path):
    """A process that never reaches its loop is a trial that ran out of memory."""
    (tmp_path / "hungry.py").write_text(
        "import sys, torch\n"
        "from torch import nn\n"
        "size = int(sys.argv[1].partition('x')[0])\n"
        "model = nn.Linear(8, 1)\n"
        "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
        "held = torch.zeros(size, 1 << 20)\n"
        "for _ in range(4000):\n"
        "    loss = model(torch.randn(size, 8)).square().mean()\n"
        "    loss.backward()\n"
        "    optimizer.step()\n"
    )
    limit = ("--memory-limit", "600MiB", "--sizes", "4,16,400")
    done = run("run", *OPTIONS, *limit, "hungry.py", "{batch_size}x1", folder=tmp_path)
    assert done.code == 0, done
    outcomes = {trial.batch_size: trial.outcome for trial in search(done.record)}
    assert outcomes == {4: "ok", 16: "ok", 400: "out_of_memory"}
    assert done.advice.recommended.batch_size == 16
    assert done.left == []


class TestBadUse:
    def test_a_template_without_the_placeholder(self, tmp_path):
        done = run("run", "--template", SCRIPTS / "shaped_by_size.py", folder=tmp_path)
        done.assert_refused()
        assert "no argument of" in done.error
        assert "--batch-size {batch_size}" in done.error
        assert listing(tmp_path) == {}

    @pytest.mark.parametrize("word", ["{bs}", "{batchsize}", "--size={BATCH_SIZE }"])
    def test_a_misspelt_placeholder(self, tmp_path, word):
        done = run("run", SCRIPTS / "plain.py", "--batch-size", word, folder=tmp_path)
        done.assert_refused()
        assert "is not the placeholder" in done.error
        assert "Write {batch_size}" in done.error

    def test_braces_of_another_kind_are_the_scripts(self, tmp_path):
        words = (SCRIPTS / "plain.py", '{"lr": 0.1}')
        done = run("run", "--dry-run", *words, folder=tmp_path)
        assert done.code == 0, done

    def test_a_script_that_can_be_steered(self, tmp_path):
        script = SCRIPTS / "argparse_validate_first.py"
        words = ("--lr", "0.1", "--batch-size", "{batch_size}")
        done = run("run", "-q", script, *words, folder=tmp_path)
        done.assert_refused()
        assert "can be steered" in done.error
        assert f"batchadvisor run {script} --lr 0.1 " in done.error
        assert listing(tmp_path) == {}

    def test_several_ranks_have_no_template(self, tmp_path):
        words = (SCRIPTS / "no_loader.py", "--batch_size={batch_size}")
        done = run("run", "--nproc-per-node", "2", *words, folder=tmp_path)
        done.assert_refused()
        assert "several ranks are steered" in done.error
        assert listing(tmp_path) == {}

    def test_a_loader_is_not_chosen_here(self, tmp_path):
        words = (SCRIPTS / "plain.py", "{batch_size}")
        done = run("run", "--loader", "0", *words, folder=tmp_path)
        done.assert_refused()
        assert "--loader" in done.error
