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
from msgspec.structs import replace

from ..on_paper import exactly
from .golden import agrees

DATA = Path(__file__).parents[1] / "data/records"


def spread(median):
    return exactly(median, 0.1)


@pytest.fixture(scope="module")
def answer():
    record = read_record(DATA / "char_gpt_cpu.json")
    return record, advise(record)


def record_of(*devices, state="finished"):
    return DevicesRecord(state=state, started_at="", command=(), devices=devices)


def text_of(answer, *devices, state="finished", answers=None, folder="out", width=100, then=()):
    """What is shown of some devices; each has the same answer where none are given."""
    record = record_of(*devices, state=state)
    answers = answers or {device.device: answer for device in devices if not device.error}
    outcome = Outcome(record=record, folder=Path(folder), answers=answers)
    return several.answer(outcome, width=width, color=False, as_json=False, then=then)


def check(verdict, speed, reference):
    return TwinCheck(
        twin="cuda-0", batch_size=32, samples_per_s=spread(speed),
        twin_samples_per_s=spread(reference), ratio=spread(speed / reference), verdict=verdict,
    )  # fmt: skip


FIRST = DeviceRun(device="cuda-0", model="T4", folder="cuda-0")


def cuda(number, model="T4", **changes):
    return DeviceRun(device=f"cuda-{number}", model=model, **changes)


def test_every_ending_of_a_device(answer):
    """As fast as its twin, weak, interrupted, not begun, failed with and without words, no answer.

    A run without an answer yet exits with 1 as well, and its own record says how far it came.
    """
    yet = replace(answer[1], recommended=None, headline="No answer yet: nothing above 8 was timed.")
    devices = [
        FIRST,
        cuda(1, folder="cuda-0", twin_of="cuda-0", check=check("equal", 98, 100)),
        cuda(2, folder="cuda-2", check=check("weak", 40, 100)),
        cuda(3, "L4", folder="cuda-3", exit_code=130),
        cuda(4, "L4"),
        cuda(5, folder="cuda-5", exit_code=1),
        cuda(6, "L4", error="Error: the GPU is in exclusive mode."),
        cuda(7, "L4", folder="cuda-7", exit_code=1),
    ]
    answers = dict.fromkeys(("cuda-0", "cuda-1", "cuda-2"), answer)
    answers["cuda-7"] = (answer[0], yet)
    resume = ["batchadvisor run --resume out/cuda-3 --device cuda:3 train.py"]
    text = text_of(answer, *devices, state="interrupted", answers=answers, width=120, then=resume)
    agrees("devices.txt", text)


def test_a_row_for_each_and_the_next_command(answer):
    text = text_of(answer, FIRST, cuda(1, "L4", folder="cuda-1"))
    size = answer[1].recommended.batch_size
    assert text.startswith(f"Batch size by device: cuda-0 {size}, cuda-1 {size}")
    assert "Next: batchadvisor advise out/cuda-0" in text
    assert "Findings" not in text


def test_numbers_that_nothing_can_have_measured(answer, tmp_path):
    """One clear error, as for a record."""
    checked = cuda(1, check=check("equal", -3.0, 1.0))
    record = record_of(FIRST, checked)
    (tmp_path / "devices.json").write_bytes(msgspec.json.encode(record))
    with pytest.raises(UsageError, match=r"devices\[1\]\.check\.samples_per_s.*nothing can have"):
        read_devices(tmp_path)
    sound = replace(record, devices=(FIRST,))
    (tmp_path / "devices.json").write_bytes(msgspec.json.encode(sound))
    assert read_devices(tmp_path).record == sound


def test_a_run_that_goes_on_says_so(answer):
    text = text_of(answer, FIRST, state="running")
    assert "The run has not finished; what was measured is below." in text


def test_the_next_command_can_be_copied(answer):
    """Quoted for a shell, and whole in a narrow terminal."""
    folder = f"a folder/{'long-' * 12}name"
    text = text_of(answer, FIRST, folder=folder, width=60)
    assert text.endswith(f"Wrote {folder}\nNext: batchadvisor advise '{folder}/cuda-0'\n")
