"""How the bench under load judges a run, and how it disturbs a machine."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ..needs import BENCH, bench

TRUTH = {"step_s": {"4": 0.040, "8": 0.060, "16": 0.080, "32": 0.400}}
"""100, 133, 200 and 80 samples/s."""


@pytest.fixture
def verdicts(monkeypatch):
    monkeypatch.syspath_prepend(BENCH)
    return bench("load_verdicts")


def test_results_name_no_path_of_the_machine(monkeypatch):
    """What was measured is the same wherever it is written."""
    monkeypatch.syspath_prepend(BENCH)
    words = ["under_load.py", "--runs", "3", "--results", "out", "--resume=a.json", "--budget", "9"]
    words += ["-o", "there", "--keep", "runs", "--kind", "/place/of/runs", "--scripts=/place/x"]
    kept = ["under_load.py", "--runs", "3", "--budget", "9"]
    assert bench("common")._measured_by(words) == kept


def row(size, headline="Use it", timed=(4, 8, 16, 32), **fields):
    usual = {"own": 8, "reason": "", "search_s": 10.0, "wall_s": 14.0, "trials": [], "left": 0}
    return {**usual, "recommended": size, "headline": headline, "sizes_timed": timed, **fields}


def trial(size, median, method="clean steps", disturbed=1):
    return {
        "batch_size": size, "step_s": {"median": median}, "tool_cpu_pct": 0.4,
        "quality": {
            "num_steps": 10, "num_disturbed": disturbed, "method": method, "longest_stall_s": 0.0
        },
        "causes": [{"kind": "hypervisor"}],
    }  # fmt: skip


@pytest.mark.parametrize(
    ("measured", "answer", "right"),
    [
        (row(16), "size", True),
        (row(32), "size", False),  # slower than the own
        (row(8), "keeps own", True),
        (row(16, "Too noisy to tell"), "too noisy", True),
        (row(4, "Too noisy to tell"), "too noisy", False),  # slower than the own, all the same
        (row(None), "none", False),
        (row(16, timed=(16,)), "size", False),  # the own size never ran
        (row(16, search_s=12.2), "size", False),  # budget of 10 s and a fifth
        (row(16, search_s=12.2, trials=[trial(32, 0.5)]), "size", True),  # and a step
        (row(16, left=1), "size", False),
        ({"error": "it failed", "left": 0}, "none", False),
    ],
)
def test_which_answers_are_right(verdicts, measured, answer, right):
    verdict = verdicts.judged(measured, TRUTH, 10.0)
    assert (verdict["answer"], verdict["right"]) == (answer, right)


def test_shares_of_the_best_and_of_the_own(verdicts):
    trials = [trial(16, 0.088, disturbed=3), trial(8, 0.9, "low quantile")]
    verdict = verdicts.judged(row(12, trials=trials), TRUTH, 10.0)
    assert verdict["share_of_best"] == pytest.approx(12 / 0.07 / 200)
    assert verdict["over_own"] == pytest.approx(12 / 0.07 / (8 / 0.06))
    assert verdict["clean_over_quiet"] == pytest.approx([1.1])
    assert verdict["disturbed"] == pytest.approx(0.2)
    assert verdict["causes"] == ["hypervisor"]
    # Beyond the grid.
    assert verdicts.true_step_s(TRUTH, 64) == pytest.approx(0.8)
    assert verdicts.true_step_s(TRUTH, 2) == pytest.approx(0.02)


class TestLoads:
    def test_bursts_stop_and_let_go(self):
        loads = bench("loads")
        with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE,
                              start_new_session=True) as child:  # fmt: skip
            stat = f"/proc/{child.pid}/stat"
            deadline = time.monotonic() + 20
            with loads.Bursts(lambda: [child.pid], pause_s=0.01, seed=0) as bursts:
                while " T " not in Path(stat).read_text():
                    assert time.monotonic() < deadline
                    time.sleep(0.01)
            assert bursts.count >= 1
            assert bursts.stopped_s > 0
            child.communicate(b"\n", timeout=20)
            assert child.returncode == 0

    def test_a_quota_leaves_no_cgroup(self):
        loads = bench("loads")
        try:
            with loads.quota(0.5) as inside:
                done = subprocess.run(inside(["cat", "/proc/self/cgroup"]), capture_output=True,
                                      text=True, check=True)  # fmt: skip
        except loads.Unavailable as reason:
            pytest.skip(str(reason))
        name = f"batchadvisor-{os.getpid()}-"
        assert name in done.stdout
        assert not list(loads.CGROUP.glob(f"**/{name}*"))
