"""Scripts that fail: one clear error, the script's own traceback, a record of what happened."""

import functools
from dataclasses import dataclass

import pytest

from .ahead import Ahead, names_asked_for
from .driver import SCRIPTS, line_of, listing, run, run_preloaded


@dataclass(frozen=True)
class Fault:
    """What must come of a script that fails.

    Attributes:
        code: the exit code.
        said: parts of the one error.
        outcome: of the last trial; empty where the loop was never found.
        raised: the last line of the script's own traceback.
        options: beside the usual ones.
    """

    code: int
    said: tuple[str, ...]
    outcome: str = ""
    raised: str = ""
    options: tuple[str, ...] = ()


OUR_FAULT = """
import functools
from batchadvisor.probes.{module} import {name}
{name}.{method} = functools.partial(int, "x")
"""
"""Put before a script: a measurement of ours that raises, as a bug would."""


WITH_A_TERMINAL = """
import os
rows, columns = os.popen("stty size").read().split()
print("the width", columns)
"""
"""As the progress bar of pytorch-cifar's utils.py begins."""


@pytest.mark.slow
def test_a_script_that_asks_for_the_size_of_its_terminal(tmp_path):
    (tmp_path / "train.py").write_text(WITH_A_TERMINAL + (SCRIPTS / "plain.py").read_text())
    options = ("--sizes", "16", "--budget", "20s", "--no-profile", "-o", "out")
    done = run("run", *options, "train.py", folder=tmp_path)
    assert done.code == 0, done
    assert "the width 80" in (tmp_path / "out" / "script.log").read_text()
    assert done.left == []


@pytest.mark.slow
def test_a_script_that_refuses_a_folder_that_is_there(tmp_path):
    """To the script each process of the run is the first one."""
    made = "import os\nos.makedirs('logs/sample')\n"
    (tmp_path / "train.py").write_text(made + (SCRIPTS / "plain.py").read_text())
    options = ("--sizes", "16,32", "--budget", "60s", "--no-profile", "-o", "out")
    done = run("run", *options, "train.py", folder=tmp_path)
    assert done.code == 0, done
    assert done.record.num_workers_started > 1
    assert not done.record.faults
    again = run("run", *options[:-1], "another", "train.py", folder=tmp_path)
    assert again.code == 1  # another run is not that training
    assert "raised FileExistsError" in again.error


@pytest.mark.slow
def test_a_script_that_asks_for_input(tmp_path):
    (tmp_path / "train.py").write_text("name = input('experiment? ')\n")
    done = run("run", "train.py", folder=tmp_path)
    assert done.code == 1, done
    assert "train.py asks for input, but standard input is closed during a run" in done.error
    assert done.left == []


def with_a_bug(folder, *what):
    text = OUR_FAULT.format(**dict(zip(("module", "name", "method"), what, strict=True)))
    (folder / "train.py").write_text(text + (SCRIPTS / "plain.py").read_text())
    return run_preloaded("run", "--sizes", "16", "--budget", "20s", "train.py", folder=folder)


@pytest.mark.slow
def test_a_trial_goes_on_without_a_measurement_that_fails(tmp_path):
    done = with_a_bug(tmp_path, "devices.neighbours", "Surroundings", "causes")
    assert done.code == 0, done
    first = done.record.trials[0]
    assert first.outcome == "ok"
    assert first.step_s is not None
    assert first.unavailable["flops"].startswith("batchadvisor itself failed: TypeError")
    assert first.unavailable["profile"] == first.unavailable["flops"]
    assert "batchadvisor itself failed: TypeError" in done.stdout
    assert [fault.detail for fault in done.record.faults] == [first.unavailable["flops"]]
    assert done.left == []


@pytest.mark.slow
def test_a_fault_of_ours_that_comes_again(tmp_path):
    done = with_a_bug(tmp_path, "windows.window", "Window", "result")
    assert done.code == 1, done
    assert done.error.startswith("batchadvisor itself failed: TypeError")
    assert "This is a bug in batchadvisor" in done.error
    assert "If the script also fails" not in done.stderr
    assert "window.result(" in done.stderr  # the traceback, with our frames
    assert done.left == []


SIZE = ("--sizes", "16")
FAULTS = {
    "killed": Fault(1, ("batch 16", "SIGKILL"), "crashed", options=SIZE),
    "segfaults": Fault(1, ("batch 16", "SIGSEGV"), "crashed", options=SIZE),
    "hangs": Fault(
        1, ("batch 16", "nothing was heard for "), "hung", options=(*SIZE, "--timeout", "2s")
    ),
    "raises_before": Fault(
        1, ("raised ValueError: unknown model",), raised="ValueError: unknown model 'quadratic'"
    ),
    "raises_later": Fault(
        1, ("batch 10", "looks wrong at step 5"), "exception", "ValueError: loss", ("--sizes", "10")
    ),
    "raises_in_dataset": Fault(
        1, ("batch 10", "KeyError: 50"), "exception", "KeyError: 50", ("--sizes", "10")
    ),
    "few_steps": Fault(1, ("after 8 optimizer steps", "train longer"), "script_ended"),
    "never_trains": Fault(1, ("never trains", "1 DataLoader", "no optimizer step")),
    "drops_all": Fault(
        1,
        (
            "makes no step: the DataLoader at",
            "drops_all.py:13",
            "40 samples",
            "fewer than one batch of 64",
            "loader.no-steps",
            "batch_size = 40",
        ),
    ),
    "rollouts": Fault(1, ("computes its batch size from other settings", "--num-envs")),
    "whole_graph": Fault(1, ("same graph (300 nodes, 1,200 edges)", "no size to choose")),
}


@pytest.fixture(scope="module")
def failed(request, tmp_path_factory):
    """The run of a script of FAULTS, by its name."""

    def start(name):
        folder = tmp_path_factory.mktemp(name)
        options = ("-q", "--no-profile", "--budget", "20s", *FAULTS[name].options)
        return functools.partial(
            run_preloaded, "run", *options, SCRIPTS / f"{name}.py", folder=folder
        )

    ahead = Ahead(names_asked_for(request.session, "name", FAULTS), start)
    yield ahead
    ahead.close()


@pytest.mark.parametrize("name", FAULTS)
class TestFaults:
    def test_one_clear_error(self, failed, name):
        """Under the script's own traceback, if it has one; it names the log that it speaks of."""
        done, fault = failed(name), FAULTS[name]
        assert done.code == fault.code, done
        assert all(part in done.error for part in fault.said), done
        # What and why, then what to do.
        assert len(done.error.split(". ")) >= 2
        assert done.error.endswith(".")
        assert done.stdout == ""
        said = done.error.replace(str(SCRIPTS), "")  # any folder may be called that
        if "output" in said or "stacks" in said:
            assert f"{done.run_folder.relative_to(done.folder)}/script.log" in done.error
        if not fault.raised:
            assert "Traceback" not in done.stderr.partition("Error: ")[0]
            return
        assert done.stderr.count("Traceback (most recent call last)") == 1
        assert f'{name}.py", line ' in done.stderr
        assert any(line.startswith(fault.raised) for line in done.stderr.splitlines())
        for own in ("/probes/", "/session/", "runpy", "spread.py", "<string>"):
            assert own not in done.stderr

    def test_the_record_says_it_and_nothing_else_stays(self, failed, name):
        done, fault = failed(name), FAULTS[name]
        record = done.record
        assert record.state == "failed"
        assert record.stop_reason
        if fault.outcome:
            assert [trial.outcome for trial in record.trials] == [fault.outcome]
            assert record.trials[0].detail
            assert record.discovery is not None
        else:
            assert record.trials == ()
            assert record.discovery is None
            assert len(record.faults) == 1
        assert (done.run_folder / "script.log").exists()
        assert done.left == []
        assert {path.name for path in done.folder.iterdir()} == {"batchadvisor-runs"}


def test_stacks_of_a_hang_are_in_the_log(failed):
    log = failed("hangs").log
    assert "most recent call first" in log
    assert f'hangs.py", line {line_of(SCRIPTS / "hangs.py", "time.sleep(")} in main' in log


def test_missing_arguments(tmp_path):
    done = run_preloaded("run", "-q", SCRIPTS / "needs_arguments.py", folder=tmp_path)
    done.assert_refused()
    assert "the following arguments are required: curve" in done.error
    assert "needs_arguments.py ARGUMENTS" in done.error
    assert listing(tmp_path) == {}


def resisting(name, sizes, folder):
    options = ("--json", "-q", "-o", "out", "--no-profile", "--goal", "memory")
    script = SCRIPTS / f"{name}.py"
    done = run_preloaded("run", *options, "--sizes", sizes, script, folder=folder)
    assert done.left == []
    return done


@pytest.mark.slow
class TestLoopsThatResist:
    def test_a_guard_on_the_size(self, tmp_path):
        """Only the script's own size makes steps, also when it is started with another number."""
        done = resisting("size_guard", "8,16", tmp_path)
        assert done.code == 1, done
        assert "only at its own batch size 16" in done.error
        line = line_of(SCRIPTS / "size_guard.py", "batch_size=16")
        assert f"size_guard.py:{line}) was tried instead: " in done.error
        assert "raised UnboundLocalError" in done.error
        first, second = done.searched
        assert (first.batch_size, first.outcome, first.step_s) == (8, "no_step", None)
        assert (second.batch_size, second.outcome) == (16, "ok")
        assert done.advice.recommended.batch_size == 16
        assert done.advice.change == "nothing to change"
        assert any("batch 8 did not run" in finding.message for finding in done.advice.findings)

    def test_a_guard_on_a_named_size(self, tmp_path):
        """Of sizes without the script's own none makes a step; they go in where it is written."""
        text = (SCRIPTS / "size_guard.py").read_text()
        named = text.replace("batch_size=16", "batch_size=BATCH_SIZE")
        named = named.replace("!= 16", "!= BATCH_SIZE")
        named = named.replace("def main", "BATCH_SIZE = 16\n\n\ndef main")
        (tmp_path / "named_guard.py").write_text(named)
        options = ("--json", "-o", "out", "--no-profile", "--goal", "memory", "--sizes", "8,32")
        done = run_preloaded("run", *options, "named_guard.py", folder=tmp_path)
        assert done.code == 0, done
        assert "only at its own batch size 16" in done.stderr
        assert {each.batch_size: each.outcome for each in done.searched} == {8: "ok", 32: "ok"}

    def test_a_loop_that_swallows_exceptions(self, tmp_path):
        """It can swallow neither the end of a trial nor the end of the run."""
        done = resisting("swallows", "8,48", tmp_path)
        assert done.code == 0, done
        assert {trial.outcome for trial in done.record.trials} == {"ok"}
        assert done.advice.recommended.batch_size == 48

    def test_the_second_loader_keeps_its_ratio(self, styled):
        log = styled("two_loaders").log.splitlines()
        seen = {tuple(map(int, text.split()[1:])) for text in log if text.startswith("seen ")}
        assert {(8, 24), (4, 12), (40, 120)} <= seen
        # At the end the change of the first loader's line is tried by itself, as it is named.
        steered = {(first, second) for first, second in seen if second != 24 or first == 8}
        assert {second / first for first, second in steered} == {3}
