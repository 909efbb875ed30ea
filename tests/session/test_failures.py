"""What to do, where a script ends before it trains."""

from pathlib import Path

import msgspec
import pytest
from batchadvisor.probes.process.endings import over
from batchadvisor.probes.process.messages import CannotSteer, Ended, Raised
from batchadvisor.session.setup.options import RunOptions
from batchadvisor.session.workers.failures import error_of, nothing_fits

from ..on_paper import discovery_of, loader_of, record_of, trial_of

SAID = (
    "Error initializing torch.distributed using env:// rendezvous: environment variable {} "
    "expected, but not set"
)
NO_SAMPLES = "num_samples should be a positive"
LACKING = [
    ("ValueError", SAID.format("RANK")),
    ("ValueError", SAID.format("MASTER_ADDR")),
    ("KeyError", "'LOCAL_RANK'"),
    ("KeyError", "'WORLD_SIZE'"),
]


def error(kind, text, tmp_path):
    gone = over(Raised(kind=kind, text=text, traceback="there", out_of_memory=False))
    options = RunOptions(script="a.py", arguments=("--lr", "1"))
    return str(error_of(gone, options, tmp_path, None))


@pytest.fixture(autouse=True)
def no_rank(monkeypatch):
    monkeypatch.delenv("RANK", raising=False)


@pytest.mark.parametrize(("kind", "text"), LACKING)
def test_a_script_for_a_launcher_gets_the_command(kind, text, tmp_path):
    said = error(kind, text, tmp_path)
    assert text in said
    assert "batchadvisor run --nproc-per-node 2 a.py --lr 1" in said
    assert "fix it first" not in said


@pytest.mark.parametrize(("kind", "text"), LACKING)
def test_a_rank_has_been_launched(kind, text, tmp_path, monkeypatch):
    monkeypatch.setenv("RANK", "0")
    assert "fix it first" in error(kind, text, tmp_path)


@pytest.mark.parametrize(
    ("kind", "text"), [("KeyError", "'rank'"), ("ValueError", "RANK is 3"), ("KeyError", "'lr'")]
)
def test_the_scripts_own_faults_stay_its_own(kind, text, tmp_path):
    assert "fix it first" in error(kind, text, tmp_path)


def test_nothing_is_said_of_a_run_without_us(tmp_path):
    """It was not run alone: whether it fails then is for the user to see."""
    assert "If the script also fails without batchadvisor" in error("KeyError", "'lr'", tmp_path)


def test_a_script_whose_loader_gives_no_batch(tmp_path):
    """Its own mean over no batches raises; why there were none stands beside it."""
    loader = msgspec.structs.replace(loader_of(40, drop_last=True), batch_size=64)
    raised = Raised(
        kind="ZeroDivisionError", text="float division by zero", traceback="there",
        out_of_memory=False, empty=loader,
    )  # fmt: skip
    options = RunOptions(script="a.py", arguments=())
    said = str(error_of(over(raised), options, tmp_path, None))
    assert "ZeroDivisionError" in said
    assert "Take batch_size = 40, or leave drop_last out" in said
    assert "40 samples, fewer than one batch of 64" in said
    kept = msgspec.structs.replace(raised, empty=msgspec.structs.replace(loader, drop_last=False))
    assert "drop_last" not in str(error_of(over(kept), options, tmp_path, None))


def ended(tmp_path, *, num_steps, num_fetches):
    gone = over(Ended(exit_code=0, num_steps=num_steps, num_fetches=num_fetches, num_loaders=1))
    options = RunOptions(script="a.py", arguments=("--lr", "1"))
    return str(error_of(gone, options, tmp_path, None))


def test_a_script_that_trains_on_batches_that_it_holds(tmp_path):
    """A list of all batches, or one batch to overfit: more epochs would change nothing."""
    said = ended(tmp_path, num_steps=2000, num_fetches=20)
    assert "2000 optimizer steps on 20 batches" in said
    assert "Let it train longer" not in said
    assert "batchadvisor run --template --set NAME={batch_size} a.py --lr 1" in said
    assert "99 optimizer steps on 1 batch that" in ended(tmp_path, num_steps=99, num_fetches=1)


@pytest.mark.parametrize(("num_steps", "num_fetches"), [(2, 2), (2, 1), (99, 99)])
def test_a_script_that_ends_early(tmp_path, num_steps, num_fetches):
    said = ended(tmp_path, num_steps=num_steps, num_fetches=num_fetches)
    assert "Let it train longer" in said


@pytest.mark.parametrize("own", [8, 16])
def test_a_script_that_counts_on_the_end_of_an_epoch(own):
    """It keeps a loss for each batch of an epoch, and alone it runs."""
    bad = trial_of(8, outcome="exception", detail="IndexError: index 20 is out of bounds")
    record = record_of(trials=(bad,), discovery=discovery_of(native=own))
    said = str(nothing_fits(record, "", Path("log")))
    assert "If the script also fails without batchadvisor" in said
    assert "--template, with {batch_size} in its arguments" in said


def test_a_script_that_was_started_for_each_size_is_not_told_to():
    bad = trial_of(8, outcome="exception", detail="IndexError: index 20 is out of bounds")
    template = msgspec.structs.replace(discovery_of(native=8), door="template")
    said = str(nothing_fits(record_of(trials=(bad,), discovery=template), "", Path("log")))
    assert "If the script also fails without batchadvisor" in said
    assert "--template" not in said


def test_a_fault_of_ours_is_not_the_scripts():
    last_words = Raised(
        kind="batchadvisor", text="KeyError: 'x'", traceback="", out_of_memory=False
    )
    gone = over(last_words)
    assert gone.is_own_fault
    bad = trial_of(8, outcome=gone.outcome, detail=gone.detail)
    said = str(nothing_fits(record_of(trials=(bad,), discovery=discovery_of()), "", Path("log")))
    assert said.startswith("batchadvisor itself failed: KeyError: 'x'. This is a bug")
    assert "script" not in said


def test_a_script_that_gives_up_is_not_told_to_train_longer():
    """`sys.exit(3)` in the middle of the loop is no end of an epoch."""
    gone = over(Ended(exit_code=3, num_steps=12, num_fetches=12, num_loaders=1))
    assert gone.outcome == "crashed"
    bad = trial_of(16, outcome=gone.outcome, detail=gone.detail)
    said = str(nothing_fits(record_of([bad]), "", Path("out/script.log")))
    assert "exit code 3 after 12 optimizer steps" in said
    assert "train longer" not in said
    assert "out/script.log" in said
    done = over(Ended(exit_code=0, num_steps=12, num_fetches=12, num_loaders=1))
    bad = trial_of(16, outcome=done.outcome, detail=done.detail)
    assert "train longer" in str(nothing_fits(record_of([bad]), "", Path("log")))


def test_a_script_that_asks_for_input(tmp_path):
    said = error("EOFError", "EOF when reading a line", tmp_path)
    assert "a.py asks for input, but standard input is closed during a run." in said
    assert "fix it first" not in said
    assert "fix it first" in error("EOFError", "Ran out of input", tmp_path)


@pytest.mark.parametrize(
    ("message", "words"),
    [
        (Ended(exit_code=2, num_steps=0, num_fetches=0, num_loaders=0), "estimate OPTIONS a.py"),
        (
            Raised(kind="KeyError", text="'RANK'", traceback="there", out_of_memory=False),
            "Ranks are not estimated; on GPUs, start it as one",
        ),
        (
            CannotSteer(reason="no loader", remedy="", door="template"),
            "`estimate` needs a DataLoader; on a GPU, `run` does without.",
        ),
    ],
)
def test_what_is_said_of_an_estimate(message, words, tmp_path):
    options = RunOptions(script="a.py", verb="estimate")
    assert words in str(error_of(over(message), options, tmp_path, None))


@pytest.mark.parametrize(
    ("kind", "text", "words"),
    [
        ("ModuleNotFoundError", "No module named 'timm.data'", "Install the package that has timm"),
        ("ModuleNotFoundError", "No module named 'yaml'", "Install pyyaml for this Python"),
        ("FileNotFoundError", "[Errno 2] No such file or directory: 'x/y'", "counts from the work"),
        ("FileNotFoundError", "[Errno 2] No such file or directory: '/x'", "another path. Its out"),
        ("AssertionError", "Torch not compiled with CUDA enabled", "torch sees none here"),
        ("OSError", "We couldn't connect to 'https://huggingface.co' to load", "needs the network"),
        (
            "URLError",
            "<urlopen error [Errno -3] Temporary failure in name reso",
            "needs the network",
        ),
        ("OSError", "[Errno 25] Inappropriate ioctl for device", "asks its terminal"),
        ("ValueError", f"{NO_SAMPLES} integer value, but got num_samples=0", "dataset is empty"),
    ],
)
def test_what_helps_is_said(kind, text, words, tmp_path):
    """The script's own last words, and one next step."""
    said = error(kind, text, tmp_path / "script.log")
    assert f"a.py raised {kind}: {text}" in said
    assert words in said
    assert "fix it first" not in said
    assert said.endswith(f"Its output is in {tmp_path / 'script.log'}.")


@pytest.mark.parametrize(("code", "says"), [(1, "exit code 1"), (0, "never trains")])
def test_the_last_words_of_a_script_that_gives_up(code, says, tmp_path):
    log = tmp_path / "script.log"
    log.write_text("loading\nNo module named 'cv2', good bye\n\n")
    gone = over(Ended(exit_code=code, num_steps=0, num_fetches=0, num_loaders=0))
    said = str(error_of(gone, RunOptions(script="a.py"), log, None))
    assert says in said
    assert "No module named 'cv2', good bye." in said
    assert ("Install opencv-python-headless" in said) is (code == 1)


def test_a_dataset_without_samples(tmp_path):
    loader = msgspec.structs.replace(loader_of(0), batch_size=64)
    gone = over(Ended(exit_code=0, num_steps=0, num_fetches=0, num_loaders=1, empty=loader))
    said = str(error_of(gone, RunOptions(script="a.py"), tmp_path / "script.log", None))
    assert "is empty. Look at the folder and the filters" in said
