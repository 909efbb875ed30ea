"""`batchadvisor doctor`: here, with a stand-in for NVML, and where things are missing."""

import json
import os
import subprocess
import sys

import pytest
from batchadvisor.probes.devices import checkup
from batchadvisor.probes.nvml.gpus import devices
from batchadvisor.records import Check, Checkup
from batchadvisor.session.doctor import checkup_text


def doctor(*arguments, folder, **variables):
    """The real command in a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "batchadvisor", "doctor", *arguments],
        cwd=folder,
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )


def states(done):
    """Name to entry of what `--json` printed."""
    return {check["name"]: check for check in json.loads(done.stdout)["checks"]}


@pytest.mark.slow
def test_this_machine(tmp_path):
    done = doctor("--json", folder=tmp_path)
    assert done.returncode == 0, done
    assert json.loads(done.stdout)["works"] is True
    checks = states(done)
    for name in ("torch", "optimizer step", "profiler", "working folder", "TensorBoard", "memory"):
        assert checks[name]["state"] == "ok", checks[name]
    import torch

    assert torch.__version__ in checks["torch"]["detail"]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_a_gpu_that_torch_cannot_use(stub_folder, tmp_path):
    """The stand-in's GPU is seen by NVML; a torch for the CPU alone says so."""
    import torch

    if torch.cuda.is_available():
        pytest.skip("this torch has a GPU of its own")
    settings = {"LD_LIBRARY_PATH": str(stub_folder), "CUDA_VISIBLE_DEVICES": "0"}
    done = doctor("--json", folder=tmp_path, **settings)
    assert done.returncode == 0, done
    checks = states(done)
    assert checks["NVML"]["state"] == "ok"
    assert "Stub GPU 0" in checks["GPU 0"]["detail"]
    assert checks["GPU 0 GPM"]["state"] == "ok"
    assert checks["accelerator"]["state"] == "broken"
    assert checks["accelerator"]["remedy"]


class TestRefusals:
    """What the driver does not tell is said in its own words."""

    def look(self):
        return {check.name: check for check in checkup._nvidia(devices())}

    def test_not_loaded(self, stub):
        stub["nvmlInitWithFlags"] = 9
        check = self.look()["NVML"]
        assert check.state == "absent"
        assert "Driver Not Loaded" in check.detail

    def test_no_gpu(self, stub):
        stub["gpus"] = 0
        assert self.look()["NVML"].detail == "the driver counts no GPU"

    def test_no_processes_told(self, stub):
        stub["nvmlDeviceGetComputeRunningProcesses_v3"] = 3
        check = self.look()["GPU 0 processes"]
        assert check.state == "absent"
        assert "Not Supported" in check.detail


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("raise ImportError('libcudart.so.12: cannot open')", "libcudart.so.12: cannot open"),
        ("import os; os.abort()", "exit code -6"),
    ],
)
def test_a_torch_that_cannot_be_imported(tmp_path, code, words):
    """Exit code 1, the reason, and what to do."""
    (tmp_path / "torch.py").write_text(code)
    done = doctor(folder=tmp_path, PYTHONPATH=f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}")
    assert done.returncode == 1, done
    assert " torch broken " in " ".join(done.stdout.split())
    assert words in done.stdout
    assert "Install torch anew" in done.stdout
    assert done.stdout.splitlines()[0].endswith("does not work here: torch.")
    assert "Traceback" not in done.stderr


def test_a_working_folder_that_is_gone(tmp_path):
    """It is one of the things that are looked at, and no reason to look at none."""
    command = f"mkdir gone; cd gone; rmdir ../gone; {sys.executable} -m batchadvisor doctor --json"
    done = subprocess.run(
        command, cwd=tmp_path, shell=True, capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 1, done
    assert "Traceback" not in done.stderr
    assert states(done)["working folder"]["state"] == "broken"
    assert states(done)["working folder"]["detail"].endswith("No such file or directory")


def test_no_temporary_folder_at_all(monkeypatch):
    def none():
        raise FileNotFoundError(2, "No usable temporary directory found in ['/tmp']")

    monkeypatch.setattr(checkup.tempfile, "gettempdir", none)
    check = checkup._temporary()
    assert (check.state, check.needed) == ("broken", True)
    assert "No usable temporary directory" in check.detail
    assert "TMPDIR" in check.remedy


class TestShown:
    CHECKS = (
        Check(name="torch", state="ok", detail="2.13.0", needed=True),
        Check(name="a long name", state="absent", detail="not there " * 12, remedy="Get it."),
    )

    def test_words(self):
        text = checkup_text(Checkup(checks=self.CHECKS), width=60)
        assert text.startswith("batchadvisor run works here.\n")
        assert "torch        ok      2.13.0\n  a long name  absent  not there" in text
        assert "→ Get it." in text
        assert max(map(len, text.splitlines())) <= 60

    def test_what_others_said_is_made_harmless(self):
        """Names of devices and words of exceptions come from outside."""
        odd = Check(name="GPU", state="broken", detail="a\x1b[31mb ±1", remedy="→ look\n\x07")
        (line,) = checkup_text(Checkup(checks=(odd,)), width=80).splitlines()[-1:]
        assert line.split() == ["GPU", "broken", "ab", "±1", "→", "→", "look", "\\x07"]

    def test_what_is_needed_and_broken(self):
        broken = Check(name="torch", state="broken", detail="no", needed=True)
        result = Checkup(checks=(broken, *self.CHECKS[1:]))
        assert not result.works
        said = checkup_text(result, width=80).splitlines()[0]
        assert said.endswith("does not work here: torch.")
        optional = Check(name="compiler", state="broken", detail="no")
        assert Checkup(checks=(optional,)).works
