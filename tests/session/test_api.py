"""`batchadvisor.run` and `batchadvisor.probe`, as a notebook uses them."""

import gzip
import html
import inspect
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import batchadvisor
import pytest
import torch
from batchadvisor.cli.run import run as run_command
from batchadvisor.errors import InterruptedRunError, RunError, ScriptError, UsageError
from batchadvisor.probes.devices.host import descendants
from batchadvisor.records import RunRecord
from batchadvisor.session.recording.store import read_record

pytestmark = pytest.mark.slow


SCRIPTS = Path(__file__).parents[1] / "scripts"
QUICK = {"goal": "memory", "profile": False, "quiet": True}


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")  # of scripts, beside other tests
    return tmp_path


def training_step():
    model = torch.nn.Linear(16, 4)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    sizes = []

    def step(batch_size):
        sizes.append(batch_size)
        loss = model(torch.randn(batch_size, 16)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    return step, sizes


class TestProbe:
    def test_it_returns_the_record(self, folder):
        step, sizes = training_step()
        result = batchadvisor.probe(step, batch_size=8, num_samples=130, sizes=(8, 32), **QUICK)
        assert isinstance(result, RunRecord)
        assert result.batch_size == 32
        assert result.discovery.door == "live"
        assert result.discovery.native_batch_size == 8
        assert [optimizer.name for optimizer in result.discovery.optimizers] == ["Adam"]
        assert set(sizes) == {8, 32, 2}  # 130 samples by 32 leave 2
        assert result.advice.tail_check.outcome == "ok"
        on_disk = read_record(Path(result.folder))
        assert on_disk.trials == result.trials
        assert Path(result.folder).parent == Path("batchadvisor-runs")

    def test_the_floating_point_operations_of_a_step_are_counted(self):
        """As in a script: forward and backward of one layer, and no gradient of its input."""
        step, _ = training_step()
        options = {**QUICK, "goal": "throughput", "budget_s": 8.0}
        result = batchadvisor.probe(step, batch_size=8, sizes=(8, 32), **options)
        counted = {
            trial.batch_size: trial.flops for trial in result.trials if trial.flops is not None
        }
        assert set(counted) == {8, 32}
        for size, flops in counted.items():
            assert flops.forward == flops.backward == 2 * size * 16 * 4

    def test_a_notebook_gets_text_and_html(self, monkeypatch, capsys):
        """rich would send each line to the notebook as a display of its own, and return none."""
        import rich.console

        monkeypatch.setattr(rich.console, "_is_jupyter", lambda: True)
        step, _ = training_step()
        result = batchadvisor.probe(step, sizes=(4,), **{**QUICK, "quiet": False})
        said = capsys.readouterr()
        assert said.out == ""
        assert "batchadvisor: batch 4 " in said.err
        assert repr(result).startswith("Use batch size 4: ")
        assert "in the same process" in repr(result)
        shown = result._repr_html_()
        (page,) = re.findall(r'srcdoc="([^"]*)"', shown)
        assert html.unescape(page).startswith("<!doctype html>")
        assert 'sandbox="allow-scripts"' in shown
        assert "<script" not in shown.partition("srcdoc")[0]

    def test_memory_that_is_refused(self):
        step, _ = training_step()

        def refused(batch_size):
            if batch_size > 40:
                raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate")
            step(batch_size)

        result = batchadvisor.probe(refused, batch_size=8, **QUICK)
        assert "out_of_memory" in {trial.outcome for trial in result.trials}
        assert 32 <= result.batch_size <= 40

    def test_its_own_exception(self):
        def broken(batch_size):
            return torch.randn(batch_size, 3) @ torch.randn(4)

        with pytest.raises(ScriptError, match="RuntimeError: ") as caught:
            batchadvisor.probe(broken, **QUICK)
        shown = "\n".join(caught.value._render_traceback_())
        assert "test_api.py" in shown
        assert "/probes/" not in shown

    def test_an_interrupt(self, folder):
        step, sizes = training_step()

        def interrupted(batch_size):
            step(batch_size)
            if len(sizes) == 4:
                os.kill(os.getpid(), signal.SIGINT)

        with pytest.raises(InterruptedRunError, match="interrupted after 1 trial;") as caught:
            batchadvisor.probe(interrupted, **QUICK)
        (shown,) = caught.value._render_traceback_()
        assert shown.startswith("InterruptedRunError: interrupted")
        (kept,) = (folder / "batchadvisor-runs").iterdir()
        assert kept.name in str(caught.value)
        record = read_record(kept)
        assert record.state == "interrupted"
        assert [trial.outcome for trial in record.trials] == ["interrupted"]

    @pytest.mark.parametrize(
        ("step", "options", "said"),
        [
            (lambda height, width: None, {}, "takes \\(height, width\\)"),
            (lambda: None, {}, "is called with a batch size"),
            (7, {}, "no function"),
            (print, {"sizes": (0,)}, "below 1"),
            (print, {"goal": "fastest"}, "goal"),
            (print, {"margin": 5}, "margin=5"),
            (print, {"precision": 3.0}, "precision=3.0"),
            (print, {"batch_size": 0}, "batch_size=0"),
            (print, {"sizes": (1,), "start": 2}, "contradict"),
            (print, {"stacks": True}, "profile=False contradicts"),
            (print, {"profile": True, "profile_schedule": (0, 1)}, "profile_schedule="),
        ],
    )
    def test_bad_use(self, step, options, said, folder):
        with pytest.raises(UsageError, match=said):
            batchadvisor.probe(step, **{**QUICK, **options})
        assert list(folder.iterdir()) == []


OTHER_NAMES = {
    "memory_margin": "margin",
    "memory_limit": "memory_limit_bytes",
    "budget": "budget_s",
    "timeout": "timeout_s",
    "no_profile": "profile",
}
NOT_FOR_PYTHON = {
    "as_json": "the record itself comes back",
    "debug": "Python shows tracebacks",
    "verbose": "the record itself comes back",
    "help_all": "Python has help() of its own",
    **dict.fromkeys(
        ("engine", "gres", "slurm_options", "time_limit"), "jobs of a cluster start the command"
    ),
    "dry_run": "no record comes of it",
    "tried": "remedies start the script anew, beside it as it is, after the answer",
    "gpus": "several devices leave several records",
    "nproc_per_node": "the launcher starts the command on each rank",
}
OF_A_SCRIPT = {
    "script", "arguments", "module", "template", "workload", "worst_case", "device", "loader",
    "timeout_s", "resume", "keep_effective_batch", "setting",
}  # fmt: skip
"""What `probe` has no use for: nothing is started, loaded or accumulated for a live function."""


def test_python_takes_what_the_command_takes():
    command = {param.name for param in run_command.params}
    assert set(NOT_FOR_PYTHON) < command
    named = {OTHER_NAMES.get(option, option) for option in command - set(NOT_FOR_PYTHON)}
    taken = set(inspect.signature(batchadvisor.run).parameters)
    assert taken == named
    probed = set(inspect.signature(batchadvisor.probe).parameters)
    assert probed - taken == {"step", "batch_size", "num_samples"}
    assert taken - probed == OF_A_SCRIPT


@pytest.mark.parametrize(
    ("script", "options", "said"),
    [
        ("no_such.py", {}, "there is no file"),
        ("plain.py", {"device": "cpu:1,cpu:1@0.4"}, "several devices"),
        ("plain.py", {"timeout_s": 0}, "timeout_s=0"),
        ("plain.py", {"profile": True, "profile_schedule": (0, 1, 0)}, "active at least 1"),
        ("plain.py", {"profile": True, "profile_schedule": (0, 1, 2.5)}, "active at least 1"),
    ],
)
def test_what_cannot_be_run_is_refused_at_once(script, options, said, folder):
    with pytest.raises(UsageError, match=said):
        batchadvisor.run(SCRIPTS / script, **{**QUICK, **options})
    assert list(folder.iterdir()) == []


class TestRun:
    def test_its_options_reach_the_script(self):
        """Stacks, a schedule and an order of samples, as `--stacks` and the others give them."""
        options = {"worst_case": True, "stacks": True, "profile_schedule": [1, 1, 2]}
        result = batchadvisor.run(
            SCRIPTS / "varying_lengths.py", sizes=(4,), goal="memory", quiet=True, **options
        )
        assert result.goal.worst_case
        searched = [trial for trial in result.trials if trial.purpose == "search"]
        (profile,) = [trial.profile for trial in searched if trial.profile is not None]
        assert profile.num_steps == 2
        assert searched[0].inputs.largest == 401
        trace = Path(result.folder, profile.trace).read_bytes()
        text = gzip.decompress(trace) if profile.trace.endswith(".gz") else trace
        assert b"python_function" in text

    def test_a_script(self):
        result = batchadvisor.run(SCRIPTS / "plain.py", sizes=(8, 8, 40), **QUICK)
        assert result.goal.sizes == (8, 40)  # one that is named twice is one size
        assert result.batch_size == 40
        assert result.discovery.native_batch_size == 16
        assert Path(result.folder, "record.json").exists()

    def test_a_template(self):
        words = ("--batch_size={batch_size}",)
        # Its own size: nothing is confirmed in another process.
        result = batchadvisor.run(SCRIPTS / "no_loader.py", *words, sizes=(12,), **QUICK)
        assert result.discovery.door == "template"
        assert result.batch_size == 12

    def test_a_script_that_fails(self):
        with pytest.raises(ScriptError, match="unknown model") as caught:
            batchadvisor.run(SCRIPTS / "raises_before.py", **QUICK)
        assert "raises_before.py" in caught.value._render_traceback_()[0]

    def test_an_interrupted_cell(self, folder):
        """As Jupyter does it: SIGINT for the process of the notebook alone."""
        (folder / "slow.py").write_text("import time\nprint('here', flush=True)\ntime.sleep(600)\n")
        code = "import batchadvisor\nbatchadvisor.run('slow.py', output='out', quiet=True)\n"
        notebook = subprocess.Popen(
            [sys.executable, "-c", code], stderr=subprocess.PIPE, text=True, cwd=folder
        )
        log, end = folder / "out" / "script.log", time.monotonic() + 120
        while not (log.exists() and "here" in log.read_text()):
            assert time.monotonic() < end
            assert notebook.poll() is None
            time.sleep(0.1)
        children = descendants(notebook.pid)
        notebook.send_signal(signal.SIGINT)
        _, said = notebook.communicate(timeout=60)
        last = said.strip().splitlines()[-1]
        assert last.startswith("batchadvisor.errors.InterruptedRunError: interrupted after 0 trial")
        assert "KeyboardInterrupt" not in said
        assert children
        assert not any(Path(f"/proc/{child}").exists() for child in children)
        assert read_record(folder / "out").state == "interrupted"

    def test_a_script_that_cannot_be_steered(self):
        with pytest.raises(RunError, match="--num-envs, --num-steps and --num-minibatches set it"):
            batchadvisor.run(SCRIPTS / "rollouts.py", **QUICK)
