"""The bench of estimates against published sizes: its rows, its judgement, its page, bad input."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
BENCH = ROOT / "bench"
RAW = max((BENCH / "results").glob("estimate-against-gpus_*.json"))
ROW = {
    "id": "a",
    "source": "owner/repository table.csv",
    "model": "resnet18",
    "task": "image classification, random tensors",
    "seq_or_img": "224",
    "technique": "contiguous",
    "gpu": "RTX 3090 24GB",
    "gpu_GiB_note": "23.68-23.70 GiB by torch",
    "largest_fit": "192",
    "first_fail": "256",
}


@pytest.fixture(scope="module")
def page():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(BENCH))
        import against_gpus_page

        yield against_gpus_page


@pytest.fixture(scope="module")
def bench(page):
    import estimate_against_gpus

    return estimate_against_gpus


def path_of(folder):
    """Python's, with a folder before the one of the tests."""
    return os.pathsep.join(filter(None, [str(folder), os.environ.get("PYTHONPATH")]))


def judged(low, high, fit=192, fail=256):
    return {"low": low, "high": high, "fit": fit, "fail": fail}


class TestJudgement:
    @pytest.mark.parametrize(
        ("row", "verdicts"),
        [
            (judged(192, 255), ("inside",)),
            (judged(250, 256), ("high_fails",)),
            (judged(256, 260), ("low_fails",)),
            (judged(180, 200), ("below",)),
            (judged(180, 256), ("high_fails", "below")),
            (judged(600, 700, 512, None), ("inside",)),
            (judged(500, 700, 512, None), ("below",)),
        ],
    )
    def test_a_range_is_judged_by_what_ran_and_what_failed(self, row, verdicts, page):
        names = ("inside", "low_fails", "high_fails", "below")
        assert tuple(name for name in names if getattr(page, name)(row)) == verdicts

    def test_the_middle_is_compared_with_that_of_the_bracket(self, page):
        assert page.distance(judged(180, 267)) == pytest.approx(0)
        assert page.distance(judged(500, 700, 512, None)) is None
        assert page.width(judged(90, 110)) == pytest.approx(0.2)

    def test_a_range_with_no_size_of_the_bracket_contradicts_it(self, page):
        ranges = ((200, 210), (250, 257), (256, 260), (150, 191), (150, 192))
        contradicted = [ends for ends in ranges if page.contradicts(judged(*ends))]
        assert contradicted == [(256, 260), (150, 191)]
        # Published sizes are 1.41 apart on average: a range that wide always holds one.
        assert page.chance(judged(100, 101)) == pytest.approx(0.029, abs=0.001)
        assert page.chance(judged(100, 150)) == 1


class TestRows:
    def test_bytes_are_those_that_the_row_gives(self, bench):
        assert bench.bytes_of(ROW) == int(23.68 * (1 << 30))
        by_driver = ROW | {"gpu_GiB_note": "16160 MiB by nvidia-smi"}
        assert bench.bytes_of(by_driver) == 16160 << 20

    def test_a_row_without_them_says_so_in_one_line(self, bench):
        for gpu, words in (
            ("A100 80GB", "no bytes of the device 'A100 80GB' are given"),
            ("V100 16/32GB", "'V100 16/32GB' is a card of 16 or of 32 GB"),
        ):
            made = bench.judged(ROW | {"gpu": gpu, "gpu_GiB_note": ""}, command=False)
            assert made["problem"] == words
            assert "low" not in made

    def test_a_sample_is_chosen_by_names_alone(self, bench):
        rows = [ROW | {"id": name, "model": name} for name in "abcdef"]
        few = [row["id"] for row in bench.wanted(rows, 30, ())]
        every = [row["id"] for row in bench.wanted(rows, 100, ())]
        assert few == [name for name in every if bench.bucket_of(name) < 30]
        turned = [row | {"largest_fit": "1", "first_fail": "2"} for row in reversed(rows)]
        assert [row["id"] for row in bench.wanted(turned, 30, ())] == few

    def test_each_row_is_estimated_or_has_a_reason(self, bench):
        other = ROW | {"task": "MetaMathQA SFT", "source": "huggingface/peft method_comparison/x"}
        assert bench.why_left_out(ROW) == ""
        ((source, num, reason),) = bench.left_out([ROW, other, other])
        assert (source, num) == ("huggingface/peft", 2)
        assert reason


class TestBadInput:
    """Of the command; it needs no model for any of these."""

    @pytest.fixture
    def run(self, tmp_path):
        def run(rows, *words):
            path = tmp_path / "rows.csv"
            with path.open("w", newline="") as file:
                writer = csv.DictWriter(file, list(rows[0]))
                writer.writeheader()
                writer.writerows(rows)
            (tmp_path / "timm.py").write_text("__version__ = '9'\nis_model = lambda name: False\n")
            return subprocess.run(
                [sys.executable, str(BENCH / "estimate_against_gpus.py"), str(path), *words,
                 "--results", str(tmp_path), "--no-page"],
                capture_output=True, text=True, check=False, env={"PYTHONPATH": path_of(tmp_path)},
            )  # fmt: skip

        return run

    @pytest.mark.slow
    def test_a_model_that_is_gone_from_the_package(self, run):
        result = run([ROW])
        assert result.returncode == 0, result.stderr
        assert "not estimated: a: timm 9 has no model 'resnet18'" in result.stdout

    @pytest.mark.parametrize(
        ("lacks", "words", "said"),
        [
            ("", ("--models", "resnet19"), "no row that can be estimated has the model resnet19"),
            ("first_fail", (), "rows.csv lacks the columns first_fail"),
        ],
    )
    @pytest.mark.slow
    def test_what_cannot_be_done_is_one_line(self, run, lacks, words, said):
        result = run([{name: value for name, value in ROW.items() if name != lacks}], *words)
        assert result.returncode == 1
        (line,) = result.stderr.splitlines()
        assert line.endswith(said)


class TestPeaks:
    """Rows that say what a step took at one size."""

    def peaks(self, bench, **row):
        import peaks_against_gpus

        return [
            (each.words, each.size, each.published, each.reserved)
            for each in peaks_against_gpus.peaks_of({**ROW, "peak": "", "evidence": "", **row})
        ]

    def test_the_driver_s_bytes_without_the_context(self, bench):
        row = {
            "id": "hf-bertlarge-3",
            "technique": "fp16",
            "largest_fit": "4",
            "peak": "13939 MiB",
            "peak_kind": "nvidia-smi used, of which 1343 MiB are the CUDA context (stated)",
        }
        words = ("bert_training.py", "fp16")
        assert self.peaks(bench, **row) == [(words, 4, (13939 - 1343) << 20, True)]
        assert self.peaks(bench, **{**row, "technique": "8-bit Adam"}) == []

    def test_allocated_bytes_of_several_sizes(self, bench):
        row = {
            "source": "Lightning-AI/litgpt tutorials/resource-tables.md",
            "model": "Llama 2 7 B",
            "dtype": "bf16-true",
            "ranks": "1",
            "technique": "Finetuning with LoRA on 1 GPU",
            "seq_or_img": "Alpaca, longest 1304 tokens",
            "evidence": "1=21.30 GB; 2=29.07 GB; 4=OOM",
        }
        words = ("adapter_training.py", "Llama-2-7b-hf", "lora", "1304")
        made = self.peaks(bench, **row)
        assert made == [(words, 1, 21_300_000_000, False), (words, 2, 29_070_000_000, False)]
        assert self.peaks(bench, **{**row, "dtype": "bnb.nf4"}) == []
        assert self.peaks(bench) == []

    def test_the_page_has_them_all(self, bench):
        name, data = bench.newest(RAW.parent, bench.PEAKS)
        made = bench.whole_page(json.loads(RAW.read_text()), RAW.name, RAW.parent)
        assert name in made
        assert sum(
            line.startswith(("| `bert_", "| `adapter_")) for line in made.splitlines()
        ) == len(data["peaks"])


class TestThePage:
    def test_it_is_made_of_the_raw_results(self, bench):
        """`python bench/estimate_against_gpus.py --page` writes it again."""
        made = bench.whole_page(json.loads(RAW.read_text()), RAW.name, RAW.parent)
        assert (ROOT / "docs" / "estimate-against-gpus.md").read_text("utf-8") == made
        assert "were **published by others**" in " ".join(made.split())

    def test_the_table_is_made_of_the_raw_results(self, page):
        made = page.report(json.loads(RAW.read_text()))
        assert RAW.with_suffix(".txt").read_text("utf-8") == made + "\n"

    def test_it_says_which_code_made_it_and_what_newer_code_says(self, page):
        data = json.loads(RAW.read_text())
        names = [name for name, row in data["rows"].items() if row.get("low")][:3]
        rows = {name: dict(data["rows"][name]) for name in names}
        rows[names[0]]["low"] -= 1
        again = data | {"code": "0123456789ab", "rows": rows}
        text = " ".join(page.page(data | {"code": "ba9876543210"}, RAW.name, again).split())
        assert "with the code whose state is `ba9876543210`" in text
        assert "Of 3 of its rows" in text
        assert "with the state `0123456789ab`, 2 have the same range" in text

    def test_a_failure_that_the_table_contradicts_says_so(self, page):
        failed, other = (
            {"model": "net", "size": "224", "gpu": "a card", "layout": layout, "low": 240}
            | {"high": 255, "fit": fit, "fail": fail}
            for layout, fit, fail in (("channels_last", 128, 192), ("contiguous", 192, 256))
        )
        said = "net at 224, channels last: 240 to 255, where 192 failed"
        ran = "; contiguous it ran with 192, where the range is 240 to 255"
        assert page._failed([failed, other]) == [said + ran]
        assert page._failed([failed, other | {"fit": 128, "fail": 256}]) == [said]

    def test_it_lists_every_range_that_is_outside(self, page):
        data = json.loads(RAW.read_text())
        outside = [row for row in page.ran(data) if not page.inside(row)]
        text = page.page(data, RAW.name)
        for row in outside:
            at = f" at {row['size']}" if page.low_fails(row) else ""
            layout = row["layout"].replace("_", " ")
            assert f"{row['model']}{at}, {layout}: {row['low']} to" in text

    def test_a_state_of_the_code_tells_whether_it_changed(self, bench, monkeypatch, tmp_path):
        for name in bench.JUDGED:
            (tmp_path / name).mkdir(parents=True)
        monkeypatch.setattr(bench, "HERE", tmp_path / "bench")
        law = tmp_path / bench.JUDGED[0] / "law.py"
        law.write_text("ONE = 1\n")
        before = bench.code_state()
        assert bench.code_state() == before
        law.write_text("ONE = 2\n")
        assert bench.code_state() != before
