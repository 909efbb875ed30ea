"""The template door: scripts that cannot be steered, and what sends them there."""

import json

import pytest
from batchadvisor.session.recording.store import read_record

from .driver import SCRIPTS, listing, run_well, start
from .driver import run_preloaded as run

pytestmark = pytest.mark.slow

OPTIONS = ("--json", "-q", "-o", "out", "--no-profile", "--goal", "memory", "--budget", "60s")


def sizes_that_arrived(done):
    return [trial.arrived_batch_size for trial in done.searched]


def test_without_a_loader(tmp_path):
    """In the style of nanoGPT: no DataLoader at all; each size has a process of its own."""
    (tmp_path / "train.py").write_text((SCRIPTS / "no_loader.py").read_text())
    words = ("train.py", "--batch_size={batch_size}", "--gradient_accumulation_steps", "3")
    done = run_well("run", *OPTIONS, "--sizes", "6,48", *words, folder=tmp_path)
    assert done.stderr == ""
    record = done.record
    assert record.script.arguments[0] == "--batch_size={batch_size}"
    discovery = record.discovery
    assert (discovery.door, discovery.native_batch_size) == ("template", 12)
    assert discovery.micro_batches == 3  # counted by backward passes
    assert [optimizer.name for optimizer in discovery.optimizers] == ["AdamW"]
    assert [trial.batch_size for trial in done.searched] == [6, 48]
    sizes_of = {}
    for trial in record.trials:
        assert (trial.outcome, trial.size_proof) == ("ok", "shape")
        sizes_of.setdefault(trial.worker, set()).add(trial.batch_size)
        # Waiting for data is not claimed.
        assert trial.input_wait_s is None
        assert "DataLoader" in trial.unavailable["input_wait_s"]
    assert all(len(sizes) == 1 for sizes in sizes_of.values())
    assert len(sizes_of) >= 3  # the confirmation is a fresh one
    larger = done.searched[1]
    assert larger.samples_per_s.median == pytest.approx(48 * 3 / larger.step_s.median)
    advice = done.advice
    assert (advice.recommended.batch_size, advice.sureness) == (48, "confirmed")
    assert advice.change.startswith("train.py:11  default=12 → default=48")
    assert "--batch_size 48" in advice.change


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


EVALUATES = """\
import time
import torch
batch_size = 8
model = torch.nn.Linear(64, 64)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for number in range(100_000):
    loss = model(torch.randn(batch_size, 64)).square().mean()
    loss.backward()
    optimizer.step()
    if number % 1000 == 0:
        time.sleep(4)
        with torch.no_grad():
            model.eval()(torch.randn(64, 64))
        model.train()
"""


def test_an_evaluation_after_the_first_step_is_no_part_of_a_step(tmp_path):
    """The plan of the search would count it for each step."""
    (tmp_path / "train.py").write_text(EVALUATES)
    done = run_well("run", *OPTIONS, "--sizes", "8,16", "train.py", folder=tmp_path)
    assert 0 < done.record.discovery.native_step_s < 2


SAME_SAMPLES = """\
import torch
batch_size = 6
model = torch.nn.Linear(64, 64)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
rows = torch.randn(batch_size, 64)
for _ in range(4000):
    loss = model(rows).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
"""


def test_steps_that_all_train_on_the_same_samples(tmp_path):
    """A constant sets how many there are: what a larger one means is said."""
    (tmp_path / "train.py").write_text(SAME_SAMPLES)
    done = run_well("run", *OPTIONS, "--sizes", "6,12", "train.py", folder=tmp_path)
    assert sizes_that_arrived(done) == [6, 12]
    (doubt,) = [one for one in done.advice.findings if one.rule == "doubt"]
    assert doubt.message.startswith("every step trains on the same 6 samples: a larger size is")
    assert doubt.remedy == ""


class TestWithoutAFlag:
    """The place of the size is known: the run goes there by itself."""

    def test_an_option(self, tmp_path):
        (tmp_path / "train.py").write_text((SCRIPTS / "no_loader.py").read_text())
        options = [option for option in OPTIONS if option not in ("--json", "-q")]
        done = run_well("run", *options, "--sizes", "6,24", "train.py", folder=tmp_path)
        said = "default=12 of --batch_size (train.py:11) sets the size, and the script is started"
        assert done.stderr.count(said) == 1
        assert done.record.discovery.native_batch_size == 12
        assert sizes_that_arrived(done) == [6, 24]
        assert done.record.script.arguments == ()
        run_well("run", "--resume", "out", "--sizes", "6,40", "train.py", folder=tmp_path)
        trials = read_record(tmp_path / "out").trials
        assert [trial.batch_size for trial in trials if trial.purpose == "search"] == [6, 24, 40]

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
        done = run_well("run", *OPTIONS, "--sizes", "6,24", "-m", "pkg.train", folder=tmp_path)
        assert sizes_that_arrived(done) == [6, 24]
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
        done = run_well("run", *OPTIONS, "--sizes", "6,24", *named, folder=tmp_path)
        assert sizes_that_arrived(done) == [6, 24]
        assert done.advice.change.startswith("train.py:4  rows = 12 → rows = 24")

    def test_one_that_is_not_there(self, tmp_path):
        (tmp_path / "train.py").write_text("rows = 12\nwidth = 4\n")
        done = run("run", "--set", "row={batch_size}", "train.py", folder=tmp_path)
        done.assert_refused()
        assert "--set row={batch_size}: train.py sets no number" in done.error
        assert "rows = 12 (train.py:1), width = 4 (train.py:2)" in done.error
        assert listing(tmp_path).keys() == {"train.py"}


def test_a_script_that_writes_its_parameters_itself(tmp_path):
    (tmp_path / "train.py").write_text((SCRIPTS / "own_update.py").read_text())
    words = ("train.py", "--without-loader", "--batch-size", "{batch_size}")
    done = run_well(
        "run", "-o", "out", "--sizes", "16,48", "--budget", "30s", *words, folder=tmp_path
    )
    assert sizes_that_arrived(done) == [16, 48]
    assert {trial.size_proof for trial in done.record.trials} == {"shape"}
    discovery = done.record.discovery
    assert discovery.micro_batches == 2
    assert [each.name for each in discovery.optimizers] == ["the script's own update"]
    assert discovery.num_parameters == 12 * 32 + 32 + 32 + 1
    own = done.searched[0]
    # Of one optimizer step of two batches: forward, and backward without the inputs' gradient.
    assert own.flops.forward + own.flops.backward == 2 * 16 * (2 * 12 * 32 * 2 + 2 * 32 * 3)


@pytest.mark.parametrize(("typed", "own"), [("10", 10), ("{batch_size}", 20)])
def test_a_dataset_that_batches_itself(typed, own, tmp_path):
    """It goes there by itself, or as it was typed."""
    words = ("--sizes", "4,40", SCRIPTS / "batches_itself.py", "-b", typed)
    done = run_well("run", *OPTIONS, *words, folder=tmp_path)
    assert sizes_that_arrived(done) == [4, 40]
    assert {trial.size_proof for trial in done.record.trials} == {"shape"}
    assert done.record.discovery.native_batch_size == own
    assert all(trial.input_wait_s is not None for trial in done.searched)
    # The length that such a loader claims counts batches.
    assert done.record.discovery.primary.num_samples is None


class TestOnlyAtItsOwnSize:
    """Scripts whose loader can be asked for sizes, and whose code takes one of them alone."""

    @pytest.mark.parametrize("words", [(), ("--skip-errors",)])
    def test_an_option_that_shapes_the_model(self, tmp_path, words):
        script = SCRIPTS / "shaped_by_size.py"
        sizes = ("--json", "--no-profile", "--sizes", "16,32,64", "--budget", "60s", "-o", "out")
        done = run_well("run", *sizes, script, *words, folder=tmp_path)
        assert sizes_that_arrived(done) == [16, 32, 64]
        record = done.record
        assert (record.discovery.door, record.discovery.native_batch_size) == ("template", 16)
        assert "trains only at its own batch size 16, whatever its loader" in done.stderr
        samples = (tmp_path / "out" / "samples.jsonl").read_text().splitlines()
        assert {json.loads(line)["trial"] for line in samples} <= set(range(len(record.trials)))

    def test_a_constant_and_how_it_goes_on(self, tmp_path):
        (tmp_path / "train.py").write_text((SCRIPTS / "constant_in_shapes.py").read_text())
        before = listing(tmp_path)["train.py"]
        words = ("-q", *OPTIONS[2:], "--max-batch", "100", "train.py")
        done = run_well("run", *OPTIONS[:1], *words, folder=tmp_path)
        assert done.record.discovery.door == "template"
        assert max(sizes_that_arrived(done)) == 100
        assert {trial.outcome for trial in done.record.trials} == {"ok"}
        words = ("--resume", "out", "--no-profile", "--goal", "memory", "--max-batch", "160")
        again = run_well("run", "--json", "-q", *words, "train.py", folder=tmp_path)
        trials = read_record(tmp_path / "out").trials
        assert again.answer["advice"]["recommended"]["batch_size"] == 160
        assert trials[: len(done.record.trials)] == done.record.trials
        assert {trial.outcome for trial in trials} == {"ok"}
        assert listing(tmp_path)["train.py"] == before

    def test_a_place_that_sets_nothing(self, tmp_path):
        """An option is named like a size, and the loader has a number of its own."""
        text = (SCRIPTS / "shaped_by_size.py").read_text()
        text = text.replace("data, batch_size=args.batch_size", "data, batch_size=8 * 2")
        (tmp_path / "train.py").write_text(text.replace("(1, args.batch_size, 32)", "(1, 16, 32)"))
        options = ("-q", "--no-profile", "--budget", "60s", "-o", "out")
        done = run("run", *options, "train.py", folder=tmp_path)
        assert done.code == 1, done
        assert "trains only at its own batch size 16" in done.error
        assert "RuntimeError: Expected hidden size" in done.error
        # What was measured stands all the same.
        assert "Keep batch size 16" in done.stdout
        assert done.record.state == "failed"
        assert done.record.trials[0].batch_size == 16


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
    done = run_well("run", *OPTIONS, *limit, "hungry.py", "{batch_size}x1", folder=tmp_path)
    outcomes = {trial.batch_size: trial.outcome for trial in done.searched}
    assert outcomes == {4: "ok", 16: "ok", 400: "out_of_memory"}
    assert done.advice.recommended.batch_size == 16
    assert done.left == []


class TestBadUse:
    @pytest.mark.parametrize(
        ("words", "said"),
        [
            (("--template", "shaped_by_size.py"), ("no argument of", "--batch-size {batch_size}")),
            *(
                (("plain.py", word), ("is not the placeholder", "Write {batch_size}"))
                for word in ("{bs}", "{batchsize}", "--size={BATCH_SIZE }")
            ),
            (
                ("argparse_validate_first.py", "--lr", "0.1", "--batch-size", "{batch_size}"),
                ("can be steered", "batchadvisor run ", " -q argparse_validate_first.py --lr 0.1 "),
            ),
            (
                ("--nproc-per-node", "2", "no_loader.py", "--batch_size={batch_size}"),
                ("several ranks are steered",),
            ),
            (("--loader", "0", "plain.py", "{batch_size}"), ("--loader",)),
        ],
    )
    def test_it_is_refused(self, tmp_path, words, said):
        for word in words:
            if word.endswith(".py"):
                (tmp_path / word).write_text((SCRIPTS / word).read_text())
        before = listing(tmp_path)
        done = run("run", "-q", *words, folder=tmp_path)
        done.assert_refused()
        assert all(part in done.error for part in said), done
        assert listing(tmp_path) == before

    def test_braces_of_another_kind_are_the_scripts(self, tmp_path):
        words = (SCRIPTS / "plain.py", '{"lr": 0.1}')
        run_well("run", "--dry-run", *words, folder=tmp_path)


def test_in_the_search_each_size_takes_turns_with_the_own_one(tmp_path):
    """Its process waits meanwhile, and none is started for the turns."""
    (tmp_path / "train.py").write_text((SCRIPTS / "no_loader.py").read_text())
    options = ("--json", "-q", "-o", "out", "--no-profile", "--budget", "40s", "--max-batch", "48")
    words = ("train.py", "--batch_size={batch_size}", "--max_iters", "1000000")
    done = run_well("run", *options, *words, folder=tmp_path)
    assert done.left == []
    searched = [trial for trial in done.record.trials if trial.purpose == "search"]
    alone = {trial.batch_size: trial.worker for trial in searched if trial.kind == "timed"}
    own, first = list(alone)[:2]
    assert (own, first) == (12, 48)
    turns = [trial.turns for trial in searched if trial.turns is not None]
    assert turns[0].sizes == (12, 48)
    assert turns[0].workers == (alone[12], alone[48])
    assert done.advice.against_own is not None


class TestFinalistsAtOnce:
    """Their processes live at once and take turns, and none of them stays."""

    WORDS = ("train.py", "--batch_size={batch_size}", "--max_iters", "1000000")
    OPTIONS = ("--json", "-q", "-o", "out", "--no-profile", "--sizes", "12,48")

    def test_they_take_turns(self, tmp_path):
        (tmp_path / "train.py").write_text((SCRIPTS / "no_loader.py").read_text())
        done = run_well("run", *self.OPTIONS, "--budget", "60s", *self.WORDS, folder=tmp_path)
        assert done.left == []
        confirmed = [trial for trial in done.record.trials if trial.purpose == "confirm"]
        alone = {trial.batch_size: trial.worker for trial in confirmed if trial.kind == "timed"}
        (turns,) = (trial.turns for trial in confirmed if trial.turns is not None)
        assert turns.sizes == (12, 48)
        assert turns.workers == tuple(map(alone.get, turns.sizes))  # none was started for them
        assert len(turns.step_s) >= 4
        assert all(seconds > 0 for row in turns.step_s for seconds in row)
        assert len(turns.lost_s) == len(turns.step_s)
        samples = (tmp_path / "out" / "samples.jsonl").read_text().splitlines()
        (ordinal,) = (trial.ordinal for trial in confirmed if trial.turns is not None)
        of_turns = [json.loads(line) for line in samples]
        assert {12, 48} == {line["num_samples"] for line in of_turns if line["trial"] == ordinal}

    def test_ctrl_c_ends_all_of_them(self, tmp_path):
        (tmp_path / "train.py").write_text((SCRIPTS / "no_loader.py").read_text())
        started = start("run", *self.OPTIONS, "--budget", "90s", *self.WORDS, folder=tmp_path)

        def both_live():
            record = tmp_path / "out" / "record.json"
            text = record.read_text() if record.exists() else ""
            return text.count('"confirm"') >= 2

        started.wait_for(both_live, "both finalists were confirmed")
        started.press_ctrl_c()
        result = started.finish()
        assert result.code in (0, 130), result  # 0 where all was over by then
        assert result.left == []
