"""Cases of tails on several ranks and replicas, provoked."""

import inspect
from pathlib import Path

import pytest
import torch
from batchadvisor import ModelFacts
from torch import nn
from torch.utils.data.distributed import DistributedSampler

from .launch import launch
from .said import case_of, planned


@pytest.mark.case("distributed.duplicates", "the indices of 4 samplers over 17 samples", "torch")
@pytest.mark.parametrize(("num_samples", "ranks", "again"), [(17, 4, 3), (1, 4, 3), (16, 4, 0)])
def test_distributed_duplicates(num_samples, ranks, again):
    drawn = [len(list(DistributedSampler(range(num_samples), ranks, r))) for r in range(ranks)]
    assert sum(drawn) - num_samples == again
    report = planned(num_samples, 4, "ddp", ranks)
    assert report.layout.duplicates == again
    finding = case_of(report, "distributed.duplicates")
    assert (finding is not None) is bool(again)
    if again:
        assert finding.evidence[0].value == again / num_samples


@pytest.mark.case("distributed.no-samples", "the samplers of 4 ranks over 3 samples", "torch")
def test_distributed_no_samples():
    lengths = [
        len(list(DistributedSampler(range(3), 4, rank, drop_last=True))) for rank in range(4)
    ]
    assert lengths == [0, 0, 0, 0]
    report = planned(3, 1, "ddp", 4, sampler_drop_last=True)
    assert report.layout.steps == 0
    assert case_of(report, "distributed.no-samples") is not None
    enough = planned(4, 1, "ddp", 4, sampler_drop_last=True)
    assert case_of(enough, "distributed.no-samples") is None


@pytest.mark.case("syncbn.short-rank", "one value in a world of one rank", "torch")
def test_syncbn_of_one_value():
    with pytest.raises(ValueError, match="more than 1 value per channel"):
        nn.SyncBatchNorm(3)(torch.randn(1, 3))
    nn.SyncBatchNorm(3)(torch.randn(2, 3))
    model = ModelFacts(sync_batch_norm=1, batch_norm_values=1)
    alone = planned(9, 4, model=model)
    assert "raises ValueError" in case_of(alone, "syncbn.short-rank").message
    single = planned(17, 4, "ddp", 4, sampler="shards", model=model)
    assert single.layout.last == (1, 0, 0, 0)
    assert "lets pass" in case_of(single, "syncbn.short-rank").message
    # Two ranks with a sample each are weighed by their counts: said, not held against it.
    two = planned(18, 4, "ddp", 4, sampler="shards", model=model)
    assert not case_of(two, "syncbn.short-rank").harmful


@pytest.mark.case("syncbn.short-rank", "ranks are weighed by their counts", "torch", read=True)
def test_syncbn_counts():
    """Only GPUs run it: a world of two with one value each, or none, does not raise."""
    from torch.nn.modules import _functions

    source = inspect.getsource(_functions.SyncBatchNorm.forward)
    assert "size == 1 and world_size < 2" in source
    assert "count_all.squeeze(-1) >= 1" in source
    assert "batch_norm_gather_stats_with_counts" in source


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
@pytest.mark.case("syncbn.short-rank", "two ranks of 3 and 1 samples on one GPU", "torch")
def test_syncbn_of_two_ranks_on_a_gpu(tmp_path):
    seen = launch(Path(__file__).with_name("two_ranks.py"), tmp_path, "sync_batch_norm_gpu")
    first, second = (rank["sync_batch_norm_gpu"] for rank in seen)
    assert first["mean"] == pytest.approx(second["mean"])
    assert first["mean"] == pytest.approx(0.1 * (0 + 1 + 2 + 7) / 4)


@pytest.mark.case("dataparallel.chunks", "torch.chunk, the cut of DataParallel's scatter", "torch")
@pytest.mark.parametrize(
    ("left", "ranks", "sizes", "idle"),
    [(9, 8, (2, 2, 2, 2, 1, 0, 0, 0), 3), (10, 4, (3, 3, 3, 1), 0), (5, 4, (2, 2, 1, 0), 1)],
)
def test_dataparallel_chunks(left, ranks, sizes, idle):
    real = [len(chunk) for chunk in torch.arange(left).chunk(ranks)]
    assert (*real, *[0] * (ranks - len(real))) == sizes
    model = ModelFacts(batch_norm=1, batch_norm_values=1)
    report = planned(64 * 3 + left, 64, "data-parallel", ranks, model=model)
    assert report.layout.last == sizes
    finding = case_of(report, "dataparallel.chunks")
    assert finding.harmful is bool(idle)
    assert report.layout.empty_replicas == idle
    if idle:
        assert f"{idle} of {ranks} GPUs have no work" in finding.message
    assert (case_of(report, "norm.one-value") is not None) is (1 in sizes)


@pytest.mark.case("dataparallel.chunks", "a loss inside forward is a mean of means", "torch")
def test_dataparallel_mean_of_means():
    values = torch.tensor([1.0, 1.0, 1.0, 1.0, 6.0])
    inside = torch.stack([chunk.mean() for chunk in values.chunk(4)]).mean()
    assert inside != values.mean()
    facts = (64 * 3 + 10, 64, "data-parallel", 4)
    report = planned(*facts, model=ModelFacts(loss_in_forward=True))
    finding = case_of(report, "dataparallel.chunks")
    assert "mean of means" in finding.message
    assert finding.harmful
    assert not case_of(planned(*facts), "dataparallel.chunks").harmful


@pytest.mark.gpu
@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two CUDA GPUs")
@pytest.mark.case("dataparallel.chunks", "replicas of a real DataParallel", "torch")
def test_dataparallel_on_gpus():
    seen = []

    class Sizes(nn.Module):
        def forward(self, batch):
            seen.append(len(batch))
            return batch

    gpus = torch.cuda.device_count()
    nn.DataParallel(Sizes().cuda())(torch.zeros(gpus + 1, 1, device="cuda"))
    report = planned(gpus + 1, gpus * 4, "data-parallel", gpus)
    assert sorted(seen) == sorted(size for size in report.layout.last if size)
