"""Whole runs that measure how the script's loss reduces a batch, and what they then say."""

import pytest

from .driver import SCRIPTS
from .driver import run_preloaded as run

pytestmark = pytest.mark.slow
OPTIONS = ("--json", "-q", "-o", "out", "--no-profile", "--goal", "memory", "--sizes", "40")
BY_LOSS = {"tails.loader.short", "tails.loss.contrastive"}


@pytest.fixture
def ended(tmp_path):
    """A finished run of the script with one of its losses."""

    def _ended(kind):
        done = run("run", *OPTIONS, SCRIPTS / "losses.py", kind, folder=tmp_path)
        assert done.code == 0, done
        assert done.left == []
        assert done.record.state == "finished"
        assert (done.advice.recommended.batch_size, done.advice.tail.last_batch) == (40, 3)
        assert done.advice.tail_check.outcome == "ok"  # whatever came of the loss's own steps
        assert done.advice.loss_check == done.record.loss
        assert [path.name for path in tmp_path.iterdir()] == ["out"]
        return done.record.loss, BY_LOSS & {finding.rule for finding in done.advice.findings}

    return _ended


@pytest.mark.parametrize(
    ("kind", "reduction", "said"),
    [
        ("mean", "mean", "tails.loader.short"),  # behind a BatchNorm
        ("sum", "sum", None),
        ("infonce", "contrastive", "tails.loss.contrastive"),
        ("clipped", "sum", None),  # through a scaler, over two micro-batches
        ("dropout", "mean", "tails.loader.short"),
    ],
)
def test_measured(ended, kind, reduction, said):
    check, rules = ended(kind)
    assert (check.reduction, check.reason, check.num_samples) == (reduction, "", 40)
    assert rules == ({said} if said else set())


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("noise", "draws random numbers"),
        ("own_norm", "it mixes samples"),
        ("stateful", "the steps for it failed: RuntimeError"),
    ],
)
def test_cannot_tell(ended, kind, reason):
    """A mean is taken then, as before; the run ends well."""
    check, rules = ended(kind)
    assert check.reduction is None
    assert reason in check.reason
    assert rules == {"tails.loader.short"}
