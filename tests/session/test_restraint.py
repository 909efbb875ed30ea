"""What batchadvisor itself does while the steps of a trial are timed: next to nothing."""

from collections import Counter
from pathlib import Path

import pytest
from batchadvisor.records import Goal, TrialRequest
from batchadvisor.reports.terminal.progress import NullDisplay
from batchadvisor.session.run import Run
from batchadvisor.session.setup.options import RunOptions

from ..end_to_end.driver import SCRIPTS

SLOWLY = """
import itertools, time
import torch
pace = itertools.cycle((0.01, 0.05, 0.09))
torch.optim.Adam.step = (lambda step: lambda *a, **k: (time.sleep(next(pace)), step(*a, **k))[1])(
    torch.optim.Adam.step)
"""
"""Steps so unlike that timing them takes more than a second."""


class Told(NullDisplay):
    """Counts what is said of each phase."""

    def __init__(self):
        self.phases = Counter()

    def update(self, phase, batch_size, num_steps, step_s):
        self.phases[phase] += 1


@pytest.fixture
def trial(tmp_path, monkeypatch):
    """One timed trial of a script, and what was said meanwhile."""
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text(SLOWLY + (SCRIPTS / "plain.py").read_text())
    told = Told()
    options = RunOptions(
        script="train.py", device="cpu", output=Path("out"), goal=Goal(budget_s=16)
    )
    with Run(options, told) as run:
        run.workers.start()
        run._one(TrialRequest(batch_size=16, kind="timed"))
        return run.writer.record.trials[-1], told.phases


@pytest.mark.slow
def test_steps_are_timed_in_quiet_and_the_own_share_is_recorded(trial):
    trial, phases = trial
    assert trial.ran
    assert trial.elapsed_s > 1.0
    assert phases["warming up"] >= 2
    assert phases["timing"] <= 1 + trial.elapsed_s / 5
    assert 0 < trial.tool_cpu_pct < 100
