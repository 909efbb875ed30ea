"""What to do, where a script cannot be measured: it ends before it trains, or its GPU is gone.

Texts of GPUs are as users reported them; none was provoked here.
"""

from pathlib import Path

import msgspec
import pytest
from batchadvisor.advisor.measured.thresholds import BUDGET_SPENT
from batchadvisor.errors import RunError
from batchadvisor.probes.devices.device_faults import device_fault
from batchadvisor.probes.nvml.gpus import devices
from batchadvisor.probes.process.endings import over
from batchadvisor.probes.process.messages import CannotSteer, Ended, Raised
from batchadvisor.session.setup.options import RunOptions
from batchadvisor.session.workers import failures
from batchadvisor.session.workers.failures import error_of, nothing_fits

from ..on_paper import discovery_of, failure_of, loader_of, record_of, trial_of

LOG = Path("out/script.log")
ALONE = "If the script also fails without batchadvisor, fix it first."
RENDEZVOUS = (
    "Error initializing torch.distributed using env:// rendezvous: environment variable {} "
    "expected, but not set"
)
NO_SAMPLES = "num_samples should be a positive integer value, but got num_samples=0"
GONE = (
    "CUDA error: no CUDA-capable device is detected",
    "Unable to determine the device handle for GPU 0000:02:00.0: GPU is lost.",
    "No CUDA GPUs are available",
)


def raised(kind, text, **more):
    return Raised(kind=kind, text=text, traceback="there", out_of_memory=False, **more)


def ended(exit_code=0, num_steps=0, num_fetches=0, num_loaders=1, **more):
    return Ended(
        exit_code=exit_code, num_steps=num_steps, num_fetches=num_fetches,
        num_loaders=num_loaders, **more,
    )  # fmt: skip


def error(message, log=LOG, **options):
    """The error for a process that said this and was over before its loop was found."""
    options = RunOptions(**{"script": "a.py", "arguments": ("--lr", "1"), **options})
    return error_of(over(message), options, log, None)


def said(message, log=LOG, **options):
    return str(error(message, log, **options))


def nothing_ran(*trials, **changes):
    """The error of a run whose trials came out so; empty where there is none."""
    return str(nothing_fits(record_of(trials, **changes), "", LOG) or "")


def bad_trial(size, message):
    gone = over(message)
    return trial_of(size, outcome=gone.outcome, detail=gone.detail)


@pytest.fixture(autouse=True)
def no_rank(monkeypatch):
    monkeypatch.delenv("RANK", raising=False)


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("ValueError", RENDEZVOUS.format("RANK")),
        ("ValueError", RENDEZVOUS.format("MASTER_ADDR")),
        ("KeyError", "'LOCAL_RANK'"),
        ("KeyError", "'WORLD_SIZE'"),
    ],
)
def test_a_script_for_a_launcher_gets_the_command_unless_it_was_launched(kind, text, monkeypatch):
    alone = said(raised(kind, text))
    assert text in alone
    assert "batchadvisor run --nproc-per-node 2 a.py --lr 1" in alone
    assert ALONE not in alone
    monkeypatch.setenv("RANK", "0")
    assert ALONE in said(raised(kind, text))


def test_a_message_with_a_full_stop_gets_no_second_one():
    text = said(raised("ValueError", "Expected batch_size (1) to match batch_size (0)."))
    assert f"to match batch_size (0). {ALONE}" in text


@pytest.mark.parametrize(
    ("kind", "text"), [("KeyError", "'rank'"), ("ValueError", "RANK is 3"), ("KeyError", "'lr'")]
)
def test_the_scripts_own_faults_stay_its_own(kind, text):
    """It was not run alone: whether it fails then is for the user to see."""
    assert ALONE in said(raised(kind, text))


def test_a_script_whose_loader_gives_no_batch():
    """Its own mean over no batches raises; why there were none stands beside it."""
    loader = msgspec.structs.replace(loader_of(40, drop_last=True), batch_size=64)
    words = said(raised("ZeroDivisionError", "float division by zero", empty=loader))
    assert "ZeroDivisionError" in words
    assert "Take batch_size = 40, or leave drop_last out" in words
    assert "40 samples, fewer than one batch of 64" in words
    kept = msgspec.structs.replace(loader, drop_last=False)
    assert "drop_last" not in said(raised("ZeroDivisionError", "division", empty=kept))


def test_a_dataset_without_samples():
    loader = msgspec.structs.replace(loader_of(0), batch_size=64)
    assert "is empty. Look at the folder and the filters" in said(ended(empty=loader))


def test_a_script_that_trains_on_batches_that_it_holds():
    """A list of all batches, or one batch to overfit: more epochs would change nothing."""
    words = said(ended(num_steps=2000, num_fetches=20))
    assert "2000 optimizer steps on 20 batches" in words
    assert "Let it train longer" not in words
    assert "batchadvisor run --template --set NAME={batch_size} a.py --lr 1" in words
    assert "99 optimizer steps on 1 batch that" in said(ended(num_steps=99, num_fetches=1))


@pytest.mark.parametrize(("num_steps", "num_fetches"), [(2, 2), (2, 1), (99, 99)])
def test_a_script_that_ends_early(num_steps, num_fetches):
    assert "Let it train longer" in said(ended(num_steps=num_steps, num_fetches=num_fetches))
    assert "ended after 1 optimizer step, before" in said(ended(num_steps=1, num_fetches=1))


@pytest.mark.parametrize(
    ("own", "door", "is_told"), [(8, "loader", True), (16, "loader", True), (8, "template", False)]
)
def test_a_script_that_counts_on_the_end_of_an_epoch_is_started_for_each_size(own, door, is_told):
    """It keeps a loss for each batch of an epoch, and alone it runs."""
    bad = trial_of(8, outcome="exception", detail="IndexError: index 20 is out of bounds")
    discovery = msgspec.structs.replace(discovery_of(native=own), door=door)
    words = nothing_ran(bad, discovery=discovery)
    assert ALONE in words
    assert ("--template, with {batch_size} in its arguments" in words) is is_told


def test_a_fault_of_ours_is_not_the_scripts():
    ours = raised("batchadvisor", "KeyError: 'x'")
    assert over(ours).is_own_fault
    words = nothing_ran(bad_trial(8, ours))
    assert words.startswith("batchadvisor itself failed: KeyError: 'x'. This is a bug")
    assert "script" not in words


def test_a_script_that_gives_up_is_not_told_to_train_longer():
    """`sys.exit(3)` in the middle of the loop is no end of an epoch."""
    words = nothing_ran(bad_trial(16, ended(3, num_steps=12, num_fetches=12)))
    assert "exit code 3 after 12 optimizer steps" in words
    assert "train longer" not in words
    assert str(LOG) in words
    assert "train longer" in nothing_ran(bad_trial(16, ended(num_steps=12, num_fetches=12)))


@pytest.mark.parametrize("over", [False, True])
def test_smaller_sizes_that_there_was_no_time_for_may_fit(over):
    words = nothing_ran(failure_of(64), stop_reason=BUDGET_SPENT if over else "it is over")
    assert ("nothing fits" in words) != over
    assert ("--resume and a larger --budget" in words) == over


def test_a_script_that_asks_for_input():
    words = said(raised("EOFError", "EOF when reading a line"))
    assert "a.py asks for input, but standard input is closed during a run." in words
    assert ALONE not in words
    assert ALONE in said(raised("EOFError", "Ran out of input"))


@pytest.mark.parametrize(
    ("message", "words"),
    [
        (ended(2, num_loaders=0), "estimate OPTIONS a.py"),
        (raised("KeyError", "'RANK'"), "Ranks are not estimated; on GPUs, start it as one"),
        (
            CannotSteer(reason="no loader", remedy="", door="template"),
            "`estimate` needs a DataLoader; on a GPU, `run` does without.",
        ),
    ],
)
def test_what_is_said_of_an_estimate(message, words):
    assert words in said(message, verb="estimate")


def test_a_size_that_a_library_has_by_default_is_to_be_written():
    call = "DQN(...) at a.py:7 takes batch_size=32 where the call names none"
    text = said(CannotSteer(reason="no loader", remedy="", door="template", unwritten=call))
    assert f"{call}. Write that number into the call, and run again: batchadvisor run a.py" in text
    assert "named like a batch size" not in text


@pytest.mark.parametrize(
    ("kind", "text", "words"),
    [
        ("ModuleNotFoundError", "No module named 'timm.data'", "Install the package that has timm"),
        ("ModuleNotFoundError", "No module named 'yaml'", "Install pyyaml for this Python"),
        ("FileNotFoundError", "[Errno 2] No such file or directory: 'x/y'", "counts from the work"),
        ("FileNotFoundError", "[Errno 2] No such file or directory: '/x'", "another path. Its out"),
        ("AssertionError", "Torch not compiled with CUDA enabled", "torch sees none here"),
        ("MisconfigurationException", "No supported gpu backend found!", "torch sees none here"),
        (
            "RuntimeError",
            "Cannot access accelerator device when none is available.",
            "torch sees none here",
        ),
        ("OSError", "We couldn't connect to 'https://huggingface.co' to load", "needs the network"),
        ("URLError", "<urlopen error [Errno -3] Temporary failure in name", "needs the network"),
        ("FileExistsError", "[Errno 17] File exists: 'logs/a'", "Move logs/a away"),
        ("OSError", "[Errno 25] Inappropriate ioctl for device", "asks its terminal"),
        ("ValueError", NO_SAMPLES, "dataset is empty"),
    ],
)
def test_what_helps_is_said(kind, text, words):
    """The script's own last words, and one next step."""
    whole = said(raised(kind, text))
    assert f"a.py raised {kind}: {text}" in whole
    assert words in whole
    assert ALONE not in whole
    assert whole.endswith(f"Its output is in {LOG}.")


def test_an_exception_of_a_data_worker_is_named_once():
    inside = 'Traceback (most recent call last):\n  File "a.py", line 3\nValueError: no boxes'
    whole = said(raised("ValueError", f"Caught ValueError in DataLoader worker 0.\n{inside}"))
    assert "a.py raised ValueError: no boxes. If the script" in whole


def test_an_exception_that_ends_in_a_full_stop_or_a_colon_of_its_own():
    whole = said(raised("TypeError", "Torch not compiled with CUDA enabled."))
    assert "raised TypeError: Torch not compiled with CUDA enabled. The script asks" in whole
    whole = said(raised("RuntimeError", "Error downloading a.gz:\nTried here, got:\nnothing"))
    assert "raised RuntimeError: Error downloading a.gz. The script needs the network" in whole
    assert "raised TypeError: give up... If the" in said(raised("TypeError", "give up.."))
    assert "raised TypeError: no data. If the" in said(raised("TypeError", "no data. "))
    assert "raised TypeError: no data! If the" in said(raised("TypeError", "no data!"))


@pytest.mark.parametrize(("code", "says"), [(1, "exit code 1"), (0, "never trains")])
def test_the_last_words_of_a_script_that_gives_up(code, says, tmp_path):
    log = tmp_path / "script.log"
    log.write_text("loading\nNo module named 'cv2', good bye\n\n")
    whole = said(ended(code, num_loaders=0), log)
    assert says in whole
    assert "No module named 'cv2', good bye." in whole
    assert ("Install opencv-python-headless" in whole) is (code == 1)


@pytest.mark.parametrize(
    ("last", "words"),
    [
        ("urllib.error.URLError: <urlopen error [Errno -2] Name or service", "needs the network"),
        ("ValueError: too few pictures", ALONE),
    ],
)
def test_a_script_that_logs_its_own_exception_and_ends_well(last, words, tmp_path):
    """It is the script that trains, and it says itself why it did not."""
    log = tmp_path / "script.log"
    log.write_text(f'Traceback (most recent call last):\n  File "a.py"\n{last}\n')
    whole = said(ended(0, num_loaders=0), log)
    assert f"Its last words: {last}." in whole
    assert words in whole
    assert "Point batchadvisor" not in whole


@pytest.mark.parametrize(
    ("message", "words"),
    [
        (ended(0, num_loaders=0), "it ended with exit code 0; its last words: Folder exists"),
        (ended(1, num_loaders=0), "it ended with exit code 1; its last words: Folder exists"),
        (raised("EOFError", "EOF when reading a line"), "it raised EOFError: EOF when reading"),
        (raised("FileExistsError", "[Errno 17] File exists: 'log'"), "it raised FileExistsError"),
    ],
)
def test_a_script_that_its_own_first_start_stops(message, words, tmp_path):
    """It made a folder, and halts or asks where that is there; it has trained all the same."""
    log = tmp_path / "script.log"
    log.write_text("Folder exists. Program halted.\n")
    found = error_of(over(message), RunOptions(script="a.py"), log, None, again=True)
    assert f"and not when it was started again: {words}" in str(found)
    assert "What was measured stands." in str(found)
    assert "never trains" not in str(found)


class TestGpu:
    @pytest.mark.parametrize(
        "text",
        [
            "CUDA error: all CUDA-capable devices are busy or unavailable\nCompile with more.",
            "CUDA error: CUDA-capable device(s) is/are busy or unavailable",
            "cuda runtime error (46) : all CUDA-capable devices are busy or unavailable",
        ],
    )
    def test_an_exclusive_one_is_no_fault_of_the_script(self, text):
        found = error(raised("RuntimeError", text), device="cuda:0")
        assert type(found) is RunError
        assert "compute mode is exclusive" in str(found)
        assert "nvidia-smi" in str(found)
        assert ALONE not in str(found)

    @pytest.mark.parametrize("text", GONE)
    def test_one_that_vanished_is_said(self, text):
        assert "the GPU is gone" in said(raised("RuntimeError", text), device="cuda:0")

    @pytest.mark.skipif(bool(devices()), reason="there is a GPU that could be gone")
    @pytest.mark.parametrize("text", [text for text in GONE if "CUDA" in text])
    def test_where_there_is_none_none_is_gone(self, text, monkeypatch):
        monkeypatch.setattr(failures, "devices", list)  # whatever driver other tests have loaded
        words = said(raised("RuntimeError", text))
        assert "is gone" not in words
        assert "torch sees none here" in words

    @pytest.mark.parametrize(
        "text",
        [
            "CUDA error: device-side assert triggered",
            "CUDA out of memory. Tried to allocate 2.00 GiB.",
            "CUDA error: an illegal memory access was encountered",
            "Expected all tensors to be on the same device, cuda:0 and cpu!",
        ],
    )
    def test_what_the_script_did_is_left_to_it(self, text):
        assert device_fault(text) is None

    def test_one_that_vanishes_in_a_trial_ends_the_run_and_keeps_what_was_measured(self):
        words = nothing_ran(trial_of(8), bad_trial(16, raised("RuntimeError", GONE[0])))
        assert "the GPU is gone" in words
        assert "what was measured is kept" in words
