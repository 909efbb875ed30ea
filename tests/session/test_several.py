"""A run on several devices that measured nothing: what is said, and what stands on disk."""

import json
import shutil
import sys
from pathlib import Path

import msgspec
import pytest
from batchadvisor.cli import cli
from batchadvisor.errors import RunError, UsageError
from batchadvisor.records import DeviceRun, DevicesRecord, SplitPlan
from batchadvisor.reports.terminal.progress import NullDisplay
from batchadvisor.session.devices import several
from batchadvisor.session.devices.outcome import speed_at
from batchadvisor.session.recording.store import DEVICES, RECORD, RunStore, read_record
from batchadvisor.session.run import Run
from batchadvisor.session.setup.device_choice import Device
from batchadvisor.session.setup.options import RunOptions
from click.testing import CliRunner

from ..end_to_end.driver import SCRIPTS
from ..on_paper import record_of, trial_of

DATA = Path(__file__).parents[1] / "data/records"
ONE = (Device(name="cpu-1", option="cpu:1", model="CPU, 1 core"),)


def run(folder):
    command = ("batchadvisor", "run", "train.py")
    options = RunOptions(script="train.py", memory_limit_bytes=1, command=command)
    return several.run_devices(ONE, options, folder, NullDisplay())


def state_of(folder):
    return msgspec.json.decode((folder / DEVICES).read_bytes(), type=DevicesRecord).state


def test_a_run_that_says_nothing(tmp_path, monkeypatch):
    """It ends well and leaves no record: then the logs are all there is."""
    monkeypatch.setattr(sys, "executable", "/bin/true")
    with pytest.raises(RunError, match="no device could be measured") as caught:
        run(tmp_path / "out")
    assert str(tmp_path / "out") in caught.value.remedy
    assert state_of(tmp_path / "out") == "failed"


def test_what_a_run_said_is_passed_on(tmp_path):
    with pytest.raises(RunError, match=r"measured\. there is no file train\.py"):
        run(tmp_path / "out")


def test_a_declared_workload_is_a_function_of_a_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("work.py").write_text("def make(): ...\n")
    begun = []
    monkeypatch.setattr(several, "run_devices", lambda *given: begun.append(given))
    options = RunOptions(script="work.py:make", door="workload", device="cpu:1,cpu:1")
    several.run(options, NullDisplay())
    assert len(begun) == 1
    with pytest.raises(UsageError, match=r"there is no file none\.py"):
        several.run(msgspec.structs.replace(options, script="none.py:make"), NullDisplay())


def test_an_interrupt_before_anything_is_measured_is_no_failure(tmp_path, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(several._Run, "_probe", interrupted)
    outcome = run(tmp_path / "out")
    assert outcome.record.state == state_of(tmp_path / "out") == "interrupted"
    assert not outcome.recommends


def test_a_full_disk_is_one_clear_error(tmp_path, fill_disk):
    fill_disk()
    with pytest.raises(RunError, match=r"cannot write into .*: No space left on device"):
        run(tmp_path / "out")
    assert not (tmp_path / "out").exists()


FIRST = trial_of(32, 10.0)
AGAIN = msgspec.structs.replace(trial_of(32, 12.0), purpose="confirm")
CUT = msgspec.structs.replace(AGAIN, samples_per_s=None, step_s=None)
"""Its time was over; on a busy machine it often is."""


@pytest.mark.parametrize(
    ("trials", "size", "speed"),
    [
        ([FIRST, AGAIN], 32, AGAIN.samples_per_s),
        ([FIRST, CUT], 32, FIRST.samples_per_s),
        ([FIRST], 64, None),
    ],
)
def test_a_check_of_twins_compares_the_confirmation_where_it_has_a_speed(trials, size, speed):
    assert speed_at(record_of(trials), size) == speed


@pytest.fixture
def stored(tmp_path):
    """A stored run on two devices, both of which measured no energy."""
    names = ("cpu-1", "cpu-1-no-2")
    for name in names:
        (tmp_path / name).mkdir()
        shutil.copy(DATA / "char_gpt_cpu.json", tmp_path / name / RECORD)
    runs = tuple(DeviceRun(device=device, model="CPU", folder=device) for device in names)
    record = DevicesRecord(state="finished", started_at="", command=("x",), devices=runs)
    (tmp_path / DEVICES).write_bytes(msgspec.json.encode(record))
    return tmp_path


def typed(*words):
    return CliRunner().invoke(cli, [*map(str, words)])


class TestAdvise:
    def test_another_goal(self, stored):
        done = typed("advise", "--goal", "throughput", stored)
        assert done.exit_code == 0
        assert done.stdout.startswith("Batch size by device: cpu-1 64, cpu-1-no-2 64")
        data = json.loads(typed("advise", "--goal", "throughput", "--json", stored).stdout)
        plan = msgspec.convert(data["split"], SplitPlan)
        sizes = {share.device: share.batch_size for share in plan.shares}
        assert sizes == {"cpu-1": 64, "cpu-1-no-2": 64}
        assert plan.global_batch == 128
        assert data["unavailable"] == {}

    def test_a_global_batch_of_ones_own_is_split(self, stored):
        data = json.loads(typed("advise", "--global-batch", "96", "--json", stored).stdout)
        plan = msgspec.convert(data["split"], SplitPlan)
        assert plan.global_batch == sum(share.batch_size for share in plan.shares) == 96
        assert plan.global_batch_source == "as asked"

    def test_the_json_says_why_there_is_no_plan(self, stored):
        (stored / "cpu-1-no-2" / RECORD).unlink()
        data = json.loads(typed("advise", "--json", stored).stdout)
        assert data["split"] is None
        assert "a split needs two devices" in data["unavailable"]["split"]

    @pytest.mark.parametrize(
        ("words", "folder", "said"),
        [
            (("report", "."), "", "is a run on several devices"),  # by `--resume` too
            (("advise", "--global-batch", "96"), "cpu-1", "is for a run on several devices"),
            (("advise", "--goal", "energy"), "", "--goal energy cannot be answered"),
        ],
    )
    def test_what_the_folder_cannot_answer(self, stored, monkeypatch, words, folder, said):
        monkeypatch.chdir(stored)
        done = typed(*words, stored / folder)
        assert isinstance(done.exception, UsageError)
        assert said in str(done.exception)

    def test_no_size_is_no_answer(self, stored):
        """Three bytes to use: nothing that ran may be recommended."""
        for path in stored.glob(f"*/{RECORD}"):
            record = read_record(path)
            device = msgspec.structs.replace(record.device, capacity_bytes=3)
            path.write_bytes(msgspec.json.encode(msgspec.structs.replace(record, device=device)))
        done = typed("advise", stored)
        assert done.exit_code == 1
        assert done.stdout.startswith("No device has an answer")


def test_a_folder_that_another_run_writes_into(tmp_path):
    store = RunStore(tmp_path / "out")
    with pytest.raises(UsageError, match="another run is writing"):
        run(tmp_path / "out")
    store.close()
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_a_folder_that_holds_a_run_of_the_other_kind(tmp_path):
    """`advise` and `report` would show one of the two, and the other would be lost to them."""
    (tmp_path / "several").mkdir()
    (tmp_path / "several" / DEVICES).write_text("{}")
    options = RunOptions(script=str(SCRIPTS / "plain.py"), output=tmp_path / "several")
    with pytest.raises(UsageError, match="holds a run already"):
        Run(options, NullDisplay())
    RunStore(tmp_path / "one").save(read_record(DATA / "char_gpt_cpu.json"))
    with pytest.raises(UsageError, match="holds a run already"):
        run(tmp_path / "one")
