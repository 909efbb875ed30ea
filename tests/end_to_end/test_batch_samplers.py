"""The script's own batch samplers keep their grouping where they follow a size; else it is said."""

import pytest

from .driver import SCRIPTS
from .driver import run_preloaded as run

pytestmark = pytest.mark.slow

OPTIONS = ("--json", "-q", "-o", "out", "--no-profile", "--goal", "memory", "--sizes", "5,50")
BUDGETS = (*OPTIONS[:-1], "100,1000")
SIZES = {"cut_when_made": [5, 50], "token_budget": [100, 1000]}
NAMES = ("cut_when_made", "token_budget")


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    """Both scripts, run once each."""
    return {
        name: run("run", *options, SCRIPTS / f"{name}.py", folder=tmp_path_factory.mktemp(name))
        for name, options in zip(NAMES, (OPTIONS, BUDGETS), strict=True)
    }


@pytest.mark.parametrize("name", NAMES)
def test_sizes_arrived(done, name):
    result = done[name]
    assert result.code == 0, result
    assert result.left == []
    searched = [trial for trial in result.record.trials if trial.purpose == "search"]
    assert [trial.batch_size for trial in searched] == SIZES[name]
    for trial in searched:
        assert (trial.outcome, trial.arrived_batch_size) == ("ok", trial.batch_size)


def test_batches_cut_when_made_keep_their_grouping(done):
    result = done["cut_when_made"]
    assert result.record.discovery.primary.steered == "exact"
    assert "steering.approximate" not in [finding.rule for finding in result.advice.findings]
    batches = [line.split() for line in result.log.splitlines() if line.startswith("batch ")]
    spreads = {int(size): set() for _, size, _ in batches}
    for _, size, spread in batches:
        spreads[int(size)].add(int(spread))
    # 1500 texts of 56 lengths: 27 of each, so that 50 sorted ones span three or four lengths.
    assert max(spreads[5]) <= 1
    assert max(spreads[50]) <= 4


def test_the_line_to_change_is_where_the_batch_sampler_is_made(done):
    result = done["cut_when_made"]
    source = result.record.discovery.primary.source
    text = (SCRIPTS / "cut_when_made.py").read_text()
    number = [
        number
        for number, line in enumerate(text.splitlines(), 1)
        if line.startswith("batches = LengthBatches(")
    ]
    assert [source.place.line] == number
    assert source.template.format(50) == "LengthBatches(texts.lengths, batch_size=50)"


def test_a_budget_is_steered_by_itself(done):
    result = done["token_budget"]
    loader = result.record.discovery.primary
    assert (loader.steered, loader.axis, loader.parameter) == ("exact", "tokens", "max_tokens")
    assert (loader.batch_size, loader.longest) == (300, 60)
    text = (SCRIPTS / "token_budget.py").read_text().splitlines()
    assert "max_tokens=300" in text[loader.source.place.line - 1]
    assert loader.source.template.format(600) == "max_tokens=600"
    assert " max_tokens=1000: " in result.advice.headline
    rules = [finding.rule for finding in result.advice.findings]
    assert "size.budget" in rules
    assert "steering.approximate" not in rules
    assert "samples.left_out" not in rules
    for trial in result.record.trials:
        if trial.kind != "turns" and trial.mean_arrived is not None:
            assert trial.mean_arrived * 5 <= trial.batch_size  # no text is shorter than 5
