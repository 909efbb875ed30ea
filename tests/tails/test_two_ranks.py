"""The cases of several ranks, provoked in two real gloo processes."""

import re
from pathlib import Path

import pytest
from batchadvisor import ModelFacts

from .launch import launch
from .said import case_of, planned

pytestmark = pytest.mark.slow

SCRIPT = Path(__file__).with_name("two_ranks.py")


@pytest.fixture(scope="module")
def seen(tmp_path_factory):
    """All cases that leave the group alive, in one start of two processes."""
    names = ("no_sampler", "uneven_sizes", "join", "sync_batch_norm", "join_throws")
    return launch(SCRIPT, tmp_path_factory.mktemp("ranks"), *names)


@pytest.mark.case("ddp.no-sampler", "samples of each rank in a DDP epoch, two processes", "torch")
def test_ddp_no_sampler(seen):
    assert [rank["no_sampler"] for rank in seen] == [{"plain": 10, "distributed": 5}] * 2
    plain = planned(10, 4, "ddp", 2, sampler="plain")
    assert plain.layout.duplicates == 10
    assert "2 times the work" in case_of(plain, "ddp.no-sampler").message
    assert case_of(planned(10, 4, "ddp", 2), "ddp.no-sampler") is None


@pytest.mark.case("ddp.uneven-sizes", "gradients of 6 and 2 samples, two processes", "torch")
def test_ddp_uneven_sizes(seen):
    own = seen[0]["uneven_sizes"]
    assert own == seen[1]["uneven_sizes"]
    means = (2.5, 6.5)  # of 0..5 and of 6, 7
    assert own["plain"] == pytest.approx(sum(means) / 2)
    assert own["repaired"] == pytest.approx(own["exact"])
    report = planned(80, 8, "ddp", 2, rank_batch_sizes=(6, 2))
    finding = case_of(report, "ddp.uneven-sizes")
    weight = finding.evidence[0].value
    assert weight == 2.0
    # The weights that the engine states give DDP's gradient from the samples.
    rebuilt = (6 * means[0] * 8 / (2 * 6) + 2 * means[1] * weight) / 8
    assert rebuilt == pytest.approx(own["plain"])
    assert any("all_reduce" in fixe.snippet for fixe in finding.fixes)


@pytest.mark.case("join.divisor", "the last gradients under both divisors, two processes", "torch")
def test_join_divisor(seen):
    assert seen[0]["join"] == {"initial": 1.5, "left": 3.0}
    report = planned(9, 4, "join", 2)
    assert report.layout.batches == (2, 1)
    finding = case_of(report, "join.divisor")
    assert 3.0 * finding.evidence[0].value == seen[0]["join"]["initial"]
    assert case_of(planned(8, 4, "join", 2), "join.divisor") is None


@pytest.mark.case("join.divisor", "throw_on_early_termination ends both ranks", "torch")
def test_join_throws(seen):
    errors = [rank["join_throws"]["error"] for rank in seen]
    assert all("exhaust" in error for error in errors), errors
    report = planned(9, 4, "join", 2, model=ModelFacts(sync_batch_norm=1))
    finding = case_of(report, "join.divisor")
    assert "SyncBatchNorm" in finding.message
    assert any("throw_on_early_termination" in fixe.snippet for fixe in finding.fixes)


@pytest.mark.case("syncbn.short-rank", "CPU tensors in a group of two processes", "torch")
def test_sync_batch_norm_on_cpus(seen):
    assert "expected input tensor to be on GPU" in seen[0]["sync_batch_norm"]["error"]


def predicted():
    """Nine samples dealt to two ranks, B = 4: what the engine says."""
    report = planned(9, 4, "ddp", 2, sampler="shards")
    assert report.layout.batches == (2, 1)
    assert report.layout.last == (1, 0)
    return case_of(report, "ddp.uneven-steps")


@pytest.mark.case("ddp.uneven-steps", "a rank that leaves early, two processes", "torch")
def test_ddp_uneven_steps_closed(tmp_path):
    first, second = launch(SCRIPT, tmp_path, "leaves")
    assert second["leaves"] == {"steps": 1, "error": "", "waited_s": 0.0}
    assert first["leaves"]["steps"] == 1
    # Which of the two words depends on whether bytes of ours were still unread when it left.
    assert re.search("(closed|reset) by peer", first["leaves"]["error"]), first["leaves"]["error"]
    finding = predicted()
    assert "1 to 2 steps" in finding.message
    assert "Connection closed by peer" in finding.message


@pytest.mark.case("ddp.uneven-steps", "a rank that lives on: timeout of 5 s", "torch")
def test_ddp_uneven_steps_timeout(tmp_path):
    first, _ = launch(SCRIPT, tmp_path, "stays")
    assert "imed out" in first["stays"]["error"]
    assert first["stays"]["waited_s"] >= 4
    assert "timeout" in predicted().message
