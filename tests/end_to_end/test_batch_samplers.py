"""The script's own batch samplers keep their grouping where they follow a size; else it is said."""

import pytest

from .driver import SCRIPTS, run_well

pytestmark = pytest.mark.slow

OPTIONS = ("--json", "-q", "-o", "out", "--no-profile", "--goal", "memory", "--sizes")


def steered(name, sizes, folder):
    """A run of the script whose sizes all arrived; the line of its loader's source, and its own."""
    script = SCRIPTS / f"{name}.py"
    done = run_well("run", *OPTIONS, ",".join(map(str, sizes)), script, folder=folder)
    searched = done.searched
    assert [(trial.outcome, trial.arrived_batch_size) for trial in searched] == [
        ("ok", size) for size in sizes
    ]
    assert done.record.discovery.primary.steered == "exact"
    assert "steering.approximate" not in done.findings
    source = done.record.discovery.primary.source
    return done, script.read_text().splitlines()[source.place.line - 1]


def test_batches_cut_when_made_keep_their_grouping(tmp_path):
    done, line = steered("cut_when_made", [5, 50], tmp_path)
    batches = [text.split() for text in done.log.splitlines() if text.startswith("batch ")]
    spreads = {int(size): set() for _, size, _ in batches}
    for _, size, spread in batches:
        spreads[int(size)].add(int(spread))
    # 1500 texts of 56 lengths: 27 of each, so that 50 sorted ones span three or four lengths.
    assert max(spreads[5]) <= 1
    assert max(spreads[50]) <= 4
    # The line to change is where the batch sampler is made.
    assert line.startswith("batches = LengthBatches(")
    source = done.record.discovery.primary.source
    assert source.template.format(50) == "LengthBatches(texts.lengths, batch_size=50)"


def test_a_budget_is_steered_by_itself(tmp_path):
    done, line = steered("token_budget", [100, 1000], tmp_path)
    loader = done.record.discovery.primary
    assert (loader.axis, loader.parameter) == ("tokens", "max_tokens")
    assert (loader.batch_size, loader.longest) == (300, 60)
    assert "max_tokens=300" in line
    assert loader.source.template.format(600) == "max_tokens=600"
    assert " max_tokens=1000: " in done.advice.headline
    rules = done.findings
    assert "size.budget" in rules
    assert "samples.left_out" not in rules
    for trial in done.record.trials:
        if trial.kind != "turns" and trial.mean_arrived is not None:
            assert trial.mean_arrived * 5 <= trial.batch_size  # no text is shorter than 5
