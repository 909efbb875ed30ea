"""The script's own batch samplers keep their grouping where they follow a size; else it is said."""

import pytest

from .driver import SCRIPTS
from .driver import run_preloaded as run

pytestmark = pytest.mark.slow

OPTIONS = ("--json", "-q", "-o", "out", "--no-profile", "--goal", "memory", "--sizes", "5,50")
NAMES = ("cut_when_made", "token_budget")


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    """Both scripts, run once each."""
    return {
        name: run("run", *OPTIONS, SCRIPTS / f"{name}.py", folder=tmp_path_factory.mktemp(name))
        for name in NAMES
    }


@pytest.mark.parametrize("name", NAMES)
def test_sizes_arrived(done, name):
    result = done[name]
    assert result.code == 0, result
    assert result.left == []
    searched = [trial for trial in result.record.trials if trial.purpose == "search"]
    assert [trial.batch_size for trial in searched] == [5, 50]
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


def test_a_budget_that_bounds_the_batches_is_said_to_be_lost(done):
    result = done["token_budget"]
    assert result.record.discovery.primary.steered == "approximate"
    (said,) = (
        finding for finding in result.advice.findings if finding.rule == "steering.approximate"
    )
    assert "TokenBatches follows no batch_size" in said.message
    assert "budget of tokens" in said.remedy
