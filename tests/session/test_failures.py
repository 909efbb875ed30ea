"""What to do, where a script ends before it trains."""

import pytest
from batchadvisor.probes.messages import Raised
from batchadvisor.probes.supervisor import over
from batchadvisor.session.failures import error_of
from batchadvisor.session.options import RunOptions

SAID = (
    "Error initializing torch.distributed using env:// rendezvous: environment variable {} "
    "expected, but not set"
)
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
    assert "Mend the script" not in said


@pytest.mark.parametrize(("kind", "text"), LACKING)
def test_a_rank_has_been_launched(kind, text, tmp_path, monkeypatch):
    monkeypatch.setenv("RANK", "0")
    assert "Mend the script" in error(kind, text, tmp_path)


@pytest.mark.parametrize(
    ("kind", "text"), [("KeyError", "'rank'"), ("ValueError", "RANK is 3"), ("KeyError", "'lr'")]
)
def test_the_scripts_own_faults_stay_its_own(kind, text, tmp_path):
    assert "Mend the script" in error(kind, text, tmp_path)


def test_nothing_is_said_of_a_run_without_us(tmp_path):
    """It was not run alone: whether it fails then is for the user to see."""
    assert "Mend the script if it fails alone too" in error("KeyError", "'lr'", tmp_path)
