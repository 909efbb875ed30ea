"""Several logical CPU devices at once; one is held to a share of its core."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest
from batchadvisor.probes.process.duty_cycle import DutyCycle, cores_for
from batchadvisor.records import DevicesRecord
from batchadvisor.session.devices.several import device_options
from batchadvisor.session.setup.device_choice import logical_devices
from batchadvisor.session.setup.options import RunOptions

from ..end_to_end import driver
from ..end_to_end.driver import SCRIPTS
from .jobs import left_of

pytestmark = pytest.mark.slow

CORES = len(os.sched_getaffinity(0))
needs_two_cores = pytest.mark.skipif(CORES < 2, reason="needs two cores")


def cpu_s(pid):
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class TestDutyCycle:
    @pytest.mark.parametrize("share", [0.2, 0.5])
    def test_a_group_gets_no_more_than_its_share(self, share):
        busy = subprocess.Popen([sys.executable, "-c", "while True: pass"], start_new_session=True)
        try:
            duty = DutyCycle(busy.pid, share)
            time.sleep(0.3)
            start_s, before_s = time.monotonic(), cpu_s(busy.pid)
            time.sleep(2)
            used = (cpu_s(busy.pid) - before_s) / (time.monotonic() - start_s)
            duty.close()
            # Others on this machine may take more of it, never less.
            assert 0 < used < share + 0.15
            before_s = cpu_s(busy.pid)
            deadline = time.monotonic() + 20
            while cpu_s(busy.pid) == before_s and time.monotonic() < deadline:
                time.sleep(0.05)
            assert cpu_s(busy.pid) > before_s, "it stayed stopped"
        finally:
            os.killpg(busy.pid, signal.SIGKILL)
            busy.wait()
        DutyCycle(busy.pid, share).close()  # of a group that is gone it does no harm


class TestChoice:
    @needs_two_cores
    def test_cores_are_dealt_out(self):
        whole, part = logical_devices("cpu:1,cpu:1@0.4")
        assert (whole.name, part.name) == ("cpu-1", "cpu-1-at-0.4")
        assert whole.model == part.model
        assert not {*whole.cores} & {*part.cores}
        twins = logical_devices("cpu:1,cpu:1")
        assert [device.name for device in twins] == ["cpu-1", "cpu-1-no-2"]

    def test_no_more_cores_than_there_are(self):
        assert cores_for(CORES + 1) is None
        assert len(cores_for(CORES)) == CORES

    def test_each_run_gets_its_own_device_and_folder(self):
        typed = "batchadvisor run --device cpu:1,cpu:1 -o out --json -q --start 8 a.py"
        options = RunOptions(script="a.py", command=tuple(typed.split()), output=Path("out"))
        first = logical_devices("cpu:1")[0]
        check = device_options(options, first, Path("out/c"), check_size=4, budget_s=2.5)
        assert (check.goal.budget_s, check.goal.sizes) == (2.5, (4,))
        assert check.budget_share == 2.5 / 120  # what is proposed is for the whole command
        assert check.command.count("--budget") == 1
        assert "2.5s" in check.command
        own = device_options(options, first, Path("out/cpu-1"), memory_limit_bytes=9)
        assert own.budget_share == 1.0
        assert (own.device, own.output, own.memory_limit_bytes) == ("cpu:1", Path("out/cpu-1"), 9)
        assert " ".join(own.command) == (
            "batchadvisor run -q --start 8 --json --device cpu:1 -o out/cpu-1 --memory-limit 9 a.py"
        )


class TestRefused:
    @pytest.mark.parametrize(
        ("options", "said"),
        [
            (("--gpus", "all", "--device", "cpu:1,cpu:1"), "contradict"),
            (("--device", f"cpu:{CORES},cpu:1"), "cores or more"),
            (("--device", "cpu,cpu"), "has none"),
            (("--device", "cpu:1,cpu:1@7"), "cpu:CORES@SHARE"),
            (("--device", "cpu:1@0.1.2"), "cpu:CORES@SHARE"),
            (("--device", "cpu:1@."), "cpu:CORES@SHARE"),
            pytest.param(
                ("--device", "cpu:1,cpu:1", "-o", SCRIPTS / "plain.py/out"),
                "cannot write into",
                marks=needs_two_cores,
            ),
            (("--device", "cpu:1,cpu:1", "--resume", "out"), "--resume"),
            (("--device", "cpu:1,cpu:1", "--nproc-per-node", "2"), "--nproc-per-node"),
            (("--device", "cpu:1,cpu:1", "--sizes", "8", "--start", "4"), "contradict"),
            pytest.param(
                ("--device", "cpu:1,cpu:1", "--goal", "energy"),
                "energy counters",
                marks=needs_two_cores,
            ),
        ],
    )
    def test_one_clear_error(self, options, said, tmp_path):
        done = driver.run_preloaded("run", *options, SCRIPTS / "plain.py", folder=tmp_path)
        done.assert_refused()
        assert said in done.error
        assert driver.listing(tmp_path) == {}

    @pytest.mark.skipif(bool(driver.ON_CPU), reason="there are GPUs")
    def test_no_gpu_is_said(self, tmp_path):
        done = driver.run("run", "--gpus", "all", SCRIPTS / "plain.py", folder=tmp_path)
        done.assert_refused()
        assert "no GPU" in done.error

    @needs_two_cores
    def test_a_script_that_is_wrong_everywhere_is_started_once(self, tmp_path):
        options = ("--device", "cpu:1,cpu:1@0.5", "-o", "out")
        done = driver.run("run", *options, SCRIPTS / "needs_arguments.py", folder=tmp_path)
        assert done.code == 1
        assert "required" in done.error
        assert not (tmp_path / "out" / "cpu-1-at-0.5.log").exists()


@needs_two_cores
def test_the_second_is_compared_with_the_first_at_the_same_time(tmp_path):
    """One core, and another that is held to a quarter of its time."""
    # Options that contradict those of a check: it must take its own.
    own = ("--start", "32", "--max-batch", "32", "--stacks")
    options = ("--device", "cpu:1,cpu:1@0.25", *own, "--budget", "60s", "-o", "out")
    done = driver.run_preloaded("run", *options, SCRIPTS / "plain.py", folder=tmp_path)
    assert done.code == 0, done
    assert left_of(done) == []
    # The own size is kept where the noise does not tell the two apart.
    sizes = re.match(r"Batch size by device: cpu-1 (\d+), cpu-1-at-0.25 (\d+)", done.stdout)
    assert sizes is not None
    assert all(16 <= int(size) <= 32 for size in sizes.groups())
    folder = tmp_path / "out"
    record = msgspec.json.decode((folder / "devices.json").read_bytes(), type=DevicesRecord)
    assert record.state == "finished"
    first, other = record.devices
    assert (first.device, first.folder, first.check) == ("cpu-1", "cpu-1", None)
    assert (other.check.twin, other.check.batch_size) == ("cpu-1", int(sizes[1]))
    # How much weaker depends on what else this machine does; never stronger.
    assert other.check.ratio is None or other.check.ratio.low < 1
    assert other.check.verdict in ("weak", "cannot tell")
    weak = other.check.verdict == "weak"
    assert other.folder == ("cpu-1-at-0.25" if weak else "cpu-1")
    assert ("weak twin" in done.stdout) == weak
    for name in (first.folder, other.folder, "cpu-1-check", "cpu-1-at-0.25-check"):
        assert (folder / name / "record.json").exists()


@pytest.fixture
def measuring(tmp_path):
    """A command on two devices whose first has a trial, and the folder of its record."""
    options = ("-q", "--device", "cpu:1,cpu:1@0.5", "--budget", "60s", "-o", "out")
    words = ("run", *options, SCRIPTS / "input_bound.py")
    started = driver.start(*words, folder=tmp_path, preloaded=True)
    folder = tmp_path / "out" / "cpu-1"
    started.wait_for(lambda: driver.read_record(folder).trials, "the first trial")
    return started, folder


@needs_two_cores
def test_a_killed_command_takes_its_runs_along(measuring):
    started, folder = measuring
    os.kill(started.process.pid, signal.SIGKILL)
    done = started.finish(killed=True)
    assert done.code == -signal.SIGKILL
    assert left_of(done) == []
    record = driver.read_record(folder)
    assert record.state == "interrupted"
    assert record.trials[0].ran


@needs_two_cores
def test_an_interrupted_command_says_how_each_device_goes_on(measuring):
    started, folder = measuring
    started.press_ctrl_c()
    done = started.finish()
    assert done.code == 130, done
    assert left_of(done) == []
    assert driver.read_record(folder).state == "interrupted"
    assert "Next: batchadvisor run --resume out/cpu-1 " in done.stdout
    assert "failed" not in done.stdout
