"""The figures of regret on the pages are those of the committed measurement; the measure itself."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "bench"))

import regret  # noqa: E402

RAW = [
    path
    for path in sorted(
        (ROOT / "bench" / "results").glob("regret_*.json"), key=lambda each: each.stem
    )
    if "cores" in path.name  # of a processor; a GPU's have a table of their own
]


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
        assert regret.regret_of(lucky, 32) == pytest.approx((1 - 150 / 100 + 0) / 2)
        steady = row(*[{"16": 50, "32": 80, "64": 100}] * 3)
        assert regret.regret_of(steady, 64) == 0
        assert regret.regret_of(steady, 16) == pytest.approx(0.5)
        assert regret.regret_of(steady, 48) == pytest.approx(0.1), "a line between its neighbours"

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
        assert told["quiet"] == {"regret": 0, "gain": 2, "noisy": False, "worse": False}
        assert told["busy1"] == {"regret": 0.5, "gain": 2, "noisy": True, "worse": False}
        assert told["busy3"]["worse"]
        assert told["busy6"]["regret"] is None
        found = [regret.summary_of({"x": each})["of these found"] for each in told.values()]
        assert found == [1, 0, 0, 0]

    def test_a_script_that_was_cut_off_after_one_pass_is_not_judged(self):
        runs = {"busy1": {"recommended": 64, "standing": "better"}}
        whole, cut = (row(*[{"16": 50, "64": 100}] * num) | {"runs": runs} for num in (2, 1))
        told = regret.all_judged({"scripts": {"lstm": whole, "deep": cut}}, "busy1")
        assert list(told) == ["lstm"]
