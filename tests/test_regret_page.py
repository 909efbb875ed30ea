"""The figures of regret on the pages are those of the committed measurement; the measure itself."""

from __future__ import annotations

import contextlib
import json
import math
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "bench"))

import in_turn  # noqa: E402
import regret  # noqa: E402

RAW = sorted(
    # Of a processor: a GPU's have a table of their own.
    (ROOT / "bench" / "results").glob("regret_*cores_*.json"),
    key=lambda path: path.stem.rpartition("_")[2],
)
"""Results, the latest last."""


def between(text, name):
    return text.partition(f"<!-- {name}: begin -->\n")[2].partition(f"\n<!-- {name}: end -->")[0]


def test_the_pages_say_what_was_measured():
    data = json.loads(RAW[-1].read_text())
    costs, reading = (page.read_text() for page in regret.PAGES)
    assert between(costs, "regret") == between(reading, "regret") == regret.summary_table(data)
    assert between(costs, "regret by script") == regret.scripts_table(data)
    assert f"bench/results/{RAW[-1].name}" in costs


def row(*passes):
    return {"own": 16, "passes": [{"rates": rates} for rates in passes]}


class TestRegret:
    def test_the_best_is_rated_by_other_passes_than_those_that_chose_it(self):
        """64 was lucky once, 32 once: neither is taken for what its luck read."""
        lucky = row({"16": 90, "32": 100, "64": 150}, {"16": 90, "32": 150, "64": 100})
        mean, half = regret.regret_of(lucky, 32)
        assert mean == pytest.approx((0 + 1 - 150 / 100) / 2)
        assert half > 1, "two passes that say another thing each"
        steady = row(*[{"16": 50, "32": 80, "64": 100}] * 3)
        assert regret.regret_of(steady, 64) == (0, 0)
        assert regret.regret_of(steady, 16) == pytest.approx((0.5, 0))

    def test_what_one_pass_says_is_rated_by_the_others(self):
        """64 is within 5 % of the best in one pass of four, whose rule takes it then."""
        usual, other = {"16": 50, "64": 80, "128": 100}, {"16": 50, "64": 96, "128": 100}
        assert regret.of_one_pass(row(usual, usual)) is None
        assert regret.of_one_pass(row(*[usual] * 3)) == 0
        # The other says 64, which leaves a fifth in all the others; they say 128.
        assert regret.of_one_pass(row(usual, usual, usual, other)) == pytest.approx(0.2 / 4)
        # Later passes leave slow sizes out: beside 16 alone, 128 would be ten times better.
        first, left = {"16": 10, "64": 50}, {"16": 10, "128": 100}
        assert regret.of_one_pass(row(first, left, {"128": 100})) is None

    def test_a_recommended_size_is_rated_by_the_passes_that_have_it(self):
        """The first pass comes before the run that recommends it."""
        measured = row({"16": 50, "64": 100}, *[{"16": 50, "48": 90, "64": 100}] * 2)
        assert regret.regret_of(measured, 48) == pytest.approx((0.1, 0))

    def test_what_a_run_is_judged_by(self):
        script = regret.Script(Path("x.py"), (), 16, (16, 32, 64))
        measured = row(*[{"16": 50, "32": 80, "64": 100, "128": 45}] * 2)
        measured["runs"] = {
            "quiet": {"recommended": 64, "standing": "better"},
            "busy1": {"recommended": 16, "standing": "too noisy"},
            "busy3": {"recommended": 128, "standing": "better"},
            "busy6": {"recommended": None, "standing": "not compared"},
        }
        told = {kind: regret.judged(measured, kind, script) for kind in measured["runs"]}
        good = {"regret": 0, "half": 0, "gain": 2, "noisy": False, "worse": False}
        assert told["quiet"] == good
        assert told["busy1"] == good | {"regret": 0.5, "noisy": True}
        assert told["busy3"]["worse"]
        assert told["busy6"]["regret"] is None
        summaries = {kind: regret.summary_of({"x": each}) for kind, each in told.items()}
        assert [each["of these found"] for each in summaries.values()] == [1, 0, 0, 0]
        assert [each["surely beyond 5 %"] for each in summaries.values()] == [0, 1, 1, 0]

    def test_a_script_that_was_cut_off_after_one_pass_is_not_judged(self):
        runs = {"busy1": {"recommended": 64, "standing": "better"}}
        whole, cut = (row(*[{"16": 50, "64": 100}] * num) | {"runs": runs} for num in (2, 1))
        told = regret.all_judged({"scripts": {"lstm": whole, "deep": cut}}, "busy1")
        assert list(told) == ["lstm"]


class TestInTurn:
    def test_what_a_round_did_to_all_is_taken_out(self):
        """The second round met a slower machine, and one training not at all."""
        rounds = [{1: 0.0, 2: 1.0, 3: 2.0}, {1: -0.5, 2: 0.5}, {1: 0.1, 2: 1.1, 3: 2.1}]
        told = in_turn.levelled(rounds, [1, 2, 3, 4])
        assert told[2] / told[1] == pytest.approx(math.e)
        assert told[3] / told[1] == pytest.approx(math.e**2)
        assert told[4] is None

    def test_only_one_runs_at_a_time(self, tmp_path):
        """Processes that count time itself: none makes a step in the slice of another."""
        script = tmp_path / "steps.py"
        script.write_text(
            "import sys, time\n"
            "from stamped import Stamps\n"
            "stamps = Stamps(sys.argv[1])\n"
            "while True:\n"
            "    time.sleep(0.01)\n"
            "    stamps.add(time.perf_counter())\n"
        )
        trainings, slices = {}, []
        with contextlib.ExitStack() as ends:
            for name in (1, 2):
                stamps = tmp_path / str(name)
                process = subprocess.Popen(
                    [sys.executable, str(script), str(stamps)],
                    env={**os.environ, "PYTHONPATH": str(ROOT / "bench")},
                    start_new_session=True,
                )
                ends.callback(regret.killed, process)
                trainings[name] = in_turn.Training(process, stamps)
            assert all(in_turn.steps_per_s(trainings, start_s=0.1, seconds=0.5).values())
            for name in (1, 2, 1, 2):
                begun_s = time.perf_counter()
                assert trainings[name].run(0.2)
                slices.append((name, begun_s, time.perf_counter()))
            noted = {name: in_turn.read_stamps(tmp_path / str(name)) for name in (1, 2)}
        for name, begun_s, ended_s in slices:
            inside = [
                other
                for other, moments in noted.items()
                if any(begun_s < m < ended_s for m in moments)
            ]
            assert inside == [name]
        regret.killed(process)
        assert trainings[2].run(0.1) is None, "it has ended"
