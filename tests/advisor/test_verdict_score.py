"""The score of the verdicts on a few generated steps; the whole one is in bench/results."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

BENCH = Path(__file__).parents[2] / "bench"


@pytest.mark.slow
def test_the_rules_are_right_on_generated_steps(tmp_path):
    command = [sys.executable, BENCH / "verdicts.py", "--seed", "11", "--steps", "36"]
    done = subprocess.run(
        [*command, "--output", tmp_path], capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("seed 11\n")
    result = json.loads((tmp_path / "verdicts.json").read_text())
    assert result["num_steps"] == 36
    assert result["wrong_share"] <= 2 / 36, done.stdout
    assert result["cannot_tell_share"] <= 0.25, done.stdout
    assert len({row["truth"] for row in result["confusion"]}) >= 6
    assert (tmp_path / "verdicts.txt").read_text() in done.stdout


def test_the_stored_score_meets_its_goal():
    stored = json.loads((BENCH / "results" / "verdicts.json").read_text())
    assert stored["num_steps"] >= 200
    for name, goal in stored["goals"].items():
        assert stored[name] <= goal
