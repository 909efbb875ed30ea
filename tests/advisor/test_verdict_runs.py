"""Verdicts of real CPU runs: one script with a cost planted in its loader, host code or compute."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from batchadvisor.records import RunRecord

pytestmark = [pytest.mark.slow, pytest.mark.alone]

SCRIPT = Path(__file__).parents[1] / "scripts" / "planted.py"


@pytest.mark.parametrize(
    ("place", "sizes", "limit", "larger"),
    [
        ("loader", "16,64,128", "input", "does not help"),
        ("host", "16,64,128", "host", "helps"),
        ("compute", "16,64,256", "saturated", "does not help"),
    ],
)
def test_the_planted_cost_is_found(place, sizes, limit, larger, tmp_path):
    command = [sys.executable, "-m", "batchadvisor", "run", "--json", "-q", "--device", "cpu"]
    command += ["--budget", "30s", "--sizes", sizes, "-o", str(tmp_path / "run")]
    done = subprocess.run(
        [*command, str(SCRIPT), "--in", place],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    verdict = answer["advice"]["verdict"]
    record = msgspec.convert(answer["record"], RunRecord)
    # Steps that the machine held up may say nothing; what they do say must be so.
    held_up = any(trial.contended for trial in record.trials)
    limits, helps = {limit}, {larger}
    if held_up:
        limits.add("cannot tell")
        helps.add("unknown")
    assert verdict["limit"] in limits, verdict
    assert verdict["larger_batch"] in helps, verdict
    assert verdict["evidence"] or verdict["limit"] == "cannot tell"
    assert verdict["remedy"]
