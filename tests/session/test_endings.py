"""However a run ends, its record says so: nothing is left "running" but by kill -9."""

from pathlib import Path

import pytest
from batchadvisor.errors import ScriptError
from batchadvisor.reports.terminal.progress import NullDisplay
from batchadvisor.session.live_function import LiveStep
from batchadvisor.session.recording.store import read_record
from batchadvisor.session.run import Run, run
from batchadvisor.session.setup.options import RunOptions


class Failing(NullDisplay):
    """A part of ours that fails, at one of its methods."""

    def __init__(self, at):
        self._at = at

    def trial(self, request, expected):
        if self._at == "trial":
            raise KeyError("a fault of the tool")

    def trial_done(self, trial):
        if self._at == "trial_done":
            raise ZeroDivisionError


@pytest.fixture
def options(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return RunOptions(
        script="step",
        device="cpu",
        output=Path("out"),
        door="live",
        live=LiveStep(lambda _: None, batch_size=4),
    )


class TestAFaultOfTheToolItself:
    def test_before_anything_ran(self, options):
        with pytest.raises(ScriptError) as raised:
            run(options, Failing("trial"))
        assert "batchadvisor itself failed: KeyError: 'a fault of the tool'." in str(raised.value)
        assert "please report it" in str(raised.value)
        assert "in trial" in raised.value.script_traceback
        record = read_record(Path("out"))
        assert record.state == "failed"
        assert "KeyError" in record.stop_reason

    def test_what_was_measured_is_kept(self, options):
        result = run(options, Failing("trial_done"))
        assert "batchadvisor itself failed: ZeroDivisionError." in str(result.error)
        assert result.record.state == read_record(Path("out")).state == "failed"
        assert [trial.outcome for trial in result.record.trials] == ["ok"]
        assert len(result.advice.sizes) == 1

    @pytest.mark.parametrize(
        ("error", "state"), [(KeyError("there"), "failed"), (KeyboardInterrupt(), "interrupted")]
    )
    def test_past_the_search(self, options, error, state):
        def end():
            with Run(options, NullDisplay()) as current:
                current.writer.change(state="running")
                raise error

        with pytest.raises(type(error)):
            end()
        assert read_record(Path("out")).state == state
