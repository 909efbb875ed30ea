"""Scripts that turn sizes down: these are skipped with the script's own words."""

import pytest

from .driver import SCRIPTS, run_preloaded, run_well

pytestmark = pytest.mark.slow

OPTIONS = ("--json", "-q", "-o", "out", "--no-profile", "--budget", "40s")


def test_a_crash_whose_neighbours_run_is_a_constraint(tmp_path):
    """In the style of timm's Mixup."""
    sizes = ("--sizes", "8,9,10,12")
    done = run_well("run", *OPTIONS, *sizes, SCRIPTS / "mixes_pairs.py", folder=tmp_path)
    outcomes = {trial.batch_size: trial.outcome for trial in done.record.trials}
    assert outcomes[9] == "exception"
    assert {outcomes[size] for size in (8, 10, 12)} == {"ok"}
    finding = done.finding("size.multiples")
    assert "multiples of 2 only" in finding.message
    assert "Batch size should be even when using this" in finding.message
    assert "trial.exception" not in done.findings


def test_multiples_that_were_asked_for(tmp_path):
    options = ("--goal", "throughput", "--multiple-of", "6", "--max-batch", "40")
    done = run_well("run", *OPTIONS, *options, SCRIPTS / "mixes_pairs.py", folder=tmp_path)
    tried = {trial.batch_size for trial in done.record.trials if trial.says_of_size}
    assert all(size % 6 == 0 for size in tried)
    assert done.advice.recommended.batch_size % 6 == 0
    assert done.record.goal.multiple_of == 6
    finding = done.finding("tails.model.multiple")  # 4000 is no multiple of 6
    assert "multiples of 6 only" in finding.message


def test_a_batch_divides_the_tokens_of_a_step(tmp_path):
    """In the style of llm.c: 4 is the largest that it takes, and the assert is said."""
    script, size = SCRIPTS / "divides_tokens.py", "--batch_size={batch_size}"
    done = run_well("run", *OPTIONS, script, size, folder=tmp_path)
    trials = done.searched
    assert trials[0].batch_size == 4  # its own size comes first
    assert trials[0].ran
    refused = [trial for trial in trials if not trial.ran]
    assert refused
    assert all(64 % (16 * trial.batch_size) for trial in refused)
    words = "AssertionError: assert args.total_batch_size % tokens_per_fwdbwd == 0"
    assert {trial.detail for trial in refused} == {words}
    assert done.advice.recommended.batch_size in (1, 2, 4)
    assert any(words in finding.message for finding in done.advice.findings)


def test_a_loop_that_counts_against_the_length_of_its_loader(tmp_path):
    """In the style of timm: accumulation divides by what is left of the epoch, here by zero."""
    sizes = ("--sizes", "8,16")
    done = run_well("run", *OPTIONS, *sizes, SCRIPTS / "counts_epoch.py", folder=tmp_path)
    trials = [trial for trial in done.record.trials if trial.kind != "turns"]
    assert {trial.batch_size: trial.outcome for trial in trials} == {8: "ok", 16: "ok"}
    assert {trial.micro_batches for trial in trials if trial.purpose == "search"} == {4}
    assert "ZeroDivisionError" in done.log
    assert not [finding for finding in done.advice.findings if finding.rule.startswith("trial.")]


FIXED = """
import torch
from torch.utils.data import DataLoader, TensorDataset
torch.manual_seed(0)
model, wanted = torch.nn.Linear(4, 1), torch.zeros(8)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
loader = DataLoader(TensorDataset(torch.randn(24, 4)), batch_size=8)
for _ in range(10**6):
    for (x,) in loader:
        optimizer.zero_grad()
        (model(x)[:, 0] - wanted).square().mean().backward()
        optimizer.step()
"""


def test_an_end_of_an_epoch_is_not_blamed_where_the_size_may_be_why(tmp_path):
    """Nearly every batch of a short loader is a little beyond an epoch's end."""
    (tmp_path / "fixed.py").write_text(FIXED)
    options = [option for option in OPTIONS if option != "-q"]
    done = run_preloaded("run", *options, "--sizes", "8,12", "fixed.py", folder=tmp_path)
    assert {trial.batch_size: trial.outcome for trial in done.searched} == {
        8: "ok",
        12: "exception",
    }
    assert "to tell which of the two it was" in done.stderr
    assert "that is beyond" not in done.stderr


def test_samplers_that_count(tmp_path):
    """A length that is a bound, and a dataset that is told the size as well."""
    script = SCRIPTS / "leaves_duplicates.py"
    done = run_well("run", *OPTIONS, "--sizes", "4,8", script, folder=tmp_path)
    assert done.record.discovery.primary.num_drawn < 400 // 4
    finding = done.finding("sampler.bound")
    assert "NoDuplicatesBatchSampler is a bound" in finding.message
    assert done.advice.training.steps_at_most
    (other,) = done.record.discovery.following
    assert (other.name, other.source.before) == ("Pairs(batch_size=)", "batch_size=4")
