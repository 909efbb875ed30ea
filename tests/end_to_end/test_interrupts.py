"""Ctrl-C and kill -9 at several moments, and going on afterwards."""

import os
import signal
import time
from pathlib import Path

import pytest
from batchadvisor.advisor.choose.decision import open_rival
from batchadvisor.advisor.choose.finalists import agrees
from batchadvisor.advisor.measured.measurements import Measurements
from batchadvisor.advisor.measured.trials import says_nothing
from batchadvisor.session.recording.store import read_record

from .driver import SCRIPTS, run, start

OPTIONS = ("-q", "--no-profile", "--budget", "60s", "-o", "out")
SCRIPT = SCRIPTS / "input_bound.py"


def start_and_measure(folder, script=SCRIPT, sizes="4,40"):
    """A command whose first trial is over."""
    words = ("run", *OPTIONS, "--sizes", sizes, script)
    job = start(*words, folder=folder, preloaded=True)
    job.wait_for(lambda: read_record(folder / "out").trials, "the first trial")
    return job


def started(pid):
    """When a process began, in ticks of the kernel's clock; numbers of processes begin anew."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])


class TestCtrlC:
    def test_while_modules_load(self, tmp_path):
        """In the first tenth of a second: the import of click stands for all of them."""
        (tmp_path / "click").mkdir()
        (tmp_path / "click" / "__init__.py").write_text(
            "import os, signal, time\nos.kill(os.getpid(), signal.SIGINT)\ntime.sleep(9)\n"
        )
        done = run("run", "x.py", folder=tmp_path, variables={"PYTHONPATH": str(tmp_path)})
        assert (done.code, done.stderr) == (130, "Interrupted.\n")

    def test_at_the_start(self, tmp_path):
        """The first worker still imports torch."""
        job = start("run", "--json", *OPTIONS, SCRIPT, folder=tmp_path)
        job.wait_for(lambda: read_record(tmp_path / "out").num_workers_started, "a worker")
        job.press_ctrl_c()
        done = job.finish()
        assert done.code == 130, done
        assert "Traceback" not in done.stderr
        assert done.left == []
        assert done.record.state == "interrupted"
        assert done.record.trials == ()
        assert done.advice.recommended is None

    @pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
    @pytest.mark.slow
    def test_before_the_loop_is_found(self, tmp_path, number):
        """The script itself takes its time, and would catch what is raised in it."""
        if signal.getsignal(number) == signal.SIG_IGN:
            pytest.skip("whoever started the tests ignores this signal, as nohup does SIGHUP")
        (tmp_path / "slow.py").write_text(
            "import time\nprint('loading', flush=True)\n"
            "try:\n    time.sleep(600)\nfinally:\n    open('finally.txt', 'w')\n"
        )
        job = start("run", *OPTIONS, "slow.py", folder=tmp_path)
        log = tmp_path / "out" / "script.log"
        job.wait_for(lambda: "loading" in log.read_text(), "the script's own work")
        os.killpg(job.process.pid, number)
        done = job.finish()
        assert done.code == 128 + number, done
        assert "Traceback" not in done.stderr
        assert done.left == []
        assert done.record.state == "interrupted"
        name = "Ctrl-C" if number == signal.SIGINT else number.name
        assert done.record.stop_reason == f"interrupted by {name}"
        assert not (tmp_path / "finally.txt").exists()

    @pytest.mark.slow
    @pytest.mark.parametrize("pause_s", [0.0, 0.01, 0.03])
    def test_twice(self, tmp_path, pause_s):
        """The second ends the run at once; the record says what happened all the same."""
        job = start_and_measure(tmp_path)
        job.press_ctrl_c()
        time.sleep(pause_s)
        job.press_ctrl_c()
        done = job.finish()
        assert done.code == 130, done
        assert "Traceback" not in done.stderr
        assert done.left == []
        assert done.record.state == "interrupted"

    @pytest.mark.slow
    def test_in_a_trial_and_on_from_there(self, tmp_path):
        job = start_and_measure(tmp_path)
        job.press_ctrl_c()
        done = job.finish()
        assert done.code == 130, done
        assert done.left == []
        cut = done.record
        assert cut.state == "interrupted"
        assert "Ctrl-C" in cut.stop_reason
        assert (cut.trials[0].batch_size, cut.trials[0].outcome) == (4, "ok")
        assert {trial.outcome for trial in cut.trials[1:]} <= {"interrupted"}
        assert "batchadvisor run --resume out " in done.stdout
        assert done.stdout.startswith("Of the sizes asked for, 4: ")
        assert "partial" in done.stdout

        options = ("--json", *OPTIONS[:-2], "--resume", "out", "--sizes", "4,40")
        again = run("run", *options, SCRIPT, folder=tmp_path, preloaded=True)
        assert again.code == 0, again
        assert again.left == []
        record = read_record(tmp_path / "out")
        assert record.state == "finished"
        assert record.trials[0] == cut.trials[0]
        search = [trial for trial in record.trials if trial.purpose == "search"]
        assert [(trial.batch_size, trial.outcome) for trial in search] == [(4, "ok"), (40, "ok")]
        assert record.num_workers_started > cut.num_workers_started
        assert record.elapsed_s > cut.elapsed_s
        recommended = again.advice.recommended
        assert record.trials[recommended.trial].purpose == "confirm"
        # What else the machine does may hold up all its steps; then the record says so.
        size, measured = recommended.batch_size, Measurements.of(record)
        agreed = agrees(measured, size) and open_rival(measured, size) is None
        assert again.advice.sureness == ("confirmed" if agreed else "not confirmed")

        # Each of its samples takes 2 ms to load.
        verdict, timed = again.advice.verdict, measured.best_timed[size]
        if timed.contended or says_nothing(timed.samples_per_s):
            assert verdict.limit == "cannot tell"
        else:
            assert verdict.limit == "input"
            assert "num_workers" in verdict.remedy
        for trial in search:
            assert trial.step_s.median > 0.002 * trial.batch_size
            assert trial.input_wait_s.median >= 0.5 * trial.step_s.median


@pytest.mark.slow
class TestKilled:
    def test_the_workers_die_too(self, tmp_path):
        """The data workers as well; what was measured stays and can be asked."""
        slow = tmp_path / "slow.py"
        text = (SCRIPTS / "iterable_workers.py").read_text()
        loop = next(line for line in text.splitlines() if line.endswith(" in loader:"))
        slow.write_text(text.replace(loop, f"{loop}\n            __import__('time').sleep(0.01)"))
        job = start_and_measure(tmp_path, slow, "8,16,24")
        assert len(job.processes()) >= 4  # this command, the script, its two data workers
        os.kill(job.process.pid, signal.SIGKILL)
        done = job.finish(killed=True)
        assert done.code == -signal.SIGKILL
        assert done.left == []
        assert done.record.state == "running"
        assert done.record.trials[0].outcome == "ok"
        again = run("advise", "--json", "out", folder=tmp_path)
        assert again.code == 0, again
        assert again.advice.sureness == "partial"

    def test_the_script_is_killed_in_a_trial(self, tmp_path):
        """Somebody kills the script: this size failed, and nothing of it stays."""
        options = ("run", *OPTIONS, "--sizes", "100", SCRIPT)
        job = start(*options, folder=tmp_path)
        job.wait_for(lambda: read_record(tmp_path / "out").discovery is not None, "discovery")
        # The first of them runs the script, the next one stands by.
        workers = [int(text.split()[0]) for text in job.processes() if "probes.worker" in text]
        worker = min(workers, key=lambda pid: (started(pid), pid))
        os.kill(worker, signal.SIGTERM)
        done = job.finish()
        assert done.code == 1, done
        assert "SIGTERM" in done.error
        assert done.left == []
        assert [trial.outcome for trial in done.record.trials] == ["crashed"]
