"""The benchmark on public scripts: its list, its judgement, its page, a script of a made clone."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
RAW = ROOT / "bench" / "results" / "public-scripts.json"
TRAIN = """\
import argparse
import torch

parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, default=8)
args = parser.parse_args()
words = open("words.txt").read().split()
data = torch.utils.data.TensorDataset(torch.randn(len(words), 4))
loader = torch.utils.data.DataLoader(data, batch_size=args.batch_size)
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(10_000):
    for (x,) in loader:
        optimizer.zero_grad()
        model(x).sum().backward()
        optimizer.step()
"""
TRUTH = {"door": "loader", "loader": ["train.py:9"], "own": 8, "change": ["train.py:5"]}
ROW = {
    "outcome": "answered",
    "door": "loader",
    "own": 8,
    "loader": "train.py:9",
    "source": {"place": {"file": "src/train.py", "line": 5}, "before": "default=8", "others": []},
    "headline": "Use batch size 64",
    "recommended": 64,
    "arrived": [[8, 8], [64, 64]],
}
ELSEWHERE = ROW["source"] | {"place": {"file": "train.py", "line": 6}}


@pytest.fixture(scope="module")
def bench():
    """The folder of the benchmarks is where modules are looked for, as when one is run."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "bench"))
        yield


@pytest.fixture(scope="module")
def page(bench):
    import public_page

    return public_page


@pytest.fixture(scope="module")
def verdicts(bench):
    import public_verdicts

    return public_verdicts


@pytest.fixture(scope="module")
def scripts(bench):
    import public_scripts

    return public_scripts


class TestTheList:
    def test_it_names_scripts_at_whole_commits(self, scripts):
        real = [each for name, each in scripts.scripts().items() if not name.startswith("ours/")]
        at_commits = [each for each in real if "repo" in each]
        assert len(at_commits) >= 24
        assert all(re.fullmatch("[0-9a-f]{40}", each["commit"]) for each in at_commits)
        assert all("truth" in each for each in real)

    def test_what_it_asks_for_is_there(self, scripts):
        import made_data

        for script in scripts.scripts().values():
            for function, _ in script.get("data", []):
                assert callable(getattr(made_data, function))
            for name in script.get("stand_ins", []):
                assert (ROOT / "bench" / "stand_ins" / name / f"{name}.py").exists()

    def test_eight_are_swept(self, scripts):
        listed = scripts.scripts().values()
        swept = [each for each in listed if each.get("sweep")]
        assert len(swept) >= 8
        assert all("own" in each["truth"] and "{}" in each["set"] for each in swept)


class TestJudging:
    def verdict(self, verdicts, truth=None, **fields):
        return verdicts.judged({"truth": TRUTH | (truth or {})}, ROW | fields)

    def test_an_answer_that_fits_the_source(self, verdicts):
        verdict, checks = self.verdict(verdicts)
        assert verdict == "answered"
        assert set(checks.values()) == {"right"}

    @pytest.mark.parametrize(
        ("fields", "what"),
        [
            ({"own": 16}, "own size"),
            ({"door": "template"}, "door"),
            ({"loader": "train.py:20"}, "loader"),
            ({"arrived": [[8, 8], [64, 8]]}, "size that arrived"),
            ({"typed": {"samples_per_s": {}, "missed": [64]}}, "size that arrived"),
            ({"source": ELSEWHERE}, "line to change"),
        ],
    )
    def test_what_differs_from_the_source_is_wrong(self, verdicts, fields, what):
        verdict, checks = self.verdict(verdicts, **fields)
        assert verdict == "wrong"
        assert [name for name, said in checks.items() if said != "right"] == [what]

    def test_a_place_that_is_not_named_is_told_from_a_wrong_one(self, verdicts):
        verdict, checks = self.verdict(verdicts, source=None)
        assert (verdict, checks["line to change"]) == ("answered", "not named")

    @pytest.mark.parametrize(
        ("truth", "fields", "verdict"),
        [
            # A typed size that does not arrive counts where it is advised.
            ({}, {"typed": {"samples_per_s": {}, "missed": [16]}}, "answered"),
            # What else has to change must be said.
            ({"says": "MAX_SIZE"}, {}, "wrong"),
            ({"says": "MAX_SIZE"}, {"change": "MAX_SIZE too"}, "answered"),
            ({"says": "MAX_SIZE"}, {"recommended": 8}, "answered"),
            ({"most": 32}, {}, "wrong"),  # it cannot run
            ({}, {"headline": "No answer yet: go on"}, "later"),
        ],
    )
    def test_an_answer_is_judged_as_a_whole(self, verdicts, truth, fields, verdict):
        assert self.verdict(verdicts, truth, **fields).verdict == verdict

    def test_a_command_to_type_is_counted_apart_where_it_leads_to_an_answer(self, verdicts):
        error = "Start it once for each size: batchadvisor run t.py -b {batch_size}   (one each)."
        row = ROW | {"outcome": "refused", "error": error}
        assert verdicts.proposed({"truth": TRUTH}, row) == "t.py -b {batch_size}"
        more = error.replace("{batch_size}", "{batch_size} --data-size=9")
        assert verdicts.proposed({"truth": TRUTH}, row | {"error": more}).endswith("--data-size=9")
        assert verdicts.proposed({"truth": {"told": "no size"}}, row) == ""
        assert verdicts.proposed({"truth": TRUTH}, ROW) == ""
        for outcome, verdict in (("answered", "flag"), ("refused", "failed")):
            judged = verdicts.judged({"truth": TRUTH}, row | {"second": {"outcome": outcome}})
            assert judged.verdict == verdict

    def test_an_option_that_is_typed_is_what_has_to_change(self, verdicts):
        place = {"file": "train.py", "line": 30}
        typed = {"source": {"place": place, "before": "-b 8", "others": []}}
        command = "batchadvisor run train.py -b 8"
        checks = self.verdict(verdicts, {"change": ["typed"]}, command=command, **typed).checks
        assert checks["line to change"] == "right"
        default = self.verdict(verdicts, {"change": ["typed"]}, command=command)
        assert default.checks["line to change"] == "train.py:5  default=8, not typed"

    def test_no_size_to_choose(self, verdicts):
        script = {"truth": {"told": "one batch is the graph", "says": "no size to choose"}}
        told = {"outcome": "refused", "error": "one batch: there is no size to choose"}
        for row, verdict in ((told, "told"), (told | {"error": "no"}, "failed"), (ROW, "wrong")):
            assert verdicts.judged(script, row).verdict == verdict

    @pytest.mark.parametrize(
        ("size", "fields", "words"),
        [
            (64, {}, "advise another size"),
            (8, {"standing": "too noisy"}, "too noisy to tell"),
            (8, {"standing": "own", "timed": [4, 8]}, "no larger one timed"),
            (8, {"standing": "own", "timed": [8, 64]}, "after a larger one was timed"),
        ],
    )
    def test_answers_are_told_apart_by_what_was_timed(self, verdicts, size, fields, words):
        assert verdicts.advice(ROW | {"recommended": size} | fields).endswith(words)

    def test_a_sweep_is_compared_at_the_advised_size(self, verdicts):
        typed = {"samples_per_s": {"8": [50, 70], "64": [90], "32": [100]}}
        row = {"recommended": 64, "typed": typed}
        sweep = verdicts.swept(row)
        assert (sweep.best, sweep.share, sweep.num_passes) == (32, 0.9, 1)
        assert verdicts.swept(row | {"recommended": 16}) is None


class TestThePage:
    def test_it_is_made_of_the_raw_results(self, page, scripts):
        """`python bench/public_scripts.py --page` writes it again."""
        made = page.page(*scripts.results_of(RAW.parent), scripts.scripts())
        assert (ROOT / "docs" / "works-with.md").read_text("utf-8") == made

    def test_the_table_is_made_of_the_raw_results(self, page, scripts):
        made = page.report(json.loads(RAW.read_text()), scripts.scripts())
        assert RAW.with_suffix(".txt").read_text("utf-8") == made + "\n"

    def test_the_results_name_no_folder_of_a_machine(self):
        assert not re.search(r"[\s\"'(](/tmp|/home|/root|/work)\b", RAW.read_text())


class TestRunning:
    @pytest.fixture
    def clones(self, tmp_path):
        """A repository with one commit of one script, and the script's line in a list."""
        clone = tmp_path / "clones" / "project"
        (clone / "src").mkdir(parents=True)
        (clone / "src" / "train.py").write_text(TRAIN)
        git = ["git", "-c", "user.name=a", "-c", "user.email=a@b", "-C", str(clone)]
        for words in (["init", "-q"], ["add", "."], ["commit", "-qm", "a script"]):
            subprocess.run([*git, *words], check=True)
        head = subprocess.check_output([*git, "rev-parse", "HEAD"], text=True)
        (clone / "src" / "train.py").write_text("raise SystemExit('not of the commit')\n")
        script = {
            "name": "made",
            "repo": "somebody/project",
            "commit": head.strip(),
            "take": ["src"],
            "folder": "src",
            "words": "train.py",
            "data": [["text", {"path": "src/words.txt", "num_words": 4080}]],
            "truth": TRUTH,
            "set": "--batch-size {}",
        }
        return clone.parent, script

    @pytest.mark.slow
    def test_a_clone_is_read_at_its_commit(self, scripts, clones):
        folder, script = clones
        said = scripts._as_written(script, folder)
        assert re.fullmatch(r"steps \d+, sizes \{8: \d+\}", said)
        wrong = script | {"truth": TRUTH | {"own": 16}}
        assert scripts._as_written(wrong, folder).endswith("NOT AS LISTED, 16")

    def test_what_is_missing_is_named(self, scripts, clones):
        folder, script = clones
        assert scripts._as_written(script, None).startswith("skipped, needs --clones DIR")
        gone = script | {"repo": "somebody/else"}
        assert "no clone of somebody/else" in scripts._as_written(gone, folder)
        assert "cannot be read" in scripts._as_written(script | {"commit": "0" * 40}, folder)
        lacks = script | {"packages": ["no-such-package"]}
        assert scripts._as_written(lacks, folder) == "skipped, not installed: no-such-package"

    @pytest.mark.slow
    def test_sizes_are_typed_and_timed_without_batchadvisor(self, scripts, clones, tmp_path):
        _, script = clones
        (tmp_path / "words.txt").write_text("a " * 4080)
        (tmp_path / "train.py").write_text(TRAIN)
        seen = scripts._typed(script, [8, 48], tmp_path, dict(os.environ))
        assert seen["missed"] == []
        assert {size: len(each) for size, each in seen["samples_per_s"].items()} == {
            "8": 2, "48": 2,
        }  # fmt: skip
        (tmp_path / "train.py").write_text(TRAIN.replace("=args.batch_size", "=8"))
        seen = scripts._typed(script, [48], tmp_path, dict(os.environ))
        assert seen == {"samples_per_s": {}, "missed": [48]}  # it did not arrive

    def test_a_command_is_ended_with_all_that_it_started(self, scripts, tmp_path):
        from public_copies import limited

        code = "import subprocess, sys; subprocess.run(['sleep', '60'])"
        code, *_ = limited([sys.executable, "-c", code], tmp_path, dict(os.environ), 1.0)
        assert code is None

    @pytest.mark.slow
    def test_a_row_is_kept_until_it_is_asked_for_again(
        self, scripts, clones, tmp_path, monkeypatch
    ):
        folder, script = clones
        monkeypatch.setattr(scripts, "scripts", lambda _device: {"made": script})
        words = ["public_scripts.py", "--clones", str(folder), "--budget", "4s"]
        words += ["--results", str(tmp_path / "out")]
        monkeypatch.setattr(sys, "argv", words)
        scripts.main()
        path = tmp_path / "out" / "public-scripts.json"
        first = json.loads(path.read_text())["rows"]["made"]
        assert (first["outcome"], first["own"], first["loader"]) == ("answered", 8, "train.py:9")
        assert first["wall_s"] > 0
        scripts.main()
        assert json.loads(path.read_text())["rows"]["made"] == first
        assert str(tmp_path) not in path.read_text()

    def test_what_is_kept_names_no_folder(self, bench, tmp_path):
        from public_copies import without_paths

        told = {"error": f"{tmp_path}/src/train.py: see /usr/lib/torch/nn.py, a/b, https://a.b/c/d"}
        kept = {"error": "src/train.py: see nn.py, a/b, https://a.b/c/d"}
        assert without_paths(told, tmp_path) == kept
        assert without_paths([told, 3], tmp_path) == [kept, 3]
