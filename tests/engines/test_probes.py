"""What is made of probes that never come, end early, or leave half a record; no cluster needed."""

import shlex
import shutil
from pathlib import Path

import msgspec
import pytest
from batchadvisor.cli import cli
from batchadvisor.errors import RunError, UsageError
from batchadvisor.features.plan.engines.cluster import cluster_answer, run_probes
from batchadvisor.features.plan.engines.gpu_types import GpuType
from batchadvisor.records import DevicesRecord
from batchadvisor.reports.terminal.progress import NullDisplay
from batchadvisor.session.devices import fleet as module
from batchadvisor.session.devices.engine import Standing
from batchadvisor.session.recording.store import DEVICES
from batchadvisor.session.setup.options import RunOptions
from click.testing import CliRunner

RECORD = Path(__file__).parents[1] / "data/records/char_gpt_cpu.json"


class Scripted:
    """An engine whose probes do what their type is called.

    good: leaves a whole record; half: half of one; nothing: none, and says an error; endless: has a
    record and never ends; never: waits for ever; refused: cannot be started.
    """

    def __init__(self):
        self.started = {}
        self.cancelled = []
        self.closed = False

    def types(self):
        raise NotImplementedError

    def start(self, probe):
        if probe.name == "refused":
            raise RunError("the queue refuses it.", "Ask for less.")
        self.started[probe.name] = probe
        kind = probe.name.partition("-")[0]
        if kind in ("good", "half", "endless"):
            probe.output.mkdir()
            data = RECORD.read_bytes()
            half = data[: len(data) // 2] if kind == "half" else data
            (probe.output / "record.json").write_bytes(half)
        if kind == "nothing":
            probe.log.write_text("batchadvisor: starting\nError: no module torch. Install it.\n")

    def look(self):
        return {name: self._standing(name) for name in self.started}

    def _standing(self, name):
        kind = name.partition("-")[0]
        if kind == "never" and name not in self.cancelled:
            return Standing(state="waiting", detail="job 7, Resources")
        if kind == "endless" and name not in self.cancelled:
            return Standing(state="running", detail="job 8 on n1")
        return Standing(state="ended", exit_code={"good": 0}.get(kind, 1))

    def cancel(self, names):
        self.cancelled += names

    def close(self):
        self.closed = True


class Told(NullDisplay):
    def __init__(self):
        self.lines = []

    def note(self, text):
        self.lines.append(text)


@pytest.fixture
def probed(tmp_path):
    def run(*names, limit_s=0.3, engine=None, display=None, device="cpu"):
        folder = tmp_path / "out"
        types = [GpuType(name=name, request=f"gpu:{name}:1") for name in names]
        options = {
            name: RunOptions(script="a.py", device=device, output=folder / name) for name in names
        }
        return run_probes(
            engine or Scripted(), types, options, folder, display or Told(),
            command=("batchadvisor", "run", "a.py"), time_limit_s=limit_s,
        )  # fmt: skip

    return run


def errors(outcome):
    return {run.device: run.error for run in outcome.record.devices}


def test_what_never_comes_is_left_out_and_the_others_stay(probed):
    engine = Scripted()
    outcome = probed("good", "never", "refused", "half", "nothing", "endless", engine=engine)
    assert list(outcome.answers) == ["good", "endless"]
    said = errors(outcome)
    assert "what was measured is kept" in said["endless"]
    assert said["good"] == ""
    assert said["never"] == "no node came within --time-limit 300 ms (job 7, Resources)"
    assert said["refused"] == "the queue refuses it. Ask for less."
    assert "is not a record: Input data was truncated" in said["half"]
    assert said["nothing"] == "Error: no module torch. Install it."
    assert sorted(engine.cancelled) == ["endless", "never"]
    assert engine.closed
    text = cluster_answer(outcome, width=200, color=False, as_json=False)
    for name in ("never", "refused", "half", "nothing"):
        assert f"error {name}: " in " ".join(text.split())
    stored = msgspec.json.decode((outcome.folder / DEVICES).read_bytes(), type=DevicesRecord)
    assert stored == outcome.record
    assert stored.state == "finished"


def test_the_next_command_puts_the_records_together(probed):
    outcome = probed("good-a100", "good-t4", "never")
    text = cluster_answer(outcome, width=400, color=False, as_json=False)
    [line] = [line for line in text.splitlines() if line.startswith("Next: ")]
    _, *words = shlex.split(line.removeprefix("Next: "))
    assert words == ["plan", *(str(outcome.folder / name) for name in ("good-a100", "good-t4"))]
    answer = CliRunner().invoke(cli, words)
    assert answer.exit_code == 0, answer
    assert "good-a100" in answer.output


def test_nothing_at_all_is_one_error(probed):
    with pytest.raises(RunError) as failed:
        probed("never", "half")
    text = str(failed.value)
    assert text.startswith("nothing was measured on any GPU type. never: no node came within")
    assert "half: " in text
    assert "\n" not in text


def test_what_was_never_started_leaves_no_folder(probed, tmp_path):
    with pytest.raises(RunError, match=r"the queue refuses it\. Ask for less\.$"):
        probed("refused")
    assert not (tmp_path / "out").exists()


def test_an_interrupt_cancels_all_that_is_open(probed, monkeypatch):
    engine = Scripted()
    naps = iter([KeyboardInterrupt()])

    def press(seconds):
        for error in naps:
            raise error

    monkeypatch.setattr(module.time, "sleep", press)
    outcome = probed("endless", "never", engine=engine, limit_s=60)
    assert engine.cancelled == ["endless", "never"]
    assert engine.closed
    assert outcome.record.state == "interrupted"
    assert list(outcome.answers) == ["endless"]


def test_progress_says_why_a_probe_waits_and_what_it_says(probed, monkeypatch):
    monkeypatch.setattr(module, "STILL_WAITING_S", 0.0)
    display = Told()
    probed("good", "never", "nothing", display=display)
    assert "never: waiting, job 7, Resources" in display.lines
    assert "nothing: starting" in display.lines
    assert any(line.startswith("never: waiting for a node; cancelled in") for line in display.lines)


def test_the_folder_of_another_run_is_left_alone(probed, tmp_path):
    (tmp_path / "out").mkdir()
    shutil.copy(RECORD, tmp_path / "out/record.json")
    with pytest.raises(UsageError, match="holds a run already"):
        probed("good")


def test_a_probe_that_found_no_gpu_is_an_error(probed):
    """The stored record is one of a CPU."""
    assert "ran on the CPU" in errors(probed("good", device="auto"))["good"]
