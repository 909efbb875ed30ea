"""The table of several devices."""

from pathlib import Path

import msgspec
import pytest
from batchadvisor.advisor.advise import advise
from batchadvisor.errors import UsageError
from batchadvisor.records import DeviceRun, DevicesRecord, TwinCheck
from batchadvisor.session.devices import several
from batchadvisor.session.devices.outcome import Outcome, read_devices
from batchadvisor.session.recording.store import read_record

from ..on_paper import exactly

DATA = Path(__file__).parents[1] / "data/records"


def spread(median):
    return exactly(median, 0.1)


@pytest.fixture(scope="module")
def answer():
    record = read_record(DATA / "char_gpt_cpu.json")
    return record, advise(record)


def text_of(answer, *devices, state="finished"):
    record = DevicesRecord(state=state, started_at="", command=(), devices=devices)
    answers = {device.device: answer for device in devices if not device.error}
    return shown(record, answers)


def shown(record, answers, *, folder="out", width=100, then=()):
    outcome = Outcome(record=record, folder=Path(folder), answers=answers)
    return several.answer(outcome, width=width, color=False, as_json=False, then=then)


def check(verdict, speed, reference):
    return TwinCheck(
        twin="cuda-0", batch_size=32, samples_per_s=spread(speed),
        twin_samples_per_s=spread(reference), ratio=spread(speed / reference), verdict=verdict,
    )  # fmt: skip


FIRST = DeviceRun(device="cuda-0", model="T4", folder="cuda-0")


def test_a_row_for_each_and_the_next_command(answer):
    text = text_of(answer, FIRST, DeviceRun(device="cuda-1", model="L4", folder="cuda-1"))
    size = answer[1].recommended.batch_size
    assert text.startswith(f"Batch size by device: cuda-0 {size}, cuda-1 {size}")
    assert "Next: batchadvisor advise out/cuda-0" in text
    assert "Findings" not in text


def test_numbers_that_nothing_can_have_measured(answer, tmp_path):
    """One clear error, as for a record."""
    checked = DeviceRun(device="cuda-1", model="T4", check=check("equal", -3.0, 1.0))
    record = DevicesRecord(state="finished", started_at="", command=(), devices=(FIRST, checked))
    (tmp_path / "devices.json").write_bytes(msgspec.json.encode(record))
    with pytest.raises(UsageError, match=r"devices\[1\]\.check\.samples_per_s.*nothing can have"):
        read_devices(tmp_path)
    sound = msgspec.structs.replace(record, devices=(FIRST,))
    (tmp_path / "devices.json").write_bytes(msgspec.json.encode(sound))
    assert read_devices(tmp_path).record == sound


def test_an_interrupted_device_did_not_fail(answer):
    cut = DeviceRun(device="cuda-1", model="L4", folder="cuda-1", exit_code=130)
    later = DeviceRun(device="cuda-2", model="L4")
    broken = DeviceRun(device="cuda-3", model="T4", folder="cuda-3", exit_code=1)
    record = DevicesRecord(
        state="interrupted", started_at="", command=(), devices=(FIRST, cut, later, broken)
    )
    resume = ["batchadvisor run --resume out/cuda-1 --device cuda:1 train.py"]
    text = shown(record, {"cuda-0": answer}, then=resume)
    endings = {
        line.split()[0]: line.split("  ")[-1] for line in text.splitlines() if "  cuda-" in line
    }
    assert endings["cuda-1"] == "interrupted"
    assert endings["cuda-2"] == "not begun"
    assert endings["cuda-3"] == "failed"
    assert f"Next: {resume[0]}" in text


def test_a_weak_twin_is_a_warning_with_its_numbers(answer):
    weak = DeviceRun(device="cuda-1", model="T4", folder="cuda-1", check=check("weak", 40, 100))
    text = text_of(answer, FIRST, weak)
    assert "warning  cuda-1 is a weak twin: x0.40" in text


def test_a_twin_that_was_only_checked_shows_its_own_speed(answer):
    twin = DeviceRun(
        device="cuda-1", model="T4", folder="cuda-0", twin_of="cuda-0",
        check=check("equal", 98, 100),
    )  # fmt: skip
    text = text_of(answer, FIRST, twin)
    row = next(line for line in text.splitlines() if line.strip().startswith("cuda-1  "))
    assert "98" in row
    assert "as cuda-0" in row
    assert "cuda-1 is as fast as cuda-0" in text


def test_a_device_that_failed_says_why(answer):
    bad = DeviceRun(device="cuda-1", model="L4", error="Error: the GPU is in exclusive mode.")
    text = text_of(answer, FIRST, bad, state="interrupted")
    assert "error    cuda-1: the GPU is in exclusive mode." in text
    assert "interrupted" in text


def test_a_device_without_an_answer_yet_did_not_fail(answer):
    """Its run exits with 1 as well, and its own record says how far it came."""
    record, advice = answer
    yet = msgspec.structs.replace(
        advice, recommended=None, headline="No answer yet: nothing above 8 was timed."
    )
    later = DeviceRun(device="cuda-1", model="L4", folder="cuda-1", exit_code=1)
    devices = DevicesRecord(state="finished", started_at="", command=(), devices=(FIRST, later))
    text = shown(devices, {"cuda-0": answer, "cuda-1": (record, yet)}, width=140)
    assert "No answer yet: nothing above 8 was timed" in text
    assert "failed" not in text


def test_a_run_that_goes_on_says_so(answer):
    text = text_of(answer, FIRST, state="running")
    assert "The run has not finished; what was measured is below." in text


def test_the_next_command_can_be_copied(answer):
    """Quoted for a shell, and whole in a narrow terminal."""
    record = DevicesRecord(state="finished", started_at="", command=(), devices=(FIRST,))
    folder = f"a folder/{'long-' * 12}name"
    text = shown(record, {"cuda-0": answer}, folder=folder, width=60)
    assert text.endswith(f"Wrote {folder}\nNext: batchadvisor advise '{folder}/cuda-0'\n")


def test_the_record_round_trips():
    weak = DeviceRun(device="cuda-1", model="T4", check=check("weak", 40, 100))
    record = DevicesRecord(state="finished", started_at="", command=("a",), devices=(FIRST, weak))
    assert msgspec.json.decode(msgspec.json.encode(record), type=DevicesRecord) == record
