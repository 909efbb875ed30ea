"""The callback's profiled windows, and other profilers in the same loop."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
import torch
from batchadvisor import ProfilingCallback
from batchadvisor.probes.windows.profiling import TraceProfiler

from . import loops


class TestProfilers:
    def test_one_that_runs_already(self, tmp_path, capfd):
        with torch.profiler.profile() as own:
            _, _, prof = loops.watched(tmp_path, profile_after=4)
        assert "another profiler runs" in capfd.readouterr().err
        assert any(average.key == "aten::addmm" for average in own.key_averages())
        trial = prof.record.trials[0]
        assert trial.profile is None
        assert trial.unavailable["profile"] == "another profiler runs in this process"
        assert trial.step_s is not None

    def test_one_that_starts_meanwhile(self, tmp_path, capfd):
        started = []

        def each(number):
            if number == 13:  # our window is open: it began with the fifth step
                started.append(torch.profiler.profile())
                started[0].start()
            elif number == 20:
                started[0].stop()

        _, _, prof = loops.watched(tmp_path, profile_after=4, each=each)
        assert "given up" in capfd.readouterr().err
        assert any(average.key == "aten::addmm" for average in started[0].key_averages())
        assert prof.record.observed.profiled_steps == ()
        assert prof.record.observed.num_steps == loops.TOTAL_STEPS
        assert "profiler of its own" in prof.record.trials[0].unavailable["profile"]

    def test_windows_come_again(self, tmp_path):
        _, _, prof = loops.watched(
            tmp_path, profile_after=3, profile_steps=1, profile_every=6, quiet=True
        )
        record = prof.record
        assert record.observed.profiled_steps == (5, 11, 17)
        assert len(list((tmp_path / "traces" / "batch_size=0008").glob("*.json*"))) == 3
        assert record.trials[0].profile.num_steps == 1

    def test_a_window_whose_trace_cannot_be_written(self, tmp_path, monkeypatch):
        """No profile, the reason, and nothing of its times."""

        def full(_):
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(TraceProfiler, "finish", full)
        _, _, prof = loops.watched(tmp_path, profile_after=3, quiet=True)
        assert prof._watch.recorder.windows.step_s == {}
        trial = prof.record.trials[0]
        assert "No space left" in trial.unavailable["profile"]
        assert not [doubt for doubt in trial.doubts if "profiled" in doubt]
        assert not torch.autograd._profiler_enabled()

    @pytest.mark.parametrize("profile_after", [5, 7])
    def test_a_validation_is_in_no_window(self, tmp_path, profile_after):
        """It may have any number of batches: the window is put off to the next epoch."""
        opened = []

        def validated(prof, num_epochs):
            for epoch in range(num_epochs):
                torch.manual_seed(epoch)
                loops.train(prof, epochs=1)  # 7 steps
                opened.append(torch.autograd._profiler_enabled())

        with ProfilingCallback(tmp_path, profile_after=profile_after, quiet=True) as prof:
            validated(prof, 3)
        assert opened == [False, False, False]
        assert prof.record.observed.profiled_steps == (10,)
        assert prof.record.trials[0].profile.num_steps == 3

    def test_epochs_shorter_than_a_window(self, tmp_path):
        """A window goes on across their ends, where none would fit between them."""
        with ProfilingCallback(tmp_path, profile_after=3, profile_steps=9, quiet=True) as prof:
            loops.train(prof, epochs=5)  # of 7 steps
        assert prof.record.trials[0].profile.num_steps == 9

    def test_a_run_that_is_over_in_its_window(self, tmp_path):
        with ProfilingCallback(tmp_path, profile_after=2, profile_steps=50, quiet=True) as prof:
            loops.train(prof)
        assert not torch.autograd._profiler_enabled()
        assert prof.record.state == "finished"
        assert "over before" in prof.record.trials[0].unavailable["profile"]


@pytest.mark.parametrize("here", [True, False])
@pytest.mark.slow
def test_the_lines_of_torchs_library(here):
    """In a notebook they would stand between ours; a terminal keeps them, as without us."""
    code = f"""
import os
import os
import subprocess
import sys

import pytest
import torch
from batchadvisor.callback.display import only_our_lines
profiler = torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU])
with only_our_lines(here={here}):
    profiler.start()
torch.ones(3) + 1
profiler.stop()
assert "KINETO_LOG_LEVEL" not in os.environ
"""
    environment = {key: value for key, value in os.environ.items() if key != "KINETO_LOG_LEVEL"}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment
    )
    assert ("ActivityProfiler" in done.stderr) is not here, done.stderr
