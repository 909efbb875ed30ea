"""`batchadvisor tails` as it is typed."""

import json
import re

import pytest
from batchadvisor.advisor.tails.cases import CASES
from batchadvisor.cli import cli
from batchadvisor.errors import UsageError
from click.testing import CliRunner


def typed(*arguments, fails=None):
    """The output of a command line."""
    done = CliRunner().invoke(cli, ["tails", *map(str, arguments)])
    if fails is None:
        assert done.exit_code == 0, (done.output, done.exception)
        return done.output
    if isinstance(done.exception, UsageError):  # `main` prints it and exits with its code
        assert done.exception.exit_code == 2
        return str(done.exception)
    assert done.exit_code == 2
    return done.output


class TestPlan:
    @pytest.mark.parametrize(
        ("words", "said"),
        [
            (
                "--samples 50000 --batch-size 128",
                ["391", "80 samples; each weighs 1.6 times the others", "nothing was run"],
            ),
            (
                "--samples 17 --batch-size 4 --ranks 4",
                [
                    "on 4 ranks, ddp",
                    "3 of 17 samples are drawn again",
                    "DistributedSampler(dataset, drop_last=True)",
                    "Next: batchadvisor tails --explain",
                ],
            ),
            (
                "--samples 21 --ranks 2 --rank-batch-sizes 6,2",
                ["batches of 6, 2 by rank", "5, 0 by rank"],
            ),
            (
                "--samples 9 --batch-size 3 --ranks 2 --setup accelerate --split-batches",
                ["is not known: this setup does not train", "batch_size = 2  # a multiple of 2"],
            ),
            (  # never more samples than there are
                "--samples 1 --batch-size 4 --ranks 2 --setup accelerate",
                ["7 draws repeat the 1 sample of the data set so that"],
            ),
        ],
    )
    def test_text(self, words, said):
        text = typed(*words.split())
        assert [each for each in said if each not in text] == []

    def test_large_numbers_are_readable(self):
        text = typed("--samples", 10**10 + 10, "--batch-size", 36 * 10**6, "--ranks", 3)
        assert "batch size 36,000,000" in text
        assert not re.search(r"\d{7}", text.partition("\n")[2].replace("batch_size = ", "")), text

    def test_json(self):
        data = json.loads(typed("--samples", 9, "--batch-size", 4, "--batch-norm", "--json"))
        assert data["layout"]["last"] == [1]
        assert {"norm.one-value", "loader.short"} <= {finding["id"] for finding in data["findings"]}

    def test_values_of_norm_layers(self):
        """One sample is an error where it gives one value, and only there."""
        facts = ("--samples", 9, "--batch-size", 4, "--json")
        for kind in ("batch", "group", "instance"):
            for size in (1, 2):
                data = json.loads(typed(*facts, f"--{kind}-norm-values", size))
                fires = "norm.one-value" in {finding["id"] for finding in data["findings"]}
                assert fires is (size == 1)

    def test_a_batch_larger_than_the_data(self):
        """There is one step, and so there are no others to weigh less."""
        text = typed("--samples", 10, "--batch-size", 64)
        assert "one step of all 10 samples" in " ".join(text.split())
        assert "times the others" not in text
        assert "all ranks" not in text

    def test_workers_that_make_short_batches_alone(self):
        words = ("--samples", 10, "--batch-size", 64, "--iterable", "--workers", 3)
        text = typed(*words)
        assert "3 batches of 4, 3, 3 samples" in " ".join(text.split())
        assert "times the others" not in text


class TestSweep:
    def test_clean_sizes_only(self):
        text = typed("--samples", 50_000, "--sweep", "--range", "120:130")
        lines = [line.split()[0] for line in text.splitlines() if line.endswith("clean")]
        assert lines == [str(index) for index in range(120, 131) if index not in (121, 124)]
        assert (50_000 % 121, 50_000 % 124) == (27, 28)  # less than half a batch
        assert "--all shows the others too" in text

    def test_all(self):
        text = typed("--samples", 1000, "--sweep", "--range", "64:72", "--all")
        assert "loader.short" in text
        assert len([line for line in text.splitlines() if line.strip()[:2].isdigit()]) == 9 + 1

    def test_json(self):
        rows = json.loads(typed("--samples", 1000, "--sweep", "--range", "100:200:50", "--json"))
        assert [row["batch_size"] for row in rows] == [100, 150, 200]

    def test_without_a_range(self):
        assert "by batch size" in typed("--samples", 1000, "--batch-size", 64, "--sweep")

    def test_multiples_that_are_larger_than_the_usual_sizes(self):
        text = typed("--samples", 8000, "--sweep", "--multiple-of", 1000, "--all")
        assert [line.split()[0] for line in text.splitlines()[3:5]] == ["1000", "2000"]

    @pytest.mark.parametrize(("ranks", "sizes"), [(4, ("--range", "50:56")), (3, ())])
    def test_ranks_that_do_not_share_every_size(self, ranks, sizes):
        """The range may begin anywhere: which of its sizes are possible is what is asked."""
        text = typed("--samples", 240, "--ranks", ranks, "--global", "--sweep", *sizes)
        found = [line.split()[0] for line in text.splitlines() if line.endswith("clean")]
        assert found
        assert all(int(size) % ranks == 0 for size in found)


class TestExplain:
    @pytest.mark.parametrize("case", CASES, ids=lambda known: known.id)
    def test_every_page(self, case):
        text = typed("--explain", case.id)
        assert text == typed("--explain", case.number)
        assert case.title in text
        whole = " ".join(text.split())
        assert all(" ".join(each.split()) in whole for each in (case.what, case.advice))
        assert "What to do" in text
        assert "no test has provoked it" not in text
        assert "ran:" in text

    def test_the_list_and_json(self):
        assert all(case.id in typed("--explain", "all") for case in CASES)
        data = json.loads(typed("--explain", "loader.short", "--json"))
        assert data["case"]["number"] == 1
        assert data["proofs"][0]["how"] == "ran"


class TestBadInput:
    @pytest.mark.parametrize(
        ("arguments", "part"),
        [
            (("--batch-size", 4), "--samples"),
            (("--samples", 4), "--batch-size"),
            (("--samples", 0, "--batch-size", 4), "0 samples"),
            (("--samples", 9, "--batch-size", 4, "--range", "1:9"), "belong to --sweep"),
            (("--samples", 9, "--sweep", "--range", "9:1"), "LOW:HIGH"),
            (("--samples", 9, "--sweep", "--range", "1:10000000"), "10000000 sizes"),
            (("--explain", "nothing"), "No case"),
            (("--explain", "accelerate"), "Did you mean"),
            (("--explain", "²"), "No case has the id"),
            (("--explain", ""), "--explain all lists the ids"),
            (("--samples", 9, "--batch-size", 4, "--optimizer", "  "), "the name is empty"),
            (("--samples", 9, "--batch-size", 4, "--setup", "other"), "other"),
            (("--samples", 9, "--batch-size", 4, "--global", "--per-rank"), "contradict"),
            (("--samples", 9, "--batch-size", 4, "--explain", "3"), "leave the other options out"),
            (("--sweep", "--explain", "3"), "leave the other options out"),
            (("--samples", 9, "--batch-size", 4, "--batch-norm-values", 0), "at least 1"),
        ],
    )
    def test_one_clear_error(self, arguments, part):
        assert part in typed(*arguments, fails=True)
