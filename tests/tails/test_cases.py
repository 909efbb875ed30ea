"""The cases of one process, provoked with torch, and what the engine says of the same numbers."""

import math

import batchadvisor
import pytest
import torch
from batchadvisor import ModelFacts
from torch import nn
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler

from .said import case_of, planned


def pull_of_each_sample(loader, num_samples, optimizer, scale=lambda _: 1.0, steps=None):
    """How far each sample moves a weight of its own in one epoch under a mean loss."""
    weights = nn.Parameter(torch.zeros(num_samples))
    own = optimizer([weights])
    for batch in loader:
        own.zero_grad()
        (weights[batch].mean() * scale(len(batch))).backward()
        own.step()
    return weights.detach().abs()


def sgd(parameters):
    return torch.optim.SGD(parameters, lr=1.0)


@pytest.mark.case("loader.short", "the weight of each sample in an epoch of SGD", "torch")
@pytest.mark.parametrize(("num_samples", "size", "weight"), [(10, 4, 2.0), (50, 16, 8.0)])
def test_loader_short(num_samples, size, weight):
    pull = pull_of_each_sample(DataLoader(range(num_samples), size), num_samples, sgd)
    left = num_samples % size
    assert pull[-1] / pull[0] == pytest.approx(weight)
    report = batchadvisor.tails(num_samples=num_samples, batch_size=size)
    assert report.layout.weight == pytest.approx(weight)
    assert report.layout.last_samples == left
    finding = case_of(report, "loader.short")
    assert f"{weight:.1f} times" in finding.message
    assert finding.evidence[0].value == pytest.approx(weight)
    assert any("drop_last=True" in fixe.snippet for fixe in finding.fixes)


@pytest.mark.case("loader.short", "scaling the loss repairs SGD and not Adam", "torch")
def test_loader_short_scaled():
    loader, scale = DataLoader(range(10), 4), lambda length: length / 4
    repaired = pull_of_each_sample(loader, 10, sgd, scale)
    assert repaired == pytest.approx(torch.full((10,), 0.25))

    def adam(parameters):
        return torch.optim.Adam(parameters, lr=1.0)

    plain = pull_of_each_sample(loader, 10, adam)
    scaled = pull_of_each_sample(loader, 10, adam, scale)
    assert scaled[-1] / plain[-1] > 0.9  # the half of the loss is divided out again
    for name, offered in (("SGD", True), ("Adam", False), (None, False)):
        finding = case_of(planned(10, 4, model=ModelFacts(optimizer=name)), "loader.short")
        assert any("len(target) / 4" in fixe.snippet for fixe in finding.fixes) is offered


@pytest.mark.case("loader.no-steps", "an epoch of a loader with drop_last=True", "torch")
def test_loader_no_steps():
    loader = DataLoader(range(3), 4, drop_last=True)
    assert len(loader) == 0
    assert list(loader) == []
    report = batchadvisor.tails(num_samples=3, batch_size=4, drop_last=True)
    assert report.layout.steps == 0
    assert report.layout.dropped == 3
    assert "no step" in case_of(report, "loader.no-steps").message


RAISES = "Expected more than 1 value per channel"


@pytest.mark.case("norm.one-value", "BatchNorm, GroupNorm and InstanceNorm of one value", "torch")
class TestOneValue:
    def test_batch_norm_at_the_end_of_the_first_epoch(self):
        model = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3))
        data = torch.randn(9, 2)
        *full, last = DataLoader(data, 4)
        assert [len(model(batch)) for batch in full] == [4, 4]
        with pytest.raises(ValueError, match=RAISES):
            model(last)
        report = self.report(9, batch_norm=1, batch_norm_values=1)
        assert report.layout.steps == 3
        assert "one sample" in case_of(report, "norm.one-value").message

    def test_maps_that_are_larger_and_eval_are_fine(self):
        nn.BatchNorm2d(3)(torch.randn(1, 3, 2, 1))
        nn.BatchNorm1d(3).eval()(torch.randn(1, 3))
        nn.LayerNorm(3)(torch.randn(1, 3))
        for facts in ({"batch_norm": 1, "batch_norm_values": 2}, {"batch_norm": 0}, {}):
            assert case_of(self.report(9, **facts), "norm.one-value") is None
        unknown = case_of(self.report(9, batch_norm=1), "norm.one-value")
        assert "1x1" in unknown.message

    def test_group_norm(self):
        with pytest.raises(ValueError, match=RAISES):
            nn.GroupNorm(3, 3)(torch.randn(1, 3))
        nn.GroupNorm(3, 6)(torch.randn(1, 6))
        nn.GroupNorm(3, 3)(torch.randn(2, 3))
        for values, fires in ((1, True), (2, False)):
            report = self.report(9, group_norm=1, group_norm_values=values)
            assert (case_of(report, "norm.one-value") is not None) is fires
        report = self.report(10, group_norm=1, group_norm_values=1)
        assert case_of(report, "norm.one-value") is None

    def test_instance_norm_at_any_size(self):
        with pytest.raises(ValueError, match="more than 1 spatial element"):
            nn.InstanceNorm2d(3)(torch.randn(4, 3, 1, 1))
        nn.InstanceNorm2d(3)(torch.randn(1, 3, 2, 1))
        for values, fires in ((1, True), (2, False)):
            report = self.report(8, instance_norm=1, instance_norm_values=values)
            assert (case_of(report, "norm.one-value") is not None) is fires

    @staticmethod
    def report(num_samples, **facts):
        model = ModelFacts(**facts)
        return batchadvisor.tails(num_samples=num_samples, batch_size=4, model=model)


@pytest.mark.case("norm.few-samples", "running statistics before and after a short batch", "torch")
def test_norm_few_samples():
    torch.manual_seed(0)
    layer = nn.BatchNorm1d(64)
    data = torch.randn(64 * 40 + 2, 64)
    before = None
    for batch in DataLoader(data, 64):
        before = layer.running_var.clone()
        layer(batch)
    moved = (layer.running_var - before).abs().mean()
    usual = layer.running_var.clone()
    layer(data[:64])
    assert moved > 5 * (layer.running_var - usual).abs().mean()
    model = ModelFacts(batch_norm=1, batch_norm_values=1)
    for left, fires in ((2, True), (7, True), (8, False), (32, False), (1, False)):
        report = batchadvisor.tails(num_samples=64 * 40 + left, batch_size=64, model=model)
        finding = case_of(report, "norm.few-samples")
        assert (finding is not None) is fires
        if fires:
            assert f"{left} samples" in finding.message


@pytest.mark.case("loss.empty-batch", "a forward and backward pass of no rows", "torch")
def test_loss_empty_batch():
    model = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3), nn.Linear(3, 2))
    before = model[1].running_mean.clone()
    output = model(torch.randn(0, 4))
    loss = nn.functional.cross_entropy(output, torch.zeros(0, dtype=torch.long))
    assert output.shape == (0, 2)
    assert loss.isnan()
    loss.backward()
    assert all(torch.isfinite(parameter.grad).all() for parameter in model.parameters())
    assert torch.equal(model[1].running_mean, before)
    empty = torch.zeros(0, dtype=torch.long)
    assert nn.functional.cross_entropy(model(torch.randn(0, 4)), empty, reduction="sum") == 0
    # Ranks that take 6 and 2 of each 8 samples: of the last 5 the second rank gets none.
    report = planned(21, 8, "ddp", 2, rank_batch_sizes=(6, 2))
    assert report.layout.last == (5, 0)
    assert "NaN" in case_of(report, "loss.empty-batch").message
    even = planned(23, 8, "ddp", 2, rank_batch_sizes=(6, 2))
    assert even.layout.last == (6, 1)
    assert case_of(even, "loss.empty-batch") is None


@pytest.mark.case("accumulation.tail", "a loop that divides its loss by A", "torch")
def test_accumulation_in_a_plain_loop():
    weight = nn.Parameter(torch.zeros(()))
    optimizer = torch.optim.SGD([weight], lr=1.0)
    moved = []
    loader = DataLoader(torch.ones(24), 4)  # 6 batches, accumulated over 4
    for position, batch in enumerate(loader, 1):
        ((weight * batch).mean() / 4).backward()
        if position % 4 == 0 or position == len(loader):
            before = weight.item()
            optimizer.step()
            optimizer.zero_grad()
            moved.append(before - weight.item())
    assert moved == [1.0, 0.5]
    report = batchadvisor.tails(num_samples=24, batch_size=4, micro_batches=4)
    assert report.layout.steps == 2
    assert report.layout.accumulation_tail == 2
    finding = case_of(report, "accumulation.tail")
    assert finding.evidence[0].value == 0.5
    whole = batchadvisor.tails(num_samples=32, batch_size=4, micro_batches=4)
    assert case_of(whole, "accumulation.tail") is None


@pytest.mark.case("loader.below-one-batch", "an epoch of 4 samplers over 10 samples", "torch")
def test_below_one_batch():
    """4 ranks that ask for 8 samples each get 3; of two of them one step has less than asked."""
    for rank in range(4):
        sampler = DistributedSampler(range(10), 4, rank)
        assert [len(batch) for batch in DataLoader(range(10), 8, sampler=sampler)] == [3]
    report = batchadvisor.tails(num_samples=10, batch_size=8, setup="ddp", num_ranks=4)
    assert (report.layout.steps, report.layout.last) == (1, (3, 3, 3, 3))
    finding = case_of(report, "loader.below-one-batch")
    assert not finding.harmful  # there are no other steps that it could differ from
    assert "32 samples over all ranks" in finding.message
    assert finding.fixes[0].changes["batch_size"] == 2
    whole = batchadvisor.tails(num_samples=32, batch_size=8, setup="ddp", num_ranks=4)
    assert case_of(whole, "loader.below-one-batch") is None


@pytest.mark.case("loss.contrastive", "InfoNCE over batches of 64, 4 and 1", "torch")
def test_contrastive():
    """Nothing is learned: the loss is the logarithm of the batch, and of one sample it is none."""

    def info_nce(count):
        torch.manual_seed(0)
        features = nn.Parameter(1e-3 * torch.randn(count, 16))
        loss = nn.functional.cross_entropy(features @ features.T, torch.arange(count))
        loss.backward()
        return loss.item(), features.grad.abs().max().item()

    for count in (64, 4):
        assert info_nce(count)[0] == pytest.approx(math.log(count), rel=1e-3)
    assert info_nce(1) == (0.0, 0.0)
    model = ModelFacts(loss="contrastive")
    report = batchadvisor.tails(num_samples=128 + 4, batch_size=64, model=model)
    finding = case_of(report, "loss.contrastive")
    assert "3 negatives and not 63" in finding.message
    assert case_of(report, "loader.short") is None
    assert not any("order" in fix.snippet for fix in finding.fixes)  # a repeat is a false negative
    half = batchadvisor.tails(num_samples=128 + 40, batch_size=64, model=model)
    assert not case_of(half, "loss.contrastive").harmful


@pytest.mark.case("loader.short", "under a summed loss every sample weighs alike", "torch")
def test_loader_short_summed():
    pull = pull_of_each_sample(DataLoader(range(10), 4), 10, sgd, scale=float)  # a sum of means
    assert pull == pytest.approx(torch.ones(10))
    report = batchadvisor.tails(num_samples=9, batch_size=4, model=ModelFacts(loss="sum"))
    assert report.findings == ()


@pytest.mark.case("compiled.shape", "graphs that torch.compile makes for two tails", "torch")
@pytest.mark.parametrize(
    ("dynamic", "name", "graphs"),
    [(None, "default", 2), (False, "static", 3), (True, "dynamic", 1)],
)
def test_compiled_shape(dynamic, name, graphs):
    from torch._dynamo.testing import CompileCounter

    torch._dynamo.reset()
    counter = CompileCounter()
    step = torch.compile(lambda batch: (batch * 2).sum(0), backend=counter, dynamic=dynamic)
    for length in (8, 8, 5, 3):
        step(torch.ones(length, 4))
    assert counter.frame_count == graphs
    report = batchadvisor.tails(num_samples=29, batch_size=8, model=ModelFacts(compiled=name))
    finding = case_of(report, "compiled.shape")
    assert (finding is not None) is (graphs > 1)
    if finding is not None:
        assert ("once" if graphs == 2 else "each new size") in finding.message
    torch._dynamo.reset()


@pytest.mark.case("model.multiple", "groups of 4 over a last batch of 6, and of 3", "torch")
def test_multiples():
    def in_groups(batch, size):
        return batch.reshape(-1, min(size, len(batch)), batch.shape[1]).std(dim=1)

    *full, last = DataLoader(torch.randn(16 + 6, 3), 8)
    assert [len(in_groups(batch, 4)) for batch in full] == [2, 2]
    with pytest.raises(RuntimeError, match="invalid for input of size"):
        in_groups(last, 4)
    assert len(in_groups(last[:3], 4)) == 1  # at most 4 is one group
    model = ModelFacts(multiple_of=4)
    report = batchadvisor.tails(num_samples=22, batch_size=8, model=model)
    finding = case_of(report, "model.multiple")
    assert finding.harmful
    assert "the last batch has 6 samples" in finding.message
    assert any("drop_last=True" in fix.snippet for fix in finding.fixes)
    for fix in finding.fixes:
        assert case_of(batchadvisor.tails(report.pipeline, **fix.changes), "model.multiple") is None
    for samples, left in ((24, 0), (20, 4)):
        whole = batchadvisor.tails(num_samples=samples, batch_size=8, model=model)
        assert whole.layout.last_samples == (left or 8)
        assert case_of(whole, "model.multiple") is None
    few = ModelFacts(multiple_of=4, any_up_to_multiple=True)
    assert case_of(planned(19, 8, model=few), "model.multiple") is None
