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
        1, ("batch 16", "nothing was heard for 2 s"), "hung", options=(*SIZE, "--timeout", "2s")
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
        done, fault = failed(name), FAULTS[name]
        assert done.code == fault.code, done
        for part in fault.said:
            assert part in done.error
        # What and why, then what to do.
        assert len(done.error.split(". ")) >= 2
        assert done.error.endswith(".")
        assert done.stdout == ""

    def test_the_scripts_own_traceback(self, failed, name):
        done, fault = failed(name), FAULTS[name]
        above = done.stderr.partition("Error: ")[0] if not fault.raised else done.stderr
        if not fault.raised:
            assert "Traceback" not in above
            return
        assert done.stderr.count("Traceback (most recent call last)") == 1
        assert f'{name}.py", line ' in done.stderr
        assert any(line.startswith(fault.raised) for line in done.stderr.splitlines())
        for own in ("/probes/", "/session/", "runpy", "spread.py", "<string>"):
            assert own not in done.stderr

    def test_the_record_says_it(self, failed, name):
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

    def test_the_log_is_named_or_needless(self, failed, name):
        done = failed(name)
        assert (done.run_folder / "script.log").exists()
        said = done.error.replace(str(SCRIPTS), "")  # any folder may be called that
        if "output" in said or "stacks" in said:
            assert f"{done.run_folder.relative_to(done.folder)}/script.log" in done.error

    def test_nothing_stays(self, failed, name):
        done = failed(name)
        assert done.left == []
        assert {path.name for path in done.folder.iterdir()} == {"batchadvisor-runs"}


def test_stacks_of_a_hang_are_in_the_log(failed):
    log = failed("hangs").log
    assert "most recent call first" in log
    assert f'hangs.py", line {line_of(SCRIPTS / "hangs.py", "time.sleep(")} in main' in log


def test_missing_arguments(tmp_path):
    done = run("run", "-q", SCRIPTS / "needs_arguments.py", folder=tmp_path)
    done.assert_refused()
    assert "the following arguments are required: curve" in done.error
    assert "needs_arguments.py ARGUMENTS" in done.error
    assert listing(tmp_path) == {}


SIZES = {"size_guard": "8,16", "swallows": "8,48"}


@pytest.fixture(scope="module")
def resisting(tmp_path_factory):
    """The run of a script of SIZES, by its name."""

    def start(name):
        options = ("--json", "-q", "-o", "out", "--no-profile", "--goal", "memory")
        words = ("run", *options, "--sizes", SIZES[name], SCRIPTS / f"{name}.py")
        return functools.partial(run_preloaded, *words, folder=tmp_path_factory.mktemp(name))

    ahead = Ahead(SIZES, start)
    yield ahead
    ahead.close()


class TestLoopsThatResist:
    @pytest.mark.slow
    def test_a_guard_on_the_size(self, resisting):
        """Only the script's own size makes steps; it is sent to the template door."""
        script = SCRIPTS / "size_guard.py"
        done = resisting("size_guard")
        assert done.code == 1, done
        assert "only at its own batch size 16" in done.error
        assert f"--template --set batch_size={{batch_size}} {script}" in done.error
        assert "--no-profile --goal memory --sizes 8,16 --template" in done.error
        search = [trial for trial in done.record.trials if trial.purpose == "search"]
        assert [(trial.batch_size, trial.outcome) for trial in search] == [
            (8, "no_step"),
            (16, "ok"),
        ]
        assert search[0].step_s is None
        assert done.advice.recommended.batch_size == 16
        assert done.advice.change == "nothing to change"
        assert any("batch 8 did not run" in finding.message for finding in done.advice.findings)
        assert done.left == []

    @pytest.mark.slow
    def test_a_loop_that_swallows_exceptions(self, resisting):
        """It can swallow neither the end of a trial nor the end of the run."""
        done = resisting("swallows")
        assert done.code == 0, done
        assert {trial.outcome for trial in done.record.trials} == {"ok"}
        assert done.advice.recommended.batch_size == 48
        assert done.left == []

    @pytest.mark.slow
    def test_a_last_batch_that_fails(self, styled):
        """40 samples by 13 leave one, and BatchNorm over one sample raises: found by doing it."""
        result = styled("short_dataset")
        (tail,) = (trial for trial in result.record.trials if trial.purpose == "tail")
        assert tail.batch_size == tail.tail.num_samples == 1
        assert tail.outcome == tail.tail.outcome == "exception"
        assert "more than 1 value per channel" in tail.detail
        assert result.record.discovery.norm_layers.batch_norm == 1
        advice = result.advice
        assert advice.recommended.batch_size == 13
        assert advice.tail_check.outcome == "exception"
        (crash,) = (finding for finding in advice.findings if finding.rule == "tail.crash")
        assert crash.severity == "error"
        assert "drop_last=True" in crash.remedy

    @pytest.mark.slow
    def test_the_second_loader_keeps_its_ratio(self, styled):
        log = styled("two_loaders").log.splitlines()
        seen = {tuple(map(int, text.split()[1:])) for text in log if text.startswith("seen ")}
        assert {(8, 24), (4, 12), (40, 120)} <= seen
        # At the end the change of the first loader's line is tried by itself, as it is named.
        steered = {(first, second) for first, second in seen if second != 24 or first == 8}
        assert {second / first for first, second in steered} == {3}
