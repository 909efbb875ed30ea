"""The benchmark of what the callback costs: its statistics, one short run, its table in docs/."""

from __future__ import annotations

import importlib
import json
import random
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def of_bench(name):
    """A module of the benchmarks; their folder is where they look for each other."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "bench"))
        return importlib.import_module(name)


@pytest.fixture(scope="module")
def bench():
    return of_bench("callback_overhead")


@pytest.fixture(scope="module")
def page():
    return of_bench("overhead_page")


def turns(shift, num, seed):
    """Logarithms of ratios around a shift, with the long tail of a busy machine."""
    draw = random.Random(seed)
    shifts = []
    for _ in range(num):
        noise = draw.gauss(0, 0.05)
        if draw.random() < 0.03:
            noise += draw.choice([-1, 1]) * draw.expovariate(2)
        shifts.append(shift + noise)
    return shifts


def test_the_error_is_what_it_says(bench):
    """Of 200 trimmed means about two thirds lie within one standard error of the truth."""
    inside = 0
    for seed in range(200):
        result = bench.ratios(turns(0.01, 400, seed))
        inside += abs(result["mean"] - 0.01005) < result["standard_error"]
    assert 115 < inside < 157  # 137 expected, standard deviation 6.6


def test_the_tail_does_not_decide(bench):
    result = bench.ratios(turns(0.004, 20_000, 1))
    assert result["mean"] == pytest.approx(0.004, abs=3 * result["standard_error"])
    assert result["standard_error"] < result["untrimmed_standard_error"] / 1.5


@pytest.mark.parametrize(
    ("mean", "word"), [(0.001, "holds"), (0.004, "open"), (0.0055, "open"), (0.02, "fails")]
)
def test_a_limit_within_the_error_is_open(page, mean, word):
    overhead = {"mean": mean, "standard_error": 0.0005}
    (line,) = page.verdicts({"steps": {"5": {"overhead": overhead, "pauses": {"share": 0.0002}}}})
    assert f"at 5 ms: {word};" in line


@pytest.mark.slow
@pytest.mark.alone
def test_a_short_run(page, tmp_path):
    """Measures, writes, and its results make the table."""
    options = ["--seconds", "0.5", "--only", "1", "--windows", "1", "--results", str(tmp_path)]
    script = ROOT / "bench/callback_overhead.py"
    done = subprocess.run(
        [sys.executable, script, *options], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "limit of 2.0% at 1 ms:" in done.stdout
    (data,) = page.committed(tmp_path)
    steps = data["steps"]["1"]
    assert steps["overhead"]["turns"] == steps["control"]["turns"] > 10
    assert steps["overhead"]["standard_error"] > 0
    assert steps["window"]["slower"][0] > 0
    assert data == json.loads(next(tmp_path.glob("*.json")).read_text())
    rows = page.markdown([data]).splitlines()
    assert rows[2].count(" % ± ") == 2
    assert rows[3].startswith("| on a GPU | not measured |")


def test_the_page_has_the_committed_results(page):
    text = (ROOT / "docs/benchmarks.md").read_text()
    assert page.with_table(text, page.committed()) == text
    assert page.with_table(text, []).count("not measured | not measured") > 0
