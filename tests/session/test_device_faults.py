"""A GPU that is taken or gone: texts as users reported them; none was provoked here."""

import pytest
from batchadvisor.errors import RunError
from batchadvisor.probes.devices.device_faults import device_fault
from batchadvisor.probes.nvml.gpus import devices
from batchadvisor.probes.process.endings import over
from batchadvisor.probes.process.messages import Raised
from batchadvisor.records import DeviceInfo, Goal, RunRecord, ScriptInfo, Trial
from batchadvisor.session.setup.options import RunOptions
from batchadvisor.session.workers import failures
from batchadvisor.session.workers.failures import error_of, nothing_fits

TAKEN = (
    "CUDA error: all CUDA-capable devices are busy or unavailable\nCompile with more checks.",
    "CUDA error: CUDA-capable device(s) is/are busy or unavailable",
    "cuda runtime error (46) : all CUDA-capable devices are busy or unavailable",
)
GONE = (
    "CUDA error: no CUDA-capable device is detected",
    "Unable to determine the device handle for GPU 0000:02:00.0: GPU is lost.",
    "No CUDA GPUs are available",
)
OTHERS = (
    "CUDA error: device-side assert triggered",
    "CUDA out of memory. Tried to allocate 2.00 GiB.",
    "CUDA error: an illegal memory access was encountered",
    "Expected all tensors to be on the same device, cuda:0 and cpu!",
)


def gone(text):
    return over(Raised(kind="RuntimeError", text=text, traceback="there", out_of_memory=False))


@pytest.mark.parametrize("text", TAKEN)
def test_an_exclusive_gpu_is_no_fault_of_the_script(text, tmp_path):
    error = error_of(gone(text), RunOptions(script="a.py", device="cuda:0"), tmp_path, None)
    assert type(error) is RunError
    assert "compute mode is exclusive" in str(error)
    assert "nvidia-smi" in str(error)
    assert "fix it first" not in str(error)


@pytest.mark.parametrize("text", GONE)
def test_a_gpu_that_vanished_is_said(text, tmp_path):
    error = error_of(gone(text), RunOptions(script="a.py", device="cuda:0"), tmp_path, None)
    assert "the GPU is gone" in str(error)


@pytest.mark.skipif(bool(devices()), reason="there is a GPU that could be gone")
@pytest.mark.parametrize("text", [text for text in GONE if "CUDA" in text])
def test_where_there_is_no_gpu_none_is_gone(text, tmp_path, monkeypatch):
    monkeypatch.setattr(failures, "devices", list)  # whatever driver other tests have loaded
    error = error_of(gone(text), RunOptions(script="a.py"), tmp_path, None)
    assert "is gone" not in str(error)
    assert "torch sees none here" in str(error)


@pytest.mark.parametrize("text", OTHERS)
def test_what_the_script_did_is_left_to_it(text):
    assert device_fault(text) is None


def test_a_gpu_that_vanishes_in_a_trial_ends_the_run_and_keeps_what_was_measured():
    device = DeviceInfo(
        kind="cuda", name="A100", total_bytes=1, capacity_bytes=1, capacity_source=""
    )
    good, bad = (
        Trial(
            ordinal=number, worker=0, batch_size=size, kind="timed", purpose="search",
            outcome=outcome, arrived_batch_size=size, detail=detail,
        )
        for number, size, outcome, detail in (
            (0, 8, "ok", ""),
            (1, 16, "exception", gone(GONE[0]).detail),
        )
    )  # fmt: skip
    record = RunRecord(
        state="running", started_at="", command=(), script=ScriptInfo(path="a.py"), goal=Goal(),
        device=device, trials=(good, bad),
    )  # fmt: skip
    error = nothing_fits(record, "", "log")
    assert "the GPU is gone" in str(error)
    assert "what was measured is kept" in str(error)
